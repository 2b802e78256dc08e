use super::*;
use crate::alloc::arena::ArenaId;
use crate::types::MIB;

/// Returns whether a request of 24 MiB, for which so many MiB would be made, waits for other streams, although that
/// makes no memory available: 24 MiB would have to be made all the same.
fn waits(made: u64, streams: Owner, effort: Effort) -> bool {
    let mut compact = Compact::with_owners(streams);
    compact.costs.count(5000 * MIB);
    (compact.costs.requested, compact.costs.reserved) = (0, 5100 * MIB);
    let request = Request { requested: 24 * MIB, size: 24 * MIB, pool: PoolKind::Large };
    let driver = Abilities::Chunks { granularity: 2 * MIB, maps_twice: false, waits: true };
    let miss = Miss { request: &request, owner: 0, driver, effort };
    let waits = compact.is_worth_waiting(&Plan::Grow(vec![made * MIB]), miss);
    assert_eq!(compact.owners.assumed, None);
    waits
}

#[test]
fn a_stream_waits_for_others_if_that_saves_enough_new_memory() {
    // In the long run, it must save 7 MiB, which is a share of the peak.
    for (effort, too_little) in [(Effort::LongRun, 24 + 7), (Effort::Exact, 24), (Effort::Utmost, 24)] {
        assert!(!waits(too_little, 2, effort) && waits(too_little + 1, 2, effort), "{effort:?}");
        assert!(!waits(too_little + 1, 1, effort), "there is nobody to wait for");
    }
}

#[test]
fn the_longest_pieces_are_chosen_and_last_the_shortest_that_suffices() {
    let idle = [(2, 'a'), (4, 'b'), (6, 'c'), (6, 'd')];
    for (wanted, pieces, bytes) in [
        (0, "", 0),
        (2, "a", 2),
        (4, "b", 4),
        (5, "c", 6),
        (6, "c", 6),
        (8, "da", 8),
        (9, "db", 10),
        (13, "dca", 14),
        (18, "dcba", 18),
        (100, "dcba", 18),
    ] {
        assert_eq!(fewest(idle.to_vec(), wanted), (pieces.chars().collect(), bytes), "{wanted} bytes");
    }
}

#[test]
fn an_alias_takes_the_end_of_one_chunk_whole_chunks_and_the_start_of_a_last_one() {
    let chunk = |start, len, lead, trail| UsableChunk { start, len, lead, trail };
    let usable = [chunk(100, 10, 10, 0), chunk(200, 20, 20, 0), chunk(300, 20, 6, 0), chunk(400, 20, 0, 8)];
    let usable = Usable::new(&usable);
    let tail = usable.tail;
    assert_eq!(tail, Some((8, 400)));
    for (size, tail, chunks, missing, left_over) in [
        (10, None, &[100][..], 0, 0),
        (9, None, &[100], 0, 1),
        (6, None, &[300], 0, 0),
        (7, None, &[100], 0, 3),
        (20, None, &[200], 0, 0),
        (25, None, &[200, 300], 0, 1),
        (27, None, &[200, 100], 0, 3),
        (36, None, &[200, 100, 300], 0, 0),
        (40, None, &[200, 100, 300], 4, 0),
        (12, tail, &[400, 300], 0, 2),
        (15, tail, &[400, 100], 0, 3),
        (8, tail, &[400], 0, 0),
        (5, tail, &[400], 0, 3),
        (50, tail, &[400, 200, 100, 300], 6, 0),
    ] {
        let found = usable.candidate(size, tail);
        assert_eq!((&*found.chunks, found.missing, found.left_over), (chunks, missing, left_over), "{size} bytes");
        assert_eq!((found.tail, found.ends_in_head), (tail.map_or(0, |(len, _)| len), missing > 0), "{size} bytes");
    }
}

