//! The smallest device on which a trace completes.

use accelerator_core::MIB;
use indicatif::ProgressBar;

use super::setting::Setting;
use super::trace::Trace;
use crate::failure::Failure;

/// The step of the search. Under nearly all settings, requests to the device are multiples of this.
pub(super) const STEP: u64 = 2 * MIB;

/// Returns a capacity at which the trace completes, but would not complete with one [`STEP`] less. The search is a
/// bisection from `start`. The result is at most `most`, at which the trace must complete.
///
/// Completion need not be monotonic: with less memory the cache is emptied earlier, which may happen to leave less
/// fragmentation. So smaller capacities may also be large enough. The result is the lower end of a range of capacities
/// that are large enough.
pub(super) fn smallest(
    trace: &Trace,
    setting: &Setting,
    start: u64,
    most: u64,
    progress: &ProgressBar,
) -> Result<u64, Failure> {
    let mut large_enough = start.next_multiple_of(STEP).min(most);
    progress.inc_length(u64::from((large_enough / STEP).max(1).ilog2()) + 2);
    // Usually the start is large enough, since the allocator never reserved more. It may be too small if a memory
    // fraction excludes part of the device.
    while large_enough < most && !completes(trace, setting, large_enough, progress)? {
        large_enough = large_enough.saturating_mul(2).min(most);
    }
    let mut too_small = 0;
    while large_enough - too_small > STEP {
        let middle = too_small + ((large_enough - too_small) / 2).next_multiple_of(STEP);
        match completes(trace, setting, middle, progress)? {
            true => large_enough = middle,
            false => too_small = middle,
        }
    }
    Ok(large_enough)
}

/// Returns whether memory never runs out.
fn completes(trace: &Trace, setting: &Setting, capacity: u64, progress: &ProgressBar) -> Result<bool, Failure> {
    let mut replayer = trace.replayer(setting, capacity, false)?;
    let mut completes = true;
    for line in &trace.lines {
        if trace.step(&mut replayer, line)?.lacks_memory() {
            completes = false;
            break;
        }
    }
    replayer.end()?;
    progress.inc(1);
    Ok(completes)
}

#[cfg(test)]
mod tests {
    use accelerator_core::GIB;

    use super::*;
    use crate::trace::Source;

    fn smallest_of(lines: &str, settings: &str) -> u64 {
        let trace = Trace::read(Source::from_bytes("a trace", lines).unwrap()).unwrap();
        let setting = Setting::read(settings).unwrap();
        smallest(&trace, &setting, 2 * MIB, 64 * GIB, &ProgressBar::hidden()).unwrap()
    }

    #[test]
    fn a_device_is_as_large_as_what_has_to_be_there_at_once() {
        let one = "alloc 1 104857600 0\n";
        assert_eq!(smallest_of(one, ""), 100 * MIB);
        let freed_between = format!("{one}free 1\nalloc 2 209715200 0\n");
        assert_eq!(smallest_of(&freed_between, ""), 200 * MIB);
        let together = format!("{one}alloc 2 209715200 0\n");
        assert_eq!(smallest_of(&together, ""), 300 * MIB);
        assert_eq!(smallest_of("alloc 1 5000000 0\n", ""), 20 * MIB);
    }

    #[test]
    fn a_memory_fraction_leaves_a_part_of_the_device_alone() {
        assert_eq!(smallest_of("fraction 0.5\nalloc 1 104857600 0\n", ""), 200 * MIB);
    }

    #[test]
    fn a_stream_that_is_done_gives_back_and_one_that_is_not_is_waited_for() {
        let lines = "hold 1\nalloc 1 104857600 0\nrecord 1 1\nfree 1\nalloc 2 209715200 0\nrelease 1\n";
        assert_eq!(smallest_of(lines, ""), 200 * MIB);
    }
}
