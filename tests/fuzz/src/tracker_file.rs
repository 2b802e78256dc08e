//! Files of a tracker in both formats. What is read has a summary and a report, and is read back the same after it is
//! written in either format.

use accelerator_tracker::Limits;
use accelerator_tracker::picture::Profile;
use accelerator_tracker::tracker::TrackerStats;

use super::profile::check_profile;
use super::saved::saved;
use super::text::check_message;

pub fn run(data: &[u8]) {
    let limits = Limits { memory: 1 << 22, line: 1 << 12, ..Limits::default() };
    let stats = match TrackerStats::load_from(data, "a file", limits) {
        Ok(stats) => stats,
        Err(error) => return check_message(&error.to_string()),
    };
    check_message(&stats.summary().to_string());
    check_profile(&Profile::of_tracker("a run", &stats));
    let again = |bytes: Vec<u8>| TrackerStats::load_from(&*bytes, "what was saved", Limits::default()).unwrap();
    if let Ok(lines) = saved(&stats, |stats, path| stats.save(path)) {
        assert_eq!(again(lines), stats);
    }
    if let Ok(pickle) = saved(&stats, |stats, path| stats.save_pytorch(path)) {
        check_pickled(&stats, &again(pickle));
    }
}

/// PyTorch's format has no times, only the last marker of each name, and fractions of a MiB for numbers of bytes.
fn check_pickled(stats: &TrackerStats, again: &TrackerStats) {
    const EXACT: u64 = 1 << 53;
    let names = |stats: &TrackerStats| stats.operators.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(again), names(stats));
    assert_eq!((&again.device, again.total_memory), (&stats.device, stats.total_memory));
    assert_eq!((again.num_alloc_retries, again.start.is_some()), (stats.num_alloc_retries, stats.start.is_some()));
    for (after, before) in again.operators.iter().zip(&stats.operators) {
        for (after, before) in [
            (after.memory.allocated, before.memory.allocated),
            (after.memory.active, before.memory.active),
            (after.memory.reserved, before.memory.reserved),
        ] {
            assert!(after == before || before > EXACT, "{before} bytes became {after}");
        }
    }
    for marker in &again.markers {
        let last = stats.markers.iter().rfind(|before| before.name == marker.name);
        assert_eq!(last.map(|last| last.position), Some(marker.position), "{marker:?}");
    }
}
