//! Times of a device.

use std::time::Instant;

/// The clock behind the timestamps of a device: a counter of up to 64 bits that starts again at 0.
///
/// A counter of 32 bits may wrap around after some minutes, and the number of wraps between two timestamps cannot be
/// read from it. It is derived from the times at which the host submitted them.
///
/// ```
/// use std::time::Instant;
///
/// use accelerator_core::backend_kit::{DeviceClock, Timestamp};
///
/// let clock = DeviceClock::with_frequency(32, 12_500_000); // a tick is 80 ns
/// let stamp = |ticks| Timestamp { ticks, submitted: Instant::now() };
/// let [start, end] = [100, 350].map(stamp);
/// assert_eq!(clock.elapsed_ns(start, end, true), 20_000);
/// assert_eq!(clock.elapsed_ns(end, start, true), -20_000);
/// assert_eq!(clock.elapsed_ns(stamp(u32::MAX.into()), stamp(4), true), 400);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceClock {
    bits: u32,
    /// A tick is `nanoseconds / ticks` nanoseconds.
    nanoseconds: i128,
    ticks: i128,
}

/// A timestamp of a device.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// The counter.
    pub ticks: u64,
    /// When the host submitted the command that writes the timestamp, or a little earlier.
    pub submitted: Instant,
}

impl DeviceClock {
    /// Makes a clock from the number of valid bits of its counter and its frequency. Level Zero:
    /// `kernelTimestampValidBits`, `timerResolution`.
    pub fn with_frequency(bits: u32, ticks_per_second: u64) -> Self {
        // The limits here and below keep all products within 127 bits.
        let ticks = i128::from(ticks_per_second.clamp(1, 1 << 60));
        Self { bits: bits.min(64), nanoseconds: 1_000_000_000, ticks }
    }

    /// Makes a clock from the number of valid bits of its counter and the length of a tick. Vulkan:
    /// `timestampValidBits`, `timestampPeriod`.
    pub fn with_period(bits: u32, nanoseconds_per_tick: f32) -> Self {
        // In units of 2⁻³² ns.
        let units = (f64::from(nanoseconds_per_tick) * (1u64 << 32) as f64) as u64;
        Self { bits: bits.min(64), nanoseconds: i128::from(units.clamp(1, 1 << 56)), ticks: 1 << 32 }
    }

    /// Returns the nanoseconds from one timestamp to another; negative if `end` came first. Timestamps of the same
    /// stream are in the order of their submission.
    pub fn elapsed_ns(self, start: Timestamp, end: Timestamp, same_stream: bool) -> i64 {
        let submitted = nanoseconds_between(start.submitted, end.submitted);
        self.nanoseconds(end.ticks.wrapping_sub(start.ticks), submitted, same_stream)
    }

