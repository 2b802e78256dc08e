//! External observations: what a call did to the device and to the blocks.

use std::collections::BTreeSet;

use accelerator_conformance::Call;
use accelerator_core::{BlockState, OutOfMemory, OutOfMemoryCause, PoolKind, SegmentSnapshot, Statistics};

use super::machine::{Driver, Machine};
use super::settings::Expected;
use super::streams::Over;
use super::{Entry, Use};

/// The number of driver calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) alloc: u64,
    pub(crate) dealloc: u64,
    pub(crate) record: u64,
    pub(crate) wait: u64,
    pub(crate) wait_host: u64,
    pub(crate) total: u64,
    pub(crate) synchronize: u64,
    /// Calls for virtual memory.
    pub(crate) create: u64,
    pub(crate) map: u64,
    pub(crate) unmap: u64,
    pub(crate) faults: u64,
}

impl<B: Driver> Machine<B> {
    /// Returns the calls so far.
    pub(crate) fn seen(&self) -> Seen {
        let calls = self.accelerator.backend().calls();
        Seen {
            alloc: calls.of(Call::Alloc),
            dealloc: calls.of(Call::Dealloc),
            record: calls.of(Call::Record),
            wait: calls.of(Call::Wait),
            wait_host: calls.of(Call::WaitHost),
            total: calls.total(),
            synchronize: calls.of(Call::Synchronize),
            create: calls.of(Call::Create),
            map: calls.of(Call::Reserve) + calls.of(Call::Map),
            unmap: calls.of(Call::Unmap),
            faults: self.accelerator.backend().faults(),
        }
    }

    /// Returns the calls since `before`.
    pub(crate) fn since(&self, before: Seen) -> Seen {
        let now = self.seen();
        Seen {
            alloc: now.alloc - before.alloc,
            dealloc: now.dealloc - before.dealloc,
            record: now.record - before.record,
            wait: now.wait - before.wait,
            wait_host: now.wait_host - before.wait_host,
            total: now.total - before.total,
            synchronize: now.synchronize - before.synchronize,
            create: now.create - before.create,
            map: now.map - before.map,
            unmap: now.unmap - before.unmap,
            faults: now.faults - before.faults,
        }
    }

    /// Checks that the block is the best fit or starts a new segment, and that it is split according to the rules.
    pub(crate) fn check_place(
        &self,
        entry: &Entry,
        expected: Expected,
        fit: Option<(u64, u64)>,
        fresh: Option<SegmentSnapshot>,
    ) {
        let settings = &self.model.settings;
        match (fit, fresh) {
            (Some((start, whole)), _) => {
                assert_eq!((entry.start, entry.size), (start, settings.cut(expected, whole)), "{entry:?}");
            }
            (None, Some(segment)) => {
                assert_eq!((segment.address, segment.total_size), (entry.start, expected.segment), "{entry:?}");
                assert_eq!(entry.size, settings.cut(expected, segment.total_size), "{entry:?}");
            }
            // A block that became free after a wait. The allocator may choose which one.
            (None, None) => assert!(
                entry.size == expected.rounded || (!expected.small && entry.size > expected.rounded),
                "{entry:?}, {expected:?}"
            ),
        }
    }

    /// Checks an out-of-memory report. `injected`: whether a driver allocation was made to fail.
    pub(crate) fn check_report(&self, report: &OutOfMemory, bytes: u64, expected: Expected, injected: bool) {
        let used = self.accelerator.backend().used();
        let lacks = |limit: u64| used + expected.segment > limit;
        let limit = self.share(self.model.fraction);
        let justified = match report.cause {
            OutOfMemoryCause::Device => lacks(self.capacity) || injected || self.lacks_pages(report, expected),
            OutOfMemoryCause::Limit => self.model.fraction < 1.0 && lacks(limit),
            OutOfMemoryCause::Rejected => {
                self.model.settings.throw_on_oom && lacks(self.share(self.model.settings.memory_fraction))
            }
            OutOfMemoryCause::AddressSpace => injected,
            OutOfMemoryCause::TooLarge | OutOfMemoryCause::AllocationTooLarge { .. } => false,
        };
        assert!(justified, "there was room: {report}");
        let Statistics { allocated_bytes, active_bytes, .. } = &self.model.tally.0;
        let [allocated, active] = [allocated_bytes, active_bytes].map(|stat| stat.all.current as u64);
        assert_eq!((report.requested, report.segment), (bytes, expected.segment));
        assert_eq!((report.allocated, report.pending, report.reserved), (allocated, active - allocated, used));
        if self.accelerator.backend().faults() == 0 {
            assert_eq!((report.total, report.free), (Some(self.capacity), Some(self.capacity - used)));
        }
    }

    /// Removes the pending blocks that the allocator freed from the model, after checking that it was allowed to.
    /// `reuse`: the allocating stream, and its request.
    pub(crate) fn settle_pending(&mut self, seen: &Seen, reuse: Option<(u32, Expected)>) -> BTreeSet<u64> {
        let unmapped = self.waited_to_unmap(seen);
        if unmapped {
            self.model.streams.may_have_waited();
            if reuse.is_some() {
                self.model.may_have_polled(); // after the wait
            }
        }
        let snapshot = self.accelerator.allocator().snapshot();
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let pending: BTreeSet<u64> =
            blocks.filter(|block| block.state == BlockState::PendingFree).map(|block| block.address).collect();
        let gone: Vec<Entry> = self
            .model
            .entries
            .iter()
            .filter(|entry| entry.pending.is_some() && !pending.contains(&entry.start))
            .cloned()
            .collect();
        for entry in &gone {
            let waited_here = seen.wait_host > 0;
            let waited_there = self.model.settings.device_side_reuse
                && seen.wait > 0
                && reuse.is_some_and(|(stream, expected)| self.serves(entry, stream, expected));
            assert!(self.model.may_go(entry) || waited_here || waited_there, "freed while in use: {entry:?}");
            self.model.deactivated(entry.start);
        }
        let uses: Vec<Use> = gone.iter().filter_map(|entry| entry.pending.clone()).flatten().collect();
        let sure = uses.iter().all(|used| self.model.over(used) != Over::Perhaps);
        if self.accelerator.backend().faults() == 0 && !unmapped && sure {
            assert_eq!(
                seen.wait + seen.wait_host,
                uses.len() as u64,
                "the waits do not match the unfinished uses: {gone:?}"
            );
            assert!(seen.wait_host == 0 || pending.is_empty(), "waited for only some streams");
        }
        self.follow_waits(seen, reuse.map(|(stream, _)| stream), &uses);
        gone.into_iter().map(|entry| entry.start).collect()
    }

