use std::num::NonZeroU64;

use super::super::aliases::MappedAlias;
use super::super::ranges::ReservedRange;
use super::*;
use crate::alloc::blocks::{Base, Segment};
use crate::types::{MIB, PoolKind};

#[test]
fn bytes_of_an_alias_are_in_the_chunks_that_they_touch_and_no_others() {
    let mut compact = Compact::new(ArenaId::SHARED);
    let reserved = Segment::new(Base::unused(), 100 * MIB, 0, PoolKind::Large, NonZeroU64::new(2 * MIB));
    let segment = compact.store.blocks.add_empty_segment(reserved);
    let start = compact.store.blocks.segment(segment).position;
    compact.ranges.push(ReservedRange { owner: 0, pool: PoolKind::Large, segment, end: 100 * MIB, owned: 0 });
    let chunks = [(60, 10), (20, 20), (90, 10)].map(|(offset, len)| (start + offset * MIB, len * MIB));
    let addresses = (Base::unused(), NonZeroU64::MIN);
    let (alias, _) = compact.add_alias(&MappedAlias { addresses, chunks: chunks.to_vec(), mapped: 3 });
    for (bytes, chunks, offset) in [
        (0..1, &[60][..], 0),
        (0..10, &[60], 0),
        (9..10, &[60], 9),
        (9..11, &[60, 20], 9),
        (10..30, &[20], 0),
        (15..31, &[20, 90], 5),
        (5..40, &[60, 20, 90], 5),
        (30..40, &[90], 0),
    ] {
        let range = PageRange { segment: alias, offset: bytes.start * MIB, len: (bytes.end - bytes.start) * MIB };
        let expected: Vec<_> = chunks.iter().map(|chunk| (segment, chunk * MIB)).collect();
        assert_eq!(compact.chunks_in_alias(range), Some((expected, offset * MIB)), "{bytes:?}");
    }
    assert_eq!(compact.chunks_in_alias(PageRange { segment, offset: 0, len: MIB }), None, "that is no alias");
}
