use super::*;
use crate::alloc::blocks::{Base, Segment};
use crate::alloc::source::compact::owners::Owners;
use crate::types::MIB;

const PAGE: u64 = 2 * MIB;

/// Returns the offset in the only free block at which a request is allocated, where this many bytes before that block
/// are in use and its end is at 10 MiB.
fn lead(used: u64, size: u64, within_page: u64) -> u64 {
    let mut compact = Compact::with_owners(1);
    let reserved = Segment::new(Base::unused(), 10 * MIB, 0, PoolKind::Large, None);
    let free = compact.store.blocks.add_segment(reserved, State::Free);
    compact.put_free_since(free, 0, Owners::ALWAYS_OVER);
    let position = compact.store.blocks[free].position;
    assert_eq!(position % PAGE, 0);
    compact.store.claim(position, used, 0);
    compact.within_page = within_page;
    let request = Request { requested: size, size, pool: PoolKind::Large };
    compact.best_fit(&request, 0).map(|(_, lead)| lead).unwrap()
}

#[test]
fn whole_pages_begin_at_the_start_of_a_page_if_that_wastes_little_of_one() {
    let (near, far) = (PAGE - 785_920, PAGE - 786_432); // the limit is just below 3/8 of a page, which is 786,432 bytes
    assert_eq!(lead(near, 2 * PAGE, PAGE - 1), 785_920);
    assert_eq!(lead(far, 2 * PAGE, PAGE - 1), 0);
    assert_eq!(lead(near, 2 * PAGE, 0), 0, "there is enough room");
    assert_eq!(lead(near, 2 * PAGE + 512, PAGE - 1), 0, "these are no whole pages");
    assert_eq!(lead(near, 4 * PAGE, PAGE - 1), 785_920);
    assert_eq!(lead(PAGE, 2 * PAGE, PAGE - 1), 0, "it is the start of a page");
}
