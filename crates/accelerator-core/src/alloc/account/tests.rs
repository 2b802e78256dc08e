use super::*;
use crate::alloc::amounts::Quantity;

const BLOCK: Counted =
    Counted { pool: PoolKind::Large, bytes: 4096, requested: 4000, oversize: true, split: Pair([1, 512]) };
/// What one such block adds.
const OF_BLOCK: Amounts = Amounts([1, 4096, 1, 4096, 4000, 1, 512, 1]);

/// Room for exactly this in the large pool, and in both together.
fn account(pool: Amounts, all: Amounts) -> Account {
    let mut account = Account::default();
    account.set_room(Share { pools: [Amounts([1 << 40; 8]), pool], all });
    account
}

#[test]
fn what_just_fits_is_counted() {
    let mut account = account(OF_BLOCK, OF_BLOCK);
    assert!(account.given_out(BLOCK).is_ok());
    assert_eq!(account.current(PoolKind::Large), OF_BLOCK);
    assert_eq!(account.added(PoolKind::Large), Amounts([1, 4096, 1, 4096, 4000, 1, 512, 1]));
    assert_eq!(account.current(PoolKind::Small), Amounts::default());
    assert_eq!(account.added(PoolKind::Small), Amounts::default());
}

#[test]
fn what_lacks_one_of_anything_is_refused_and_changes_nothing() {
    for quantity in 0..8 {
        let mut less = OF_BLOCK;
        less.0[quantity] -= 1;
        for mut account in [account(less, OF_BLOCK), account(OF_BLOCK, less)] {
            let before = format!("{account:?}");
            assert!(account.given_out(BLOCK).is_err(), "room for all but {quantity}");
            assert_eq!(format!("{account:?}"), before);
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
            let mut account = account(pool, all);
            account.given_out(BLOCK).unwrap();
            let before = format!("{account:?}");
            assert!(account.freed(BLOCK).is_err());
            assert_eq!(format!("{account:?}"), before);
            account.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
            let before = format!("{account:?}");
            assert!(account.pending_over(BLOCK).is_err());
            assert_eq!(format!("{account:?}"), before);
        }
    }
}

#[test]
fn peaks_are_moved_by_what_is_over_them() {
    let twice = OF_BLOCK + OF_BLOCK;
    let mut account = account(Amounts::default(), OF_BLOCK);
    for there in [OF_BLOCK, twice] {
        let bounds = account.lift_bounds();
        account.given_out(BLOCK).unwrap();
        account.set_bounds(bounds);
        assert_eq!((account.current(PoolKind::Large), account.bound(PoolKind::Large)), (there, there));
        assert_eq!(account.room().all, Amounts::default());
    }
    let bounds = account.lift_bounds();
    account.freed(BLOCK).unwrap();
    account.set_bounds(bounds);
    // More is split, and nothing else is more than it was.
    let peak = Amounts([2, 8192, 2, 8192, 8000, 3, 1536, 2]);
    assert_eq!(account.bound(PoolKind::Large), peak);
    assert_eq!(account.room().all, Amounts([1, 4096, 1, 4096, 4000, 0, 0, 1]));
}

#[test]
fn who_has_nothing_rests_when_it_is_asked_a_second_time() {
    let mut account = account(OF_BLOCK, OF_BLOCK);
    assert!(account.rests());
    account.given_out(BLOCK).unwrap();
    assert!(!account.rests() && !account.rests(), "it has something");
    let back = Counted { split: Pair([-1, -512]), ..BLOCK };
    account.freed(back).unwrap();
    assert!(account.rests());
    account.given_out(BLOCK).unwrap();
    account.freed(back).unwrap();
    assert!(!account.rests(), "it has been used since");
    assert!(account.rests());
}

#[test]
fn a_pending_block_makes_room_where_more_may_be_active_than_allocated() {
    let of_two = Amounts([1, 4096, 2, 8192, 8000, 2, 1024, 1]);
    let mut account = account(of_two, of_two);
    account.given_out(BLOCK).unwrap();
    assert!(account.given_out(BLOCK).is_err());
    account.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
    account.given_out(BLOCK).unwrap();
    assert_eq!(account.current(PoolKind::Large), of_two);
}

#[test]
fn what_is_freed_may_be_given_out_again() {
    let mut account = account(OF_BLOCK, OF_BLOCK);
    let back = Counted { split: Pair([-1, -512]), ..BLOCK };
    for _ in 0..3 {
        account.given_out(BLOCK).unwrap();
        assert!(account.given_out(BLOCK).is_err());
        account.freed(back).unwrap();
        assert_eq!(account.current(PoolKind::Large), Amounts::default());
        account.given_out(BLOCK).unwrap();
        account.pending_begun(back.pool, back.bytes, back.oversize);
        let pending = Amounts([0, 0, 1, 4096, 4000, 1, 512, 0]);
        assert_eq!(account.current(PoolKind::Large), pending);
        // It may be allocated again, but is active still.
        assert!(account.given_out(BLOCK).is_err());
        account.pending_over(back).unwrap();
        assert_eq!(account.current(PoolKind::Large), Amounts::default());
    }
    assert_eq!(account.added(PoolKind::Large), Amounts(OF_BLOCK.0.map(|amount| 6 * amount)));
}