    /// Records that the uses were waited for: by the stream on the device, by the host, or by either.
    fn follow_waits(&mut self, seen: &Seen, stream: Option<u32>, uses: &[Use]) {
        let failed = seen.faults > 0;
        let sure = !failed && !self.waited_to_unmap(seen) && (seen.wait == 0 || seen.wait_host == 0);
        let model = &mut self.model;
        if let Some(stream) = stream.filter(|_| seen.wait > 0 && B::WAITS) {
            // After a failure, this applies to blocks that are still pending as well.
            let own = model.entries.iter().filter(|entry| failed && entry.stream == stream);
            let pending: Vec<Use> = own.filter_map(|entry| entry.pending.clone()).flatten().collect();
            for used in uses.iter().chain(&pending) {
                // The event of an uncertain use may have been recorded only now.
                let point = if used.sure { used.point } else { model.streams.work(used.point.stream) };
                match sure && used.sure {
                    true => model.streams.wait(stream, point),
                    false => model.streams.may_wait(stream, point),
                }
            }
        }
        if seen.wait_host > 0 && sure {
            uses.iter().filter(|used| used.sure).for_each(|used| model.streams.waited(used.point));
        }
        if seen.wait_host > 0 && !(sure && uses.iter().all(|used| used.sure)) {
            model.streams.may_have_waited();
        }
        if failed && seen.wait + seen.wait_host > 0 {
            model.unsure();
        }
    }

    /// Returns the start and the size of the best fit, found by searching the segments before the call, with the blocks
    /// in `gone` free. Best fit is the smallest block, then the oldest segment, then the lowest address.
    pub(crate) fn best_fit(&self, gone: &BTreeSet<u64>, stream: u32, expected: Expected) -> Option<(u64, u64)> {
        let pool = if expected.small { PoolKind::Small } else { PoolKind::Large };
        let mut free: Vec<(u64, u64, u64)> = Vec::new();
        for segment in &self.model.segments {
            if segment.stream.get() != stream || segment.pool != pool {
                continue;
            }
            let mut open = false;
            for block in &segment.blocks {
                let is_free = block.state == BlockState::Inactive
                    || (block.state == BlockState::PendingFree && gone.contains(&block.address));
                match free.last_mut() {
                    Some((size, ..)) if is_free && open => *size += block.size,
                    _ if is_free => free.push((block.size, segment.created, block.address)),
                    _ => {}
                }
                open = is_free;
            }
        }
        let (size, _, start) = free.into_iter().filter(|(size, ..)| *size >= expected.rounded).min()?;
        self.model.settings.may_take(expected.rounded, size).then_some((start, size))
    }

    fn share(&self, fraction: f64) -> u64 {
        (fraction * self.capacity as f64) as u64
    }

    /// Whether a pending block could serve the request after a wait on the device.
    pub(crate) fn pending_serves(&self, stream: u32, expected: Expected) -> bool {
        let mut pending = self.model.entries.iter().filter(|entry| entry.pending.is_some());
        pending.any(|entry| self.serves(entry, stream, expected))
    }

    fn serves(&self, entry: &Entry, stream: u32, expected: Expected) -> bool {
        entry.stream == stream
            && entry.small == expected.small
            && entry.size >= expected.rounded
            && self.model.settings.may_take(expected.rounded, entry.size)
    }

    pub(crate) fn fresh_segment(&self) -> Option<SegmentSnapshot> {
        let old: BTreeSet<u64> = self.model.segments.iter().map(|segment| segment.created).collect();
        let mut new = self.accelerator.allocator().snapshot().segments;
        new.retain(|segment| !old.contains(&segment.created));
        assert!(new.len() <= 1, "one request created {} segments", new.len());
        new.pop()
    }

    pub(crate) fn absorb_segments(&mut self) {
        self.model.segments_changed(self.accelerator.allocator().snapshot().segments);
    }

    pub(crate) fn check_nothing_whole_is_free(&self, of: Option<u32>) {
        let whole = self.model.segments.iter().find(|segment| {
            of.is_none_or(|stream| segment.stream.get() == stream)
                && !segment.expandable
                && segment.blocks.iter().all(|block| block.state == BlockState::Inactive)
        });
        assert_eq!(whole, None, "kept a whole free segment");
    }

    pub(crate) fn check(&mut self) {
        #[cfg(debug_assertions)]
        self.accelerator.allocator().check();
        self.absorb_segments();
        let statistics = self.accelerator.allocator().statistics();
        self.model.check(&statistics, self.accelerator.backend().used());
        let waits = statistics.num_sync_all_streams - statistics.num_alloc_retries;
        if self.accelerator.backend().faults() == 0 {
            assert_eq!(waits, self.model.counters.empty_caches, "num_sync_all_streams");
        }
    }
}
