use super::*;
use crate::alloc::blocks::Id;
use crate::types::{DevicePtr, MIB};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Address(u64);

impl DevicePtr for Address {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    fn trace_address(self) -> u64 {
        self.0
    }
}

fn mib(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count * MIB).unwrap()
}

/// Two segments. In the first, 0 to 8 and 10 to 12 MiB are mapped; in the second, 12 to 14 MiB are mapped, and 14 to 18
/// MiB are asleep.
fn mappings() -> (Mappings, [SegmentId; 2]) {
    let mut all = Mappings::default();
    let segments @ [first, second] = [0, 1].map(SegmentId::at);
    for (segment, address) in [(first, 1 << 30), (second, 2 << 30)] {
        all.keep(segment, (Base::new(Address(address)), mib(100)), mib(2));
    }
    for (segment, offset, len) in [(first, 0, 2), (first, 2, 6), (first, 10, 2), (second, 12, 2)] {
        all.chunks.insert((segment, offset * MIB), Pages::new(0, mib(len)));
    }
    all.asleep.insert((second, 14 * MIB), mib(4));
    (all, segments)
}

#[test]
fn runs_of_pages_end_where_a_page_is_missing_or_another_segment_begins() {
    let (all, _) = mappings();
    let runs = all.page_runs().into_iter().map(|(base, offset, len)| (base.address() >> 30, offset / MIB, len / MIB));
    assert_eq!(runs.collect::<Vec<_>>(), [(1, 0, 8), (1, 10, 2), (2, 12, 6)]);
    assert_eq!(all.asleep(), 4 * MIB);
}

#[test]
fn bytes_are_in_the_chunks_that_they_touch_and_no_others() {
    let (all, [first, second]) = mappings();
    for (segment, bytes, chunks, offset) in [
        (first, 0..1, &[0][..], 0),
        (first, 0..2, &[0], 0),
        (first, 1..3, &[0, 2], 1),
        (first, 2..8, &[2], 0),
        (first, 5..11, &[2, 10], 3),
        (second, 13..14, &[12], 1),
    ] {
        let (found, from) = all.chunks_of(segment, bytes.start * MIB..bytes.end * MIB);
        let expected: Vec<_> = chunks.iter().map(|chunk| (segment, chunk * MIB)).collect();
        assert_eq!((found, from), (expected, offset * MIB), "{bytes:?}");
    }
}
