use super::*;
use crate::alloc::arena::ArenaId;
use crate::types::{MIB, StreamId};

/// Returns whether a request of 24 MiB, for which so many MiB would be made, waits for other streams, although that
/// makes no memory available: 24 MiB would have to be made all the same.
fn waits(made: u64, streams: u32, effort: Effort) -> bool {
    let mut compact = Compact::new(ArenaId::SHARED);
    (0..streams).for_each(|stream| assert!(compact.owners.number_or_new(StreamId(stream)).is_some()));
    compact.costs.count(5000 * MIB);
    (compact.costs.requested, compact.costs.reserved) = (0, 5100 * MIB);
    let request = Request { requested: 24 * MIB, size: 24 * MIB, pool: PoolKind::Large };
    let driver = Abilities::Chunks { granularity: 2 * MIB, maps_twice: false, waits: true };
    let miss = Miss { request: &request, owner: 0, driver, effort };
    let waits = compact.is_worth_waiting(&Plan::Grow(vec![made * MIB]), miss);
    assert_eq!(compact.owners.assumed, None);
    waits
}

#[test]
fn a_stream_waits_for_others_if_that_saves_enough_new_memory() {
    // In the long run, it must save 7 MiB, which is a share of the peak.
    for (effort, too_little) in [(Effort::LongRun, 24 + 7), (Effort::Exact, 24), (Effort::Utmost, 24)] {
        assert!(!waits(too_little, 2, effort) && waits(too_little + 1, 2, effort), "{effort:?}");
        assert!(!waits(too_little + 1, 1, effort), "there is nobody to wait for");
    }
}
