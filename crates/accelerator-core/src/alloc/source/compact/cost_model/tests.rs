use super::*;

const COSTS: CostModel = CostModel { reserved: 0, requested: 0, peak: 0, room: u64::MAX, growths: 0, rearranged: 0 };
const PAGE: u64 = 2 * MIB;

#[test]
fn chunks_have_the_requested_total_and_none_is_too_long() {
    for reserved in [0, 1 << 30, 50 << 30] {
        let costs = CostModel { reserved, ..COSTS };
        for pages in (1..2000).step_by(7) {
            for size in [1, LARGE - 1, LARGE, 4096 * MIB] {
                let chunks = costs.chunks(pages * PAGE, size, PAGE);
                assert_eq!(chunks.iter().sum::<u64>(), pages * PAGE);
                assert!(chunks.iter().all(|len| *len > 0 && len.is_multiple_of(PAGE)), "{chunks:?}");
                let longest = (20 * MIB).max(reserved / 2000 * 21) + PAGE;
                assert!(chunks.iter().all(|len| *len <= longest), "{chunks:?}");
                if size >= LARGE && pages > 3 {
                    assert_eq!(chunks.last(), Some(&PAGE));
                }
            }
        }
    }
}

#[test]
fn a_call_is_worth_more_where_much_is_reserved_and_less_while_the_peak_rises() {
    let peak = 1000 * MIB;
    let at = |reserved, requested| CostModel { reserved, requested, peak, ..COSTS };
    let least_worth = |costs: CostModel| {
        (0..).find(|tenths: &u64| costs.is_worth(1, (tenths * peak).div_ceil(10_000) as i64, 40 * MIB)).unwrap()
    };
    let (little, much, too_much) = (970 * MIB, 982 * MIB, 1000 * MIB);
    assert_eq!(least_worth(at(little, peak / 2)), 18);
    assert_eq!(least_worth(at(little, peak)), 70);
    assert_eq!(least_worth(at(much, peak / 2)), 9);
    assert_eq!(least_worth(at(much, peak)), 18);
    assert_eq!(least_worth(at(too_much, peak)), 1);
    assert!(at(little, peak).is_worth(0, 0, 40 * MIB));
    assert!(!at(little, peak).is_worth(-1, -1, 40 * MIB));
    let many = |reserved| CostModel { rearranged: 320, growths: 0, ..at(reserved, peak / 2) };
    assert!(least_worth(many(little)) > 10_000);
    assert_eq!(least_worth(many(too_much)), 1);
}

#[test]
fn chunks_get_shorter_when_the_device_has_little_room_left() {
    let with = |room| CostModel { room, reserved: 2000 * MIB, ..COSTS };
    let longest = |room| with(room).chunks(200 * MIB, LARGE, PAGE).into_iter().max();
    assert_eq!(longest(u64::MAX), Some(20 * MIB));
    assert_eq!(longest(42_000 * MIB), Some(20 * MIB));
    assert_eq!(longest(15_999 * MIB), Some(6 * MIB));
    assert_eq!(longest(0), Some(PAGE));
    assert!(!with(42_000 * MIB).has_short_chunks() && with(41_000 * MIB).has_short_chunks());
}

#[test]
fn large_requests_have_segments_of_their_own_when_the_device_has_little_room_left() {
    let with = |room| CostModel { room, reserved: 2000 * MIB, ..COSTS };
    assert!(!with(u64::MAX).has_short_segments() && with(19_000 * MIB).has_short_segments());
    assert_eq!(with(10_000 * MIB).separate_segment(2 * MIB), 10 * MIB);
    assert_eq!(with(0).separate_segment(2 * MIB + 1), 2 * MIB + 2 * MIB / 128);
    assert!(with(0).is_little_left_over(64 * MIB, 2 * MIB) && !with(0).is_little_left_over(64 * MIB, 3 * MIB));
    assert!(with(2048 * MIB).is_little_left_over(64 * MIB, 4 * MIB));
}

#[test]
fn memory_grows_by_a_share_of_the_reserved_and_little_beyond_the_peak() {
    let length = |reserved, peak, size| {
        let costs = CostModel { reserved, peak, ..COSTS };
        costs.length(PAGE, size, PoolKind::Large, 0, PAGE)
    };
    assert_eq!(length(0, MIB, MIB), 20 * MIB);
    assert_eq!(length(2000 * MIB, 10_000 * MIB, MIB), 60 * MIB);
    assert_eq!(length(2000 * MIB, 2000 * MIB, MIB), 50 * MIB);
    assert_eq!(length(2000 * MIB, 1970 * MIB, MIB), 20 * MIB);
    assert_eq!(length(2000 * MIB, 1900 * MIB, MIB), 6 * MIB);
    assert_eq!(length(2000 * MIB, 2000 * MIB, LARGE), PAGE);
    let small = |owned| COSTS.length(PAGE, 512, PoolKind::Small, owned, PAGE);
    assert_eq!([0, 20 * MIB].map(small), [2 * MIB, 4 * MIB]);
}

