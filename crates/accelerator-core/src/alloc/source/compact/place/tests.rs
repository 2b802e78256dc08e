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

const REQUEST: Request = Request { requested: 10 * MIB, size: 10 * MIB, pool: PoolKind::Large };

/// Adds free memory that this owner has just finished with.
fn add_free(compact: &mut Compact, mib: u64, owner: Owner) -> Place {
    let free = compact.add_free(mib * MIB, owner);
    let Block { segment, position, .. } = compact.store.blocks[free];
    Place { segment, position }
}

/// Where the same request of the first owner goes that had these places before: the position, and whether it is in one
/// free block of its own.
fn target_after(compact: &mut Compact, places: [Place; 6], has_polled: bool) -> Option<(u64, bool)> {
    let log = &mut compact.owners[0].log;
    places.into_iter().for_each(|place| log.note(REQUEST.size, log.precedent(REQUEST.size), place));
    let precedent = log.precedent(REQUEST.size);
    Some(match compact.target_for(&REQUEST, 0, precedent, has_polled)? {
        Target::In(free, offset) => (compact.store.blocks[free].position + offset, true),
        Target::At(position) => (position, false),
    })
}

#[test]
fn a_request_goes_to_its_last_place_if_it_can_use_that_now() {
    let mut compact = Compact::with_owners(2);
    let (best, own, other) =
        (add_free(&mut compact, 10, 0), add_free(&mut compact, 20, 0), add_free(&mut compact, 20, 1));
    for has_polled in [false, true] {
        assert_eq!(target_after(&mut compact, [own; 6], has_polled), Some((own.position, true)));
        let expected = has_polled.then_some((best.position, true));
        assert_eq!(target_after(&mut compact, [other; 6], has_polled), expected, "the other stream may still use it");
    }
    let epoch = compact.owners[1].epoch;
    compact.owners.epoch_over(1, epoch);
    for has_polled in [false, true] {
        assert_eq!(target_after(&mut compact, [other; 6], has_polled), Some((other.position, false)));
    }
}

#[test]
fn a_request_whose_last_place_is_in_use_goes_to_the_one_before() {
    let mut compact = Compact::with_owners(1);
    let (best, first, last) =
        (add_free(&mut compact, 10, 0), add_free(&mut compact, 20, 0), add_free(&mut compact, 20, 0));
    compact.store.claim(last.position, MIB, 0);
    let places = [first, first, first, first, first, last];
    assert_eq!(target_after(&mut compact, places, false), Some((first.position, false)));
    compact.store.claim(first.position, MIB, 0);
    assert_eq!(target_after(&mut compact, places, false), Some((best.position, true)));
}
