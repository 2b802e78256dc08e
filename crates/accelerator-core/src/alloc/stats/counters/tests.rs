use super::*;

const BLOCK: Counted =
    Counted { pool: PoolKind::Large, bytes: 4096, requested: 4000, oversize: true, split: Pair([1, 512]) };
/// The amounts that one such block adds.
const OF_BLOCK: Amounts = amounts([1, 4096, 1, 4096, 4000, 1, 1, 512]);

/// Takes, in this order: allocated blocks and bytes, active blocks and bytes, requested bytes and oversize blocks,
/// split blocks and bytes.
const fn amounts([a, a_bytes, b, b_bytes, requested, oversize, c, c_bytes]: [i64; 8]) -> Amounts {
    let (allocated, active) = (Pair([a, a_bytes]), Pair([b, b_bytes]));
    Amounts { allocated, active, requested: Pair([requested, oversize]), split: Pair([c, c_bytes]) }
}

/// Returns the amounts with one quantity, given by number, reduced by 1.
fn without_one(amounts: Amounts, quantity: usize) -> Amounts {
    let mut less = amounts;
    let Amounts { allocated, active, requested, split } = &mut less;
    [allocated, active, requested, split][quantity / 2].0[quantity % 2] -= 1;
    less
}

/// Creates counters with exactly this headroom in the large pool and in both pools together.
fn counters(pool: Amounts, all: Amounts) -> StreamCounters {
    let mut counters = StreamCounters::default();
    counters.set_headroom(PoolAmounts { small: amounts([1 << 40; 8]), large: pool, all });
    counters
}

#[test]
fn an_exact_fit_is_counted() {
    let mut counters = counters(OF_BLOCK, OF_BLOCK);
    assert!(counters.given_out(BLOCK).is_ok());
    assert_eq!(counters.current().large, OF_BLOCK);
    assert_eq!(counters.added().large, amounts([1, 4096, 1, 4096, 4000, 1, 1, 512]));
    assert_eq!(counters.current().small, Amounts::default());
    assert_eq!(counters.added().small, Amounts::default());
}

#[test]
fn any_lack_of_headroom_is_refused_and_changes_nothing() {
    for quantity in 0..8 {
        let less = without_one(OF_BLOCK, quantity);
        for mut counters in [counters(less, OF_BLOCK), counters(OF_BLOCK, less)] {
            let before = format!("{counters:?}");
            assert!(counters.given_out(BLOCK).is_err(), "headroom for all but {quantity}");
            assert_eq!(format!("{counters:?}"), before);
        }
    }
}

#[test]
fn a_free_without_headroom_for_its_split_is_refused_and_changes_nothing() {
    let enough = OF_BLOCK + OF_BLOCK;
    for split in [6, 7] {
        let less = without_one(enough, split);
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
fn additions_beyond_the_headroom_move_the_peaks() {
    let twice = OF_BLOCK + OF_BLOCK;
    let mut counters = counters(Amounts::default(), OF_BLOCK);
    for there in [OF_BLOCK, twice] {
        counters.lift_bounds();
        counters.given_out(BLOCK).unwrap();
        counters.restore_bounds();
        assert_eq!((counters.current().large, counters.bound().large), (there, there));
        assert_eq!(counters.headroom().all, Amounts::default());
    }
    counters.lift_bounds();
    counters.freed(BLOCK).unwrap();
    counters.restore_bounds();
    // More memory is split; no other peak moves.
    let peak = amounts([2, 8192, 2, 8192, 8000, 2, 3, 1536]);
    assert_eq!(counters.bound().large, peak);
    assert_eq!(counters.headroom().all, amounts([1, 4096, 1, 4096, 4000, 1, 0, 0]));
}

#[test]
fn empty_counters_become_idle_at_the_second_check() {
    let mut counters = counters(OF_BLOCK, OF_BLOCK);
    assert!(counters.has_become_idle());
    counters.given_out(BLOCK).unwrap();
    assert!(!counters.has_become_idle() && !counters.has_become_idle(), "a block is allocated");
    let back = Counted { split: Pair([-1, -512]), ..BLOCK };
    counters.freed(back).unwrap();
    assert!(counters.has_become_idle());
    counters.given_out(BLOCK).unwrap();
    counters.freed(back).unwrap();
    assert!(!counters.has_become_idle(), "a block was given out since");
    assert!(counters.has_become_idle());
}

#[test]
fn a_pending_block_makes_room_where_more_may_be_active_than_allocated() {
    let of_two = amounts([1, 4096, 2, 8192, 8000, 1, 2, 1024]);
    let mut counters = counters(of_two, of_two);
    counters.given_out(BLOCK).unwrap();
    assert!(counters.given_out(BLOCK).is_err());
    counters.pending_begun(BLOCK.pool, BLOCK.bytes, BLOCK.oversize);
    counters.given_out(BLOCK).unwrap();
    assert_eq!(counters.current().large, of_two);
}

#[test]
fn a_pending_block_too_large_for_a_word_returns_its_headroom() {
    let bytes = 3 * Packed::MOST.0[1] as u64 + Packed::HUGE; // more than a word has room for
    let huge = Counted { bytes, requested: bytes, split: Pair::default(), ..BLOCK };
    let mut counters = StreamCounters { is_alone: true, ..StreamCounters::default() };
    counters.given_out(huge).unwrap();
    counters.pending_begun(huge.pool, huge.bytes, huge.oversize);
    counters.pending_over(huge).unwrap();
    assert_eq!(counters.current().large, Amounts::default());
    assert_eq!((counters.headroom().large, counters.headroom().all), (huge.amounts(), huge.amounts()));
}

/// The bytes of such a block would be taken from the number of blocks in the word.
#[test]
fn a_block_too_large_for_a_word_is_counted_as_it_is_or_refused() {
    let bytes = 1 << 50;
    for split in [Pair::default(), Pair::new(1, bytes as i64)] {
        let huge = Counted { bytes, requested: bytes, split, ..BLOCK };
        let lacking = amounts([9, 0, 9, 0, bytes as i64, 9, 9, 0]);
        assert!(counters(lacking, lacking).given_out(huge).is_err());
        for state in [(true, false), (false, true), (true, true)] {
            let (is_alone, is_boundless) = state;
            let mut counters = StreamCounters { is_alone, is_boundless, ..counters(lacking, lacking) };
            counters.given_out(huge).unwrap();
            assert_eq!(counters.current().large, huge.amounts(), "{state:?}");
        }
    }
}

#[test]
fn freed_blocks_return_their_headroom() {
    let mut counters = counters(OF_BLOCK, OF_BLOCK);
    let back = Counted { split: Pair([-1, -512]), ..BLOCK };
    for _ in 0..3 {
        counters.given_out(BLOCK).unwrap();
        assert!(counters.given_out(BLOCK).is_err());
        counters.freed(back).unwrap();
        assert_eq!(counters.current().large, Amounts::default());
        counters.given_out(BLOCK).unwrap();
        counters.pending_begun(back.pool, back.bytes, back.oversize);
        let pending = amounts([0, 0, 1, 4096, 4000, 0, 1, 512]);
        assert_eq!(counters.current().large, pending);
        // The block may be allocated again, but is still active.
        assert!(counters.given_out(BLOCK).is_err());
        counters.pending_over(back).unwrap();
        assert_eq!(counters.current().large, Amounts::default());
    }
    assert_eq!(counters.added().large, amounts([6, 6 * 4096, 6, 6 * 4096, 6 * 4000, 6, 6, 6 * 512]));
}