#[test]
fn a_share_of_the_peak_or_16_mib_is_little_and_the_next_byte_is_not() {
    // A share of 1000 MiB is less than 16 MiB; the shares of 10,000 MiB are more.
    for (peak, little, much) in [(1000 * MIB, 16 * MIB, 20 * MIB), (10_000 * MIB, 100 * MIB, 200 * MIB)] {
        let costs = CostModel { reserved: peak - MIB, peak, ..COSTS };
        assert!(costs.is_little(little + MIB) && !costs.is_little(little + MIB + 1));
        assert!(!costs.is_much(much + MIB) && costs.is_much(much + MIB + 1));
        let excess = |pool, more| costs.excess(pool, peak / 20 + MIB + more);
        let of_large = [0, 1, MIB].map(|more| excess(PoolKind::Large, more));
        assert_eq!(of_large, [None, Some(1), Some(MIB)]);
        assert_eq!(excess(PoolKind::Small, MIB), None);
    }
}

#[test]
fn chunks_and_segments_are_short_only_where_the_share_of_the_room_is_less_than_usual() {
    let with = |room| CostModel { room, ..COSTS };
    let (chunks, segments) = (40_000 * MIB, 16_000 * MIB); // shares of 20 and of 16 MiB
    assert!(!with(chunks).has_short_chunks() && with(chunks - 1).has_short_chunks());
    assert!(!with(segments).has_short_segments() && with(segments - 1).has_short_segments());
}

#[test]
fn idle_segments_go_back_if_each_of_them_saves_its_share_of_the_peak() {
    let peak = 1000 * MIB;
    let most = |requested, bytes, more| {
        let costs = CostModel { reserved: peak, requested, peak, ..COSTS };
        (1..100).filter(|segments| costs.is_worth_giving_back(*segments, bytes, more)).collect::<Vec<_>>()
    };
    assert_eq!(most(peak / 2, 11 * MIB, 50 * MIB), [1, 2, 3, 4, 5], "2 MiB each");
    assert_eq!(most(peak, 11 * MIB, 50 * MIB), [1, 2], "5 MiB each while the peak rises");
    assert_eq!(most(peak / 2, 50 * MIB, 7 * MIB), [1, 2, 3], "only 7 MiB would be beyond the peak");
    assert_eq!(most(peak / 2, MIB, 50 * MIB), [0; 0]);
    let after_many = CostModel { reserved: peak, peak, rearranged: 32, ..COSTS };
    let is_worth = |segments| after_many.is_worth_giving_back(segments, 11 * MIB, 50 * MIB);
    assert!(is_worth(2) && !is_worth(3), "4 MiB each after many aliases");
}

#[test]
fn where_memory_is_too_much_a_call_must_save_a_ten_thousandth_of_the_peak() {
    let costs = CostModel { reserved: 1000 * MIB, peak: 1000 * MIB, ..COSTS };
    assert!(costs.is_worth(1, 104_858, 40 * MIB) && !costs.is_worth(1, 104_857, 40 * MIB));
}

#[test]
fn a_wait_is_worthwhile_in_the_long_run_only_where_memory_is_expensive() {
    let which = |reserved, effort| {
        let costs = CostModel { reserved, peak: 1000 * MIB, ..COSTS };
        [0, 20 * MIB, 20 * MIB + 1].map(|more| costs.is_worth_waiting(more, effort))
    };
    assert_eq!(which(1000 * MIB, Effort::LongRun), [false, false, true]);
    assert_eq!(which(1100 * MIB, Effort::LongRun), [false, true, true]);
    for effort in [Effort::Exact, Effort::Utmost] {
        assert_eq!(which(1000 * MIB, effort), [false, true, true]);
    }
}

#[test]
fn calls_to_map_are_as_many_as_chunks_of_the_usual_length() {
    let calls = |reserved, mib| CostModel { reserved, ..COSTS }.calls_to_map(mib * MIB);
    assert_eq!([1, 20, 21, 100].map(|mib| calls(0, mib)), [1, 1, 2, 5]);
    assert_eq!([42, 43].map(|mib| calls(4000 * MIB, mib)), [1, 2]);
}

#[test]
fn past_rearrangements_raise_the_price_with_the_fourth_power_of_their_number_per_growth() {
    let rarity = |rearranged, growths| CostModel { rearranged, growths, ..COSTS }.rarity();
    for (rearranged, growths, expected) in [(0, 0, 1.0), (32, 0, 2.0), (64, 0, 17.0), (44, 10, 2.0), (88, 10, 17.0)] {
        let found = rarity(rearranged, growths);
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }
}

#[test]
fn a_large_request_has_a_separate_last_chunk_only_if_it_is_longer_than_three_pages() {
    assert_eq!(COSTS.chunks(3 * PAGE, LARGE, PAGE), [3 * PAGE]);
    assert_eq!(COSTS.chunks(4 * PAGE, LARGE, PAGE), [3 * PAGE, PAGE]);
    assert_eq!(COSTS.chunks(4 * PAGE, LARGE - 1, PAGE), [4 * PAGE]);
}
