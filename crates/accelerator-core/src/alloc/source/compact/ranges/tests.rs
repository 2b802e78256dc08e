use super::*;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::{Base, Block, Segment};
use crate::alloc::settings::MIN_BLOCK;

/// Chunks at 0 to 10, at 10 to 20 and at 30 to 50.
fn compact() -> Compact {
    let mut compact = Compact::new(ArenaId::SHARED);
    compact.chunks[PoolKind::Large as usize].extend([(0, 10), (10, 10), (30, 20)]);
    compact
}

#[test]
fn chunks_are_usable_at_their_starts_and_ends_as_far_as_rows_reach() {
    let usable = |rows: &[Range<u64>]| {
        let chunks = compact().usable_chunks(rows).into_iter();
        chunks.map(|UsableChunk { start, len, lead, trail }| (start, len, lead, trail)).collect::<Vec<_>>()
    };
    let in_row = |row: Range<u64>| usable(&[row]);
    assert_eq!(usable(&[]), []);
    assert_eq!(in_row(0..50), [(0, 10, 10, 0), (10, 10, 10, 0), (30, 20, 20, 0)]);
    assert_eq!(in_row(5..15), [(0, 10, 0, 5), (10, 10, 5, 0)]);
    assert_eq!(in_row(12..18), [], "in the middle");
    assert_eq!(usable(&[0..10, 12..20, 30..35, 42..50]), [(0, 10, 10, 0), (10, 10, 0, 8), (30, 20, 5, 8)]);
    assert_eq!(usable(&[1..2, 3..4, 9..10, 49..60]), [(0, 10, 0, 1), (30, 20, 0, 1)]);
    assert_eq!(usable(&[0..1, 30..31, 33..34, 36..50]), [(0, 10, 1, 0), (30, 20, 1, 14)]);
}

#[test]
fn free_bytes_count_as_pieces_only_in_chunks_that_are_partly_in_use() {
    let mut compact = Compact::with_owners(1);
    let reserved = Segment::new(Base::unused(), 100 * MIN_BLOCK, 0, PoolKind::Large, None);
    let block = compact.store.blocks.add_segment(reserved, State::Free);
    let Block { segment, position: start, .. } = compact.store.blocks[block];
    compact.ranges.push(ReservedRange {
        owner: 0,
        pool: PoolKind::Large,
        segment,
        end: 100 * MIN_BLOCK,
        owned: 100 * MIN_BLOCK,
    });
    compact.chunks[PoolKind::Large as usize]
        .extend([(start, 40 * MIN_BLOCK), (start + 40 * MIN_BLOCK, 60 * MIN_BLOCK)]);
    compact.put_free_since(block, 0, Owners::ALWAYS_OVER);
    let pieces = |compact: &Compact| compact.free_in_used_chunks_of(&compact.ranges[0]) / MIN_BLOCK;
    let claim =
        |compact: &mut Compact, from, count| compact.store.claim(start + from * MIN_BLOCK, count * MIN_BLOCK, 0);
    assert_eq!(pieces(&compact), 0);
    claim(&mut compact, 10, 20);
    assert_eq!(pieces(&compact), 20, "10 before and 10 behind, and not the other chunk");
    claim(&mut compact, 90, 10);
    assert_eq!(pieces(&compact), 20 + 50);
    claim(&mut compact, 30, 60);
    assert_eq!(pieces(&compact), 10);
}

#[test]
fn an_owner_can_use_bytes_if_it_can_use_all_of_them() {
    let mut compact = Compact::with_owners(2);
    let reserved = Segment::new(Base::unused(), 30 * MIN_BLOCK, 0, PoolKind::Large, None);
    let block = compact.store.blocks.add_segment(reserved, State::Free);
    let start = compact.store.blocks[block].position;
    compact.put_free_since(block, 0, Owners::ALWAYS_OVER);
    let between = compact.store.claim(start + 10 * MIN_BLOCK, 10 * MIN_BLOCK, 1);
    let can_use = |compact: &Compact, (from, to): (u64, u64), owner| {
        compact.can_use_in_range(start + from * MIN_BLOCK, (to - from) * MIN_BLOCK, owner)
    };
    let rows = [(0, 10), (0, 11), (5, 25), (10, 20), (15, 30), (20, 30)];
    let by = |compact: &Compact, owner| rows.map(|row| can_use(compact, row, owner));
    assert_eq!(by(&compact, 0), [Some(true), None, None, None, None, Some(true)], "in use between them");
    compact.put_free(between, 1);
    assert_eq!(by(&compact, 1), [Some(true); 6]);
    assert_eq!(by(&compact, 0), [true, false, false, false, false, true].map(Some), "its work may not be over");
}
