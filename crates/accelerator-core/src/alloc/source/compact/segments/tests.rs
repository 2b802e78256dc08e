use super::super::plan::Abilities;
use super::*;
use crate::alloc::blocks::Base;

fn compact() -> Compact {
    Compact::with_owners(1)
}

fn request(size: u64) -> Request {
    Request { requested: size, size, pool: PoolKind::Large }
}

/// Adds a free segment. Returns its block.
fn add(compact: &mut Compact, mib: u64, kind: SegmentKind) -> BlockId {
    compact.add_segment(0, Segment::new(Base::unused(), mib * MIB, 0, PoolKind::Large, None), kind);
    compact.store.blocks.segments().last().and_then(|(_, segment)| segment.first).unwrap()
}

#[test]
fn only_while_room_is_tight_small_and_large_requests_have_segments_of_different_kinds() {
    let mut compact = compact();
    let kinds = |compact: &Compact| [1, MIB, MIB + 512, 64 * MIB].map(|size| compact.kind_for(&request(size)));
    assert_eq!(kinds(&compact), [SegmentKind::Any; 4]);
    compact.separates = true;
    let (shared, separate) = (SegmentKind::Shared, SegmentKind::Separate);
    assert_eq!(kinds(&compact), [shared, shared, separate, separate]);
}

#[test]
fn while_room_is_tight_a_free_block_serves_small_requests_or_one_large_one_that_fits_well() {
    let mut compact = compact();
    let kinds = [SegmentKind::Any, SegmentKind::Shared, SegmentKind::Separate];
    let blocks = kinds.map(|kind| add(&mut compact, 64, kind));
    let starts = blocks.map(|block| compact.store.blocks[block].position);
    for (mib, expected) in [
        (1, [true, true, false]),
        (2, [false, false, false]),
        (62, [false, false, false]), // it would leave over more than a 32nd of its size
        (63, [true, false, true]),
        (64, [true, false, true]),
    ] {
        compact.separates = true;
        let serves = starts.map(|start| compact.may_serve_at(start, 64 * MIB, mib * MIB));
        assert_eq!(serves, expected, "{mib} MiB");
        compact.separates = false;
        assert_eq!(starts.map(|start| compact.may_serve_at(start, 64 * MIB, mib * MIB)), [true; 3]);
    }
}

#[test]
fn a_segment_is_made_for_later_requests_too_unless_memory_is_short() {
    let size = |compact: &Compact, mib: u64, effort, largest| {
        let request = request(mib * MIB);
        let miss = Miss { request: &request, owner: 0, driver: Abilities::Segments { largest }, effort };
        let bytes = compact.segment_size(miss, &compact.costs, largest);
        assert_eq!(bytes % MIB, 0, "{mib} MiB");
        bytes / MIB
    };
    let (mut compact, all) = (compact(), u64::MAX);
    assert_eq!([1, 16, 17].map(|mib| size(&compact, mib, Effort::LongRun, all)), [16, 16, 18]);
    assert_eq!([1, 16, 17].map(|mib| size(&compact, mib, Effort::Exact, all)), [2, 16, 18]);
    assert_eq!([1, 9].map(|mib| size(&compact, mib, Effort::LongRun, 9 * MIB)), [8, 9]);
    compact.separates = true;
    assert_eq!([1, 3, 17].map(|mib| size(&compact, mib, Effort::LongRun, all)), [2, 3, 17]);
    compact.costs.room = 10_000 * MIB;
    assert_eq!([1, 3, 17].map(|mib| size(&compact, mib, Effort::LongRun, all)), [2, 10, 17]);
    assert_eq!([1, 3, 17].map(|mib| size(&compact, mib, Effort::Exact, all)), [2, 3, 17]);
    assert_eq!(size(&compact, 3, Effort::LongRun, 5 * MIB + 5), 5);
    add(&mut compact, 100, SegmentKind::Shared);
    add(&mut compact, 100, SegmentKind::Separate);
    assert_eq!(size(&compact, 1, Effort::LongRun, all), 20, "a fifth of what small requests have");
}

#[test]
fn the_fewest_idle_segments_go_back_that_keep_the_rest_close_to_the_peak() {
    let mut compact = compact();
    compact.costs.count(200 * MIB); // the peak, beyond which a twentieth is acceptable
    compact.costs.requested = 0;
    let blocks = [60, 20, 40, 90].map(|mib| add(&mut compact, mib, SegmentKind::Any));
    let starts = blocks.map(|block| compact.store.blocks[block].position);
    let used = compact.store.claim(starts[3], MIB, 0);
    assert_eq!((compact.idle().count(), compact.costs.reserved), (3, 210 * MIB));
    let leaving = |mib| {
        let (costs, request) = (compact.costs, request(mib * MIB));
        let plan = |effort| {
            let miss = Miss { request: &request, owner: 0, driver: Abilities::Segments { largest: 100 * MIB }, effort };
            match compact.plan_segments(miss, &costs, 100 * MIB) {
                Plan::Exchange(leaving) => leaving,
                Plan::Grow(_) => Vec::new(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(plan(Effort::Exact), []);
        plan(Effort::LongRun)
    };
    assert_eq!(leaving(2), [starts[1]]);
    assert_eq!(leaving(20), [starts[1]]);
    assert_eq!(leaving(21), [starts[2]]);
    assert_eq!(leaving(61), [starts[0], starts[1]]);
    assert_eq!(leaving(101), [], "it is more than the driver gives at once");
    assert_eq!(compact.store.blocks[used].size, MIB);
    let gone = compact.detach_idle(|segment| segment.position == starts[1] || segment.position == starts[3]);
    assert_eq!((gone.len(), gone[0].size, compact.costs.reserved), (1, 20 * MIB, 190 * MIB));
    assert_eq!(compact.idle().count(), 2);
}
