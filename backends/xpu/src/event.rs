//! Events, which can be recorded repeatedly.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use accelerator_core::{DriverErrorKind, DriverResult};

use crate::answer;
use crate::device::Device;
use crate::queue::Queue;
use crate::signal::{Signal, Signals};

/// An event of an Intel GPU. It refers to the Level Zero event of its last record, which is used only once.
#[derive(Debug)]
pub struct XpuEvent {
    pub(crate) device: Arc<Device>,
    signals: Arc<Signals>,
    /// `None` if it was never recorded, or no work preceded the record.
    recorded: Mutex<Option<Record>>,
}

#[derive(Clone, Debug)]
struct Record {
    signal: Arc<Signal>,
    queue: Arc<Queue>,
}

impl XpuEvent {
    pub(crate) fn new(device: &Arc<Device>, signals: &Arc<Signals>) -> Self {
        Self { device: Arc::clone(device), signals: Arc::clone(signals), recorded: Mutex::new(None) }
    }

    fn recorded(&self) -> Option<Record> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn record(&self, queue: &Arc<Queue>) -> DriverResult<()> {
        let signal = queue.record(&self.signals)?;
        let record = signal.map(|signal| Record { signal, queue: Arc::clone(queue) });
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = record;
        Ok(())
    }

    /// Makes the queue wait for this event. The queue may belong to another device of the context.
    pub(crate) fn wait_on(&self, queue: &Queue) -> DriverResult<()> {
        self.device.check()?;
        if self.device.context() != queue.device.context() {
            let why = "the event belongs to a device of another driver";
            return Err(answer::refused("zeCommandListAppendBarrier", DriverErrorKind::Unsupported, why));
        }
        self.recorded().map_or(Ok(()), |record| queue.wait_for(&record.signal))
    }

    /// Returns the Level Zero event of its last record as a number, or 0 if it was never recorded or no work preceded
    /// the record.
    pub(crate) fn id(&self) -> u64 {
        self.recorded().map_or(0, |record| record.signal.event.addr() as u64)
    }

    pub(crate) fn is_complete(&self) -> DriverResult<bool> {
        let asked = self.recorded().map_or(Ok(true), |record| record.signal.is_reached());
        // A lost device does no more work, so all of its work counts as complete.
        asked.or_else(|error| if self.device.is_lost() { Ok(true) } else { Err(error) })
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.device.check()?;
        self.recorded().map_or(Ok(()), |record| record.signal.wait())
    }

    pub(crate) fn elapsed_ns(&self, end: &Self, clock: Clock) -> DriverResult<i64> {
        let (Some(from), Some(to)) = (self.recorded(), end.recorded()) else {
            let why = "an event was not recorded";
            return Err(answer::refused("zeEventQueryKernelTimestamp", DriverErrorKind::InvalidArgument, why));
        };
        let ticks = clock.difference(from.signal.ticks()?, to.signal.ticks()?);
        let submitted = signed_ns(from.signal.taken, to.signal.taken);
        Ok(clock.nanoseconds(ticks, submitted, Arc::ptr_eq(&from.queue, &to.queue)))
    }
}

fn signed_ns(from: Option<Instant>, to: Option<Instant>) -> i64 {
    let (Some(from), Some(to)) = (from, to) else { return 0 };
    match to.checked_duration_since(from) {
        Some(later) => later.as_nanos() as i64,
        None => -(from.duration_since(to).as_nanos() as i64),
    }
}

/// The clock of a device: a counter that wraps around to 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) ticks_per_second: u64,
    pub(crate) bits: u32,
}

impl Clock {
    /// Returns the ticks from one reading to another, modulo the counter's range.
    fn difference(self, from: u64, to: u64) -> u64 {
        let last = 1u64.checked_shl(self.bits).map_or(u64::MAX, |values| values - 1);
        to.wrapping_sub(from) & last
    }

    /// Converts ticks into nanoseconds. Counters of 32 bits wrap around after some minutes. The number of wraps is
    /// derived from `submitted`, the time between the host's submissions of the two events, and from the order within
    /// one queue: what is submitted later runs later.
    fn nanoseconds(self, ticks: u64, submitted: i64, same_queue: bool) -> i64 {
        let ns = |ticks: i128| ticks * 1_000_000_000 / i128::from(self.ticks_per_second.max(1));
        let (ticks, round) = (i128::from(ticks), 1i128 << self.bits.min(64));
        let missing = i128::from(submitted) - ns(ticks);
        let length = ns(round).max(1);
        let rounds = (missing + length / 2).div_euclid(length);
        let elapsed = ticks + rounds * round;
        let elapsed = match (same_queue, submitted) {
            (true, 0..) if elapsed < 0 => elapsed + round,
            (true, ..0) if elapsed > 0 => elapsed - round,
            _ => elapsed,
        };
        ns(elapsed) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick is 80 ns, and the counter wraps every 343.6 s, as on Intel's integrated GPUs.
    const CLOCK: Clock = Clock { ticks_per_second: 12_500_000, bits: 32 };
    const SECOND: i64 = 1_000_000_000;

    fn elapsed(from: u64, to: u64, submitted: i64, same_queue: bool) -> i64 {
        CLOCK.nanoseconds(CLOCK.difference(from, to), submitted, same_queue)
    }

    /// Returns the reading after this many seconds.
    fn reading(seconds: u64) -> u64 {
        (5 + seconds * CLOCK.ticks_per_second) & u64::from(u32::MAX)
    }

    #[test]
    fn short_times() {
        for same_queue in [false, true] {
            assert_eq!(elapsed(100, 350, 10, same_queue), 20_000);
            assert_eq!(elapsed(350, 100, -10, same_queue), -20_000);
            assert_eq!(elapsed(u64::from(u32::MAX), 4, 10, same_queue), 400);
            assert_eq!(elapsed(7, 7, 0, same_queue), 0);
        }
        assert_eq!(elapsed(350, 100, 10, false), -20_000, "another queue may be earlier");
    }

    #[test]
    fn long_times_count_the_rounds() {
        for seconds in [1, 200, 343, 344, 1000, 4000, 86_400] {
            let exact = seconds as i64 * SECOND;
            for lag in [-100 * SECOND, 0, 100 * SECOND] {
                let submitted = exact + lag;
                assert_eq!(elapsed(5, reading(seconds), submitted, false), exact, "{seconds} s, {lag} ns off");
                assert_eq!(elapsed(reading(seconds), 5, -submitted, false), -exact, "-{seconds} s, {lag} ns off");
            }
        }
    }

    /// Measures one kernel that was submitted together with both events.
    #[test]
    fn long_work_on_one_queue_is_no_negative_time() {
        for seconds in [1, 115, 171, 172, 220, 300, 343] {
            let exact = seconds as i64 * SECOND;
            assert_eq!(elapsed(5, reading(seconds), 1000, true), exact, "{seconds} s");
            assert_eq!(elapsed(reading(seconds), 5, -1000, true), -exact, "-{seconds} s");
        }
    }

    #[test]
    fn wide_counters_and_odd_clocks() {
        let clock = Clock { ticks_per_second: 19_200_000, bits: 64 };
        assert_eq!(clock.nanoseconds(clock.difference(0, 19_200_000), 0, false), SECOND);
        let silent = Clock { ticks_per_second: 0, bits: 0 };
        let _ = silent.nanoseconds(silent.difference(1, 2), 0, true); // meaningless, but must not panic
    }
}