    /// Converts a difference of two counts, modulo 2⁶⁴, with the number of wraps that comes closest to `submitted`.
    fn nanoseconds(self, difference: u64, submitted: i64, same_stream: bool) -> i64 {
        let ns = |ticks: i128| ticks * self.nanoseconds / self.ticks;
        let round = 1i128 << self.bits;
        let ticks = i128::from(difference) % round;
        let missing = i128::from(submitted) - ns(ticks);
        let length = ns(round).max(1);
        let rounds = (missing + length / 2).div_euclid(length);
        let elapsed = ticks + rounds * round;
        let elapsed = match (same_stream, submitted) {
            (true, 0..) if elapsed < 0 => elapsed + round,
            (true, ..0) if elapsed > 0 => elapsed - round,
            _ => elapsed,
        };
        ns(elapsed).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// Returns the nanoseconds from one time of the host to another; negative if `end` came first.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use accelerator_core::backend_kit::nanoseconds_between;
///
/// let start = Instant::now();
/// let end = start + Duration::from_micros(2);
/// assert_eq!((nanoseconds_between(start, end), nanoseconds_between(end, start)), (2000, -2000));
/// ```
pub fn nanoseconds_between(start: Instant, end: Instant) -> i64 {
    let after = |a: Instant, b: Instant| a.saturating_duration_since(b).as_nanos() as i64;
    after(end, start) - after(start, end)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A tick is 80 ns, and the counter wraps every 343.6 s, as on Intel's integrated GPUs.
    fn clock() -> DeviceClock {
        DeviceClock::with_frequency(32, 12_500_000)
    }

    fn elapsed(from: u64, to: u64, submitted: i64, same_stream: bool) -> i64 {
        clock().nanoseconds(to.wrapping_sub(from), submitted, same_stream)
    }

    /// Returns the reading after this many seconds.
    fn reading(seconds: u64) -> u64 {
        (5 + seconds * 12_500_000) & u64::from(u32::MAX)
    }

    #[test]
    fn short_times() {
        for same_stream in [false, true] {
            assert_eq!(elapsed(100, 350, 10, same_stream), 20_000);
            assert_eq!(elapsed(350, 100, -10, same_stream), -20_000);
            assert_eq!(elapsed(u64::from(u32::MAX), 4, 10, same_stream), 400);
            assert_eq!(elapsed(7, 7, 0, same_stream), 0);
        }
        assert_eq!(elapsed(350, 100, 10, false), -20_000, "another stream may be earlier");
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

    /// Measures one kernel that was submitted together with both timestamps.
    #[test]
    fn long_work_on_one_stream_is_no_negative_time() {
        for seconds in [1, 115, 171, 172, 220, 300, 343] {
            let exact = seconds as i64 * SECOND;
            assert_eq!(elapsed(5, reading(seconds), 1000, true), exact, "{seconds} s");
            assert_eq!(elapsed(reading(seconds), 5, -1000, true), -exact, "-{seconds} s");
        }
    }

    /// The periods of NVIDIA, of AMD (10 ns, 36 bits on some), of Intel (1000/12 ns) and of Mesa's driver for the CPU.
    #[test]
    fn periods() {
        for (bits, period, ticks, exact) in
            [(64, 1.0, 12_345, 12_345), (36, 10.0, 12_345, 123_450), (36, 83.333_336, 12_000_000, SECOND)]
        {
            let clock = DeviceClock::with_period(bits, period);
            let measured = clock.nanoseconds(ticks, 0, false);
            assert!((measured - exact).abs() <= exact / 10_000_000, "{measured} instead of {exact}");
        }
        // A day on a counter that wraps every 687 seconds.
        let clock = DeviceClock::with_period(36, 10.0);
        let ticks = 86_400 * 100_000_000 % (1 << 36);
        assert_eq!(clock.nanoseconds(ticks, 86_400 * SECOND + 1000, true), 86_400 * SECOND);
    }

    #[test]
    fn the_times_of_submission_are_those_of_the_timestamps() {
        let now = Instant::now();
        let start = Timestamp { ticks: 5, submitted: now };
        let end = Timestamp { ticks: reading(1000), submitted: now + Duration::from_secs(1000) };
        assert_eq!(clock().elapsed_ns(start, end, true), 1000 * SECOND);
        assert_eq!(clock().elapsed_ns(end, start, true), -1000 * SECOND);
    }

    #[test]
    fn wide_counters_and_odd_clocks() {
        let wide = DeviceClock::with_frequency(64, 19_200_000);
        assert_eq!(wide.nanoseconds(19_200_000, 0, false), SECOND);
        assert_eq!(wide.nanoseconds(u64::MAX, 0, false), -52, "one tick back");
        assert_eq!(DeviceClock::with_frequency(64, 1).nanoseconds(1 << 62, i64::MAX, true), i64::MAX);
        // These mean nothing, but must not panic.
        for clock in [
            DeviceClock::with_frequency(0, 0),
            DeviceClock::with_frequency(u32::MAX, u64::MAX),
            DeviceClock::with_period(64, f32::MAX),
            DeviceClock::with_period(64, f32::NAN),
            DeviceClock::with_period(0, -1.0),
        ] {
            for submitted in [i64::MIN, -1, 0, i64::MAX] {
                for ticks in [0, 1, u64::MAX] {
                    let _ = clock.nanoseconds(ticks, submitted, true);
                }
            }
        }
    }
}
