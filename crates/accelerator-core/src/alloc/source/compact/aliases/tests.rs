use super::*;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::Id;
use crate::alloc::settings::MIN_BLOCK;

const START: u64 = 1000;

/// Four pieces, of which the first and the third are the same chunk.
fn alias() -> AliasRange {
    let pieces = [(0, 100, 10), (10, 200, 10), (20, 100, 10), (30, 300, 20)];
    let pieces = pieces.map(|(offset, chunk, len)| Piece { offset, chunk, len, mapped: true }).to_vec();
    let (blocks, used, freed, leaves) = Default::default();
    AliasRange { segment: SegmentId::at(0), start: START, pieces, blocks, used, freed, leaves }
}

/// The first two chunks are usable, and 5 bytes at the start and 8 at the end of the third.
fn usable() -> [UsableChunk; 3] {
    let chunk = |start, len, lead, trail| UsableChunk { start, len, lead, trail };
    [chunk(100, 10, 10, 0), chunk(200, 10, 10, 0), chunk(300, 20, 5, 8)]
}

fn row(alias: &AliasRange, size: u64) -> Option<(u64, u64)> {
    alias.row(size, &usable()).map(|(len, start)| (len, start - START))
}

#[test]
fn the_shortest_row_is_found_that_has_no_byte_twice() {
    let mut alias = alias();
    let rows = [1, 8, 9, 15, 16, 20, 21].map(|size| row(&alias, size));
    let [tail, second, first] = [Some((8, 42)), Some((15, 20)), Some((20, 0))];
    assert_eq!(rows, [tail, tail, second, second, first, first, None]);
    alias.pieces[1].mapped = false;
    let rows = [9, 10, 11, 16].map(|size| row(&alias, size));
    assert_eq!(rows, [Some((10, 0)), Some((10, 0)), second, None]);
    assert_eq!(alias.row(1, &[]), None);
}

#[test]
fn the_shortest_row_of_all_aliases_is_taken_and_none_of_an_alias_that_leaves() {
    let mut compact = Compact::new(ArenaId::SHARED);
    let mut second = AliasRange { start: 2 * START, ..alias() };
    second.pieces.truncate(1);
    compact.aliases.extend([(START, alias()), (2 * START, second)]);
    let found = |compact: &Compact, size| compact.row_in_aliases(size, &usable());
    assert_eq!(found(&compact, 9), Some((10, 2 * START)));
    assert_eq!(found(&compact, 16), Some((20, START)));
    assert_eq!(compact.row_in_aliases(9, &[]), None);
    compact.aliases.get_mut(&(2 * START)).unwrap().leaves = true;
    assert_eq!(found(&compact, 9), Some((15, START + 20)));
    let at = [START - 1, START, START + 49, START + 50, 2 * START + 9, 2 * START + 10].map(|at| compact.alias_at(at));
    assert_eq!(at, [None, Some(START), Some(START), None, Some(2 * START), None]);
}

#[test]
fn bytes_of_an_alias_are_parts_of_its_pieces() {
    let alias = alias();
    let parts = |offset, size| alias.parts(START + offset, size).collect::<Vec<_>>();
    assert_eq!(alias.len(), 50);
    assert_eq!(parts(0, 10), [(100, 10)]);
    assert_eq!(parts(5, 10), [(105, 5), (200, 5)]);
    assert_eq!(parts(9, 23), [(109, 1), (200, 10), (100, 10), (300, 2)]);
}

#[test]
fn bytes_are_mapped_if_all_of_their_pieces_are() {
    let mut alias = alias();
    alias.pieces[1].mapped = false;
    let is_mapped = |alias: &AliasRange| {
        [(0, 10), (0, 11), (5, 10), (10, 1), (19, 2), (20, 30), (20, 31)]
            .map(|(offset, size)| alias.is_mapped(START + offset, size))
    };
    assert_eq!(is_mapped(&alias), [true, false, false, false, false, true, false]);
    alias.leaves = true;
    assert_eq!(is_mapped(&alias), [false; 7]);
}

#[test]
fn an_owner_can_use_bytes_of_an_alias_if_it_can_use_all_of_their_parts() {
    let mut compact = Compact::with_owners(2);
    let [first, second] = [0, 1].map(|owner| {
        let block = compact.add_free(10 * MIN_BLOCK, owner);
        compact.store.blocks[block].position
    });
    let pieces = [(0, first), (10, second), (20, second)];
    let piece = |(at, chunk)| Piece { offset: at * MIN_BLOCK, chunk, len: 10 * MIN_BLOCK, mapped: true };
    let start = 1000 * MIN_BLOCK;
    compact.aliases.insert(start, AliasRange { start, pieces: pieces.map(piece).to_vec(), ..alias() });
    let can_use = |compact: &Compact, (from, to): (u64, u64), owner| {
        compact.can_use_in_alias(start, start + from * MIN_BLOCK, (to - from) * MIN_BLOCK, owner)
    };
    let rows = [(0, 10), (5, 15), (10, 20), (0, 20)];
    assert_eq!(rows.map(|row| can_use(&compact, row, 0)), [true, false, false, false].map(Some));
    assert_eq!(rows.map(|row| can_use(&compact, row, 1)), [false, false, true, false].map(Some));
    compact.store.claim(second, MIN_BLOCK, 1);
    assert_eq!(rows.map(|row| can_use(&compact, row, 0)), [Some(true), None, None, None]);
}

/// Two owners, and two aliases of one chunk of 20 blocks. Returns the starts of the aliases.
fn aliases_of_a_chunk() -> (Compact, [u64; 2]) {
    let mut compact = Compact::with_owners(2);
    let block = compact.add_free(20 * MIN_BLOCK, 0);
    let piece = Piece { offset: 0, chunk: compact.store.blocks[block].position, len: 20 * MIN_BLOCK, mapped: true };
    let starts = [1000, 2000].map(|start| start * MIN_BLOCK);
    compact.aliases.extend(starts.map(|start| (start, AliasRange { start, pieces: vec![piece], ..alias() })));
    (compact, starts)
}

/// A mutant forgot the others that had freed blocks of the alias. No test saw it.
#[test]
fn an_alias_is_idle_once_the_work_of_each_owner_that_freed_a_block_of_it_is_over() {
    let (mut compact, [start, _]) = aliases_of_a_chunk();
    let at = |owner| start + u64::from(owner) * 10 * MIN_BLOCK;
    let blocks = [0, 1].map(|owner| compact.claim_in_alias(start, at(owner), 10 * MIN_BLOCK, owner));
    blocks.into_iter().for_each(|block| compact.free_in_alias(start, block));
    let mut is_idle_after = |owner| {
        let epoch = compact.owners[owner].epoch;
        compact.owners.epoch_over(owner, epoch);
        compact.aliases[&start].is_idle(&compact.owners)
    };
    assert_eq!([1, 0].map(&mut is_idle_after), [false, true]);
}

#[test]
fn uses_of_aliases_are_in_order() {
    let (mut compact, [first, second]) = aliases_of_a_chunk();
    for start in [second, first, second] {
        let block = compact.claim_in_alias(start, start, MIN_BLOCK, 0);
        compact.free_in_alias(start, block);
    }
    assert_eq!([first, second].map(|start| compact.aliases[&start].used), [2, 3]);
}
