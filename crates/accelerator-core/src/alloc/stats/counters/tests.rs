use super::*;
use crate::alloc::stats::amounts::Quantity;

const BLOCK: Counted =
    Counted { pool: PoolKind::Large, bytes: 4096, requested: 4000, oversize: true, split: Pair([1, 512]) };
/// What one such block adds.
const OF_BLOCK: Amounts = Amounts([1, 4096, 1, 4096, 4000, 1, 512, 1]);

/// Headroom for exactly this in the large pool, and in both together.
fn counters(pool: Amounts, all: Amounts) -> StreamCounters {
    let mut counters = StreamCounters::default();
    counters.set_headroom(HeadroomAmounts { pools: [Amounts([1 << 40; 8]), pool], all });
    counters
}

#[test]
fn what_just_fits_is_counted() {
    let mut counters = counters(OF_BLOCK, OF_BLOCK);
    assert!(counters.given_out(BLOCK).is_ok());
    assert_eq!(counters.current(PoolKind::Large), OF_BLOCK);
    assert_eq!(counters.added(PoolKind::Large), Amounts([1, 4096, 1, 4096, 4000, 1, 512, 1]));
    assert_eq!(counters.current(PoolKind::Small), Amounts::default());
    assert_eq!(counters.added(PoolKind::Small), Amounts::default());
}

#[test]
fn what_lacks_one_of_anything_is_refused_and_changes_nothing() {
    for quantity in 0..8 {
        let mut less = OF_BLOCK;
        less.0[quantity] -= 1;
        for mut counters in [counters(less, OF_BLOCK), counters(OF_BLOCK, less)] {
            let before = format!("{counters:?}");
            assert!(counters.given_out(BLOCK).is_err(), "headroom for all but {quantity}");
            assert_eq!(format!("{counters:?}"), before);
        }
    }
}

#[test]
fn a_free_that_splits_more_than_may_be_is_refused_and_changes_nothing() {
    let enough = OF_BLOCK + OF_BLOCK;
    for quantity in [Quantity::Split, Quantity::SplitBytes] {
        let mut less = enough;
        less.0[quantity as usize] -= 1;
        for (pool, all) in [(less, enough), (enough, less)] {
            let mut counters = counters(pool, all);
            counters.given_out(BLOCK).unwrap();
            let before = format!("{counters:?}");
            assert!(counters.freed(BLOCK).is_err());
            assert_eq!(format!("{counters:?}"), before);
            counters.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
            let before = format!("{counters:?}");
            assert!(counters.pending_over(BLOCK).is_err());
            assert_eq!(format!("{counters:?}"), before);
        }
    }
}

#[test]
fn peaks_are_moved_by_what_is_over_them() {
    let twice = OF_BLOCK + OF_BLOCK;
    let mut counters = counters(Amounts::default(), OF_BLOCK);
    for there in [OF_BLOCK, twice] {
        let bounds = counters.lift_bounds();
        counters.given_out(BLOCK).unwrap();
        counters.set_bounds(bounds);
        assert_eq!((counters.current(PoolKind::Large), counters.bound(PoolKind::Large)), (there, there));
        assert_eq!(counters.headroom().all, Amounts::default());
    }
    let bounds = counters.lift_bounds();
    counters.freed(BLOCK).unwrap();
    counters.set_bounds(bounds);
    // More is split, and nothing else is more than it was.
    let peak = Amounts([2, 8192, 2, 8192, 8000, 3, 1536, 2]);
    assert_eq!(counters.bound(PoolKind::Large), peak);
    assert_eq!(counters.headroom().all, Amounts([1, 4096, 1, 4096, 4000, 0, 0, 1]));
}

#[test]
fn who_has_nothing_rests_when_it_is_asked_a_second_time() {
    let mut counters = counters(OF_BLOCK, OF_BLOCK);
    assert!(counters.has_become_idle());
    counters.given_out(BLOCK).unwrap();
    assert!(!counters.has_become_idle() && !counters.has_become_idle(), "it has something");
    let back = Counted { split: Pair([-1, -512]), ..BLOCK };
    counters.freed(back).unwrap();
    assert!(counters.has_become_idle());
    counters.given_out(BLOCK).unwrap();
    counters.freed(back).unwrap();
    assert!(!counters.has_become_idle(), "it has been used since");
    assert!(counters.has_become_idle());
}

#[test]
fn a_pending_block_makes_room_where_more_may_be_active_than_allocated() {
    let of_two = Amounts([1, 4096, 2, 8192, 8000, 2, 1024, 1]);
    let mut counters = counters(of_two, of_two);
    counters.given_out(BLOCK).unwrap();
    assert!(counters.given_out(BLOCK).is_err());
    counters.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
    counters.given_out(BLOCK).unwrap();
    assert_eq!(counters.current(PoolKind::Large), of_two);
}

#[test]
fn what_is_freed_may_be_given_out_again() {
    let mut counters = counters(OF_BLOCK, OF_BLOCK);
    let back = Counted { split: Pair([-1, -512]), ..BLOCK };
    for _ in 0..3 {
        counters.given_out(BLOCK).unwrap();
        assert!(counters.given_out(BLOCK).is_err());
        counters.freed(back).unwrap();
        assert_eq!(counters.current(PoolKind::Large), Amounts::default());
        counters.given_out(BLOCK).unwrap();
        counters.pending_begun(back.pool, back.bytes, back.oversize);
        let pending = Amounts([0, 0, 1, 4096, 4000, 1, 512, 0]);
        assert_eq!(counters.current(PoolKind::Large), pending);
        // It may be allocated again, but is active still.
        assert!(counters.given_out(BLOCK).is_err());
        counters.pending_over(back).unwrap();
        assert_eq!(counters.current(PoolKind::Large), Amounts::default());
    }
    assert_eq!(counters.added(PoolKind::Large), Amounts(OF_BLOCK.0.map(|amount| 6 * amount)));
}