/// Lays out an alias for 10 MiB: a chunk of 4 MiB, a part of another one, and new chunks for the missing 4 MiB.
/// Returns the bytes of its parts, and those of the new chunks.
fn laid_out(ends_in_head: bool, effort: Effort) -> (Vec<Range<u64>>, u64) {
    let mut compact = Compact::new(ArenaId::SHARED);
    compact.chunks[PoolKind::Large as usize].extend([(100 * MIB, 4 * MIB), (200 * MIB, 20 * MIB)]);
    compact.costs.count(5000 * MIB);
    compact.costs.reserved = 5100 * MIB;
    let request = Request { requested: 10 * MIB, size: 10 * MIB, pool: PoolKind::Large };
    let driver = Abilities::Chunks { granularity: 2 * MIB, maps_twice: true, waits: true };
    let miss = Miss { request: &request, owner: 0, driver, effort };
    let costs = compact.costs.with(request.requested);
    let planner = Planner { compact: &compact, miss, granularity: 2 * MIB, costs, usable: &[] };
    let (tail, chunks) =
        if ends_in_head { (0, vec![100 * MIB, 200 * MIB]) } else { (2 * MIB, vec![200 * MIB, 100 * MIB]) };
    let alias = planner.laid_out(Candidate { tail, chunks, ends_in_head, missing: 4 * MIB, left_over: 0 });
    assert_eq!(alias.behind, if ends_in_head { 1 } else { 2 });
    (alias.parts.iter().map(|part| part.from..part.to).collect(), alias.made.iter().sum())
}

#[test]
fn new_chunks_between_others_are_exactly_as_long_as_needed() {
    for effort in [Effort::LongRun, Effort::Exact] {
        assert_eq!(laid_out(true, effort), (vec![0..4 * MIB, 0..2 * MIB], 4 * MIB));
        let (parts, made) = laid_out(false, effort);
        assert_eq!(parts, [18 * MIB..20 * MIB, 0..4 * MIB]);
        assert_eq!(made > 4 * MIB, effort == Effort::LongRun, "at the end, they may be longer: {made}");
    }
}

/// Plans for a request of 100 MiB that lacks `grow` MiB, where a driver call must save 1.75 MiB, and a chunk of so many
/// MiB is usable.
fn with_planner<T>(effort: Effort, chunk: u64, plan: impl Fn(&Planner<'_>) -> T) -> T {
    let mut compact = Compact::new(ArenaId::SHARED);
    let (start, len) = (100 * MIB, chunk * MIB);
    compact.chunks[PoolKind::Large as usize].insert(start, len);
    let request = Request { requested: 100 * MIB, size: 100 * MIB, pool: PoolKind::Large };
    let driver = Abilities::Chunks { granularity: 2 * MIB, maps_twice: true, waits: true };
    let miss = Miss { request: &request, owner: 0, driver, effort };
    let mut costs = CostModel::default();
    costs.count(1000 * MIB);
    (costs.requested, costs.reserved) = (0, 1010 * MIB);
    let usable = [UsableChunk { start, len, lead: len, trail: 0 }];
    plan(&Planner { compact: &compact, miss, granularity: 2 * MIB, costs, usable: &usable })
}

#[test]
fn an_alias_saves_enough_for_its_calls_or_anything_at_the_utmost() {
    // It takes five calls to map 100 MiB, and two fewer to make nothing.
    for (effort, chunk, grow, is_worth) in [
        (Effort::LongRun, 100, 6, true),
        (Effort::LongRun, 100, 5, false),
        (Effort::Utmost, 100, 1, true),
        // Three more calls if the rest is to be made, at half the price once memory is expensive.
        (Effort::LongRun, 96, 10, false),
        (Effort::LongRun, 96, 11, true),
        (Effort::Utmost, 96, 4, false),
        (Effort::Utmost, 96, 5, true),
    ] {
        let alias = with_planner(effort, chunk, |planner| planner.new_alias(grow * MIB).is_some());
        assert_eq!(alias, is_worth, "{effort:?}, {chunk} MiB usable, {grow} MiB to make otherwise");
    }
}

#[test]
fn chunks_are_exchanged_if_that_saves_enough_for_its_calls_or_at_the_utmost() {
    for (effort, chunk, is_worth) in
        [(Effort::LongRun, 4, true), (Effort::LongRun, 2, false), (Effort::Utmost, 2, true)]
    {
        let chosen = with_planner(effort, chunk, |planner| planner.exchange(4 * MIB, None));
        assert_eq!(chosen, is_worth.then(|| vec![100 * MIB]), "{effort:?}, {chunk} MiB");
    }
}
