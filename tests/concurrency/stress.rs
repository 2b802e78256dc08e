//! Eight threads do concurrently whatever the allocator supports, in rounds. Between two rounds all threads are idle.
//! Then the statistics must equal the threads' own counts, the snapshot must contain exactly their blocks, and peaks
//! must lie between provable bounds.
//!
//! `ACCELERATOR_STRESS_SECONDS` sets the duration on each device. The default is two seconds.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, BlockState, GIB};
use accelerator_host::Host;

use super::reader::{OnTheWay, Seen, check_snapshot, check_sums, read};
use super::readers::read_while;
use super::tally::{Held, Holding, Totals, allocated, each};
use super::worker::{COMPACT, Late, Mailbox, PYTORCH, Round, SettingsList, Worker};
use super::{check_empty, check_nothing_is_left};

const WORKERS: usize = 8;
const READERS: usize = 2;
/// Small enough to run out of memory occasionally.
const CAPACITY: u64 = 2 * GIB;

#[test]
fn everything_at_once_on_the_simulated_device() {
    let (accelerator, _) = stress(Sim::new(CAPACITY), PYTORCH);
    assert_eq!(accelerator.backend().used(), 0);
    check_empty(accelerator, None);
}

#[test]
fn everything_at_once_on_the_host() {
    let (accelerator, _) = stress(Host::new(0, CAPACITY), PYTORCH);
    check_empty(accelerator, None);
}

#[test]
fn everything_at_once_under_compact_on_the_simulated_device() {
    let (accelerator, seen) = stress(Sim::new(CAPACITY), COMPACT);
    assert_eq!(accelerator.backend().used(), 0);
    assert!(seen.of_aliases > 0, "no memory was ever aliased");
}

#[test]
fn everything_at_once_under_compact_on_the_host() {
    let (_, seen) = stress(Host::new(0, CAPACITY), COMPACT);
    assert!(seen.of_aliases > 0, "no memory was ever aliased");
}

fn stress<B: Late>(backend: B, settings: SettingsList) -> (&'static Accelerator<B>, Seen) {
    let config = AllocatorConfig::default().updated(settings[0]).unwrap();
    let accelerator = Accelerator::new(backend, 0, config).unwrap();
    // The two policies put the boundary between the pools at different sizes.
    let pools = if settings == PYTORCH { 3 } else { 1 };
    let length = length();
    let _watchdog = Watchdog::new(length + Duration::from_secs(60));
    let mailboxes: Vec<_> = (0..WORKERS).map(|_| Mutex::new(Mailbox::default())).collect();
    let shared = [accelerator.default_stream(), accelerator.stream(0).unwrap()];
    let mut workers: Vec<_> = (0..WORKERS).map(|number| Worker::new(accelerator, number, shared, settings)).collect();
    check_rest(accelerator, &workers, &mailboxes, pools, None);

    let (start, mut rounds, mut seen) = (Instant::now(), 0, Seen::default());
    // On a busy machine it may take longer to run out of memory.
    let longest = length + Duration::from_secs(30);
    while start.elapsed() < length || (totals(&workers).failed == 0 && start.elapsed() < longest) {
        let until = Instant::now() + (length / 4).min(Duration::from_millis(500));
        let round = Round { until, resets_peaks: rounds % 2 == 1 };
        let of_round = run(accelerator, &mut workers, &mailboxes, round);
        check_rest(accelerator, &workers, &mailboxes, pools, Some((round, of_round)));
        reset_peaks(accelerator, &mut workers, &mailboxes);
        rounds += 1;
        seen.reads += of_round.reads;
        seen.of_one_moment += of_round.of_one_moment;
        seen.of_aliases += of_round.of_aliases;
    }
    let seconds = start.elapsed().as_secs_f64();
    let operations: u64 = workers.iter().map(|worker| worker.operations).sum();
    let totals = totals(&workers);
    println!(
        "{}: {:.0} operations a second by {WORKERS} threads: {operations} in {seconds:.1} s and {rounds} rounds; {} \
         allocations, {} without memory; {} readings, {} of one moment",
        accelerator.device(),
        operations as f64 / seconds,
        totals.allocated[0][0],
        totals.failed,
        seen.reads,
        seen.of_one_moment
    );
    assert!(totals.failed > 0, "memory never ran out");

    workers.into_iter().for_each(Worker::finish);
    mailboxes.into_iter().for_each(|mailbox| mailbox.into_inner().unwrap().finish(accelerator));
    check_nothing_is_left(accelerator, Some(totals.allocated[0][0]));
    (accelerator, seen)
}

/// Runs one round on new threads. Returns the combined maximum that the readers saw.
fn run<B: Late>(
    accelerator: &'static Accelerator<B>,
    workers: &mut [Worker<B>],
    mailboxes: &[Mutex<Mailbox<B>>],
    round: Round,
) -> Seen {
    let work = workers.iter_mut().map(|worker| move || worker.run(mailboxes, round));
    let seen = read_while(work, READERS, |over| read(accelerator.allocator(), over));
    seen.into_iter().fold(Seen::default(), |one, other| Seen {
        reads: one.reads + other.reads,
        of_one_moment: one.of_one_moment + other.of_one_moment,
        of_aliases: one.of_aliases + other.of_aliases,
        most: [0, 1].map(|index| one.most[index].max(other.most[index])),
    })
}

/// Checks the idle state: no thread runs and nothing is pending. Compares the first `pools` of: all, the small pool,
/// the large pool.
fn check_rest<B: Late>(
    accelerator: &'static Accelerator<B>,
    workers: &[Worker<B>],
    mailboxes: &[Mutex<Mailbox<B>>],
    pools: usize,
    after: Option<(Round, Seen)>,
) {
    let allocator = accelerator.allocator();
    accelerator.synchronize().unwrap();
    allocator.empty_cache().unwrap();
    let (statistics, snapshot) = (allocator.statistics(), allocator.snapshot());
    check_snapshot(&snapshot, OnTheWay::None);
    check_sums(&snapshot, &statistics, OnTheWay::None);

    let in_mailboxes = || mailboxes.iter().map(|mailbox| mailbox.lock().unwrap());
    let holdings: Vec<Holding> =
        workers.iter().map(|worker| worker.holding).chain(in_mailboxes().map(|mailbox| mailbox.holding)).collect();
    let together = holdings.iter().copied().fold(Holding::default(), Holding::and);
    let totals = totals(workers);
    let counted = |value| allocated(&statistics, value);
    assert_eq!(counted(|stat| stat.current)[..pools], together.current[..pools]);
    assert_eq!(counted(|stat| stat.allocated)[..pools], totals.allocated[..pools]);
    assert_eq!(counted(|stat| stat.freed)[..pools], totals.freed[..pools]);
    assert_eq!(statistics.active.all.current, statistics.allocation.all.current, "nothing is pending");
    assert_eq!(statistics.num_ooms, totals.failed);

    let mut held: Vec<Held> = workers.iter().flat_map(Worker::held).collect();
    held.extend(in_mailboxes().flat_map(|mailbox| mailbox.held()));
    held.sort_unstable();
    let blocks = snapshot.segments.iter().chain(&snapshot.aliases).flat_map(|segment| &segment.blocks);
    let mut in_snapshot: Vec<Held> = blocks
        .filter(|block| block.state == BlockState::Allocated)
        .map(|block| Held { address: block.address, size: block.size, requested: block.requested_size })
        .collect();
    in_snapshot.sort_unstable();
    assert!(held == in_snapshot, "the blocks of the snapshot differ from the threads': {held:?}, {in_snapshot:?}");

    let Some((round, seen)) = after else { return };
    let peaks = allocated(&statistics, |stat| stat.peak);
    for (peaks, sums) in peaks.iter().zip(&together.peak).take(pools) {
        // Requested bytes count until all streams are done with them, which the holders do not see.
        let ([blocks, bytes, _], [most_blocks, most_bytes, _]) = (peaks, sums);
        let below = blocks <= most_blocks && bytes <= most_bytes;
        assert!(below, "peaks of {peaks:?}, but the holders' own peaks add up to {sums:?}");
    }
    if round.resets_peaks {
        return;
    }
    for had in holdings.iter().map(|holding| holding.peak).chain([together.current]) {
        assert_eq!(each(peaks, had, i64::max)[..pools], peaks[..pools], "peaks below what holders had at one moment");
    }
    assert!(peaks[0][0] >= seen.most[0] && peaks[0][1] >= seen.most[1], "{peaks:?} is less than {seen:?}");
}

fn reset_peaks<B: Late>(
    accelerator: &'static Accelerator<B>,
    workers: &mut [Worker<B>],
    mailboxes: &[Mutex<Mailbox<B>>],
) {
    accelerator.allocator().reset_peak_statistics();
    workers.iter_mut().for_each(|worker| worker.holding.reset_peak());
    mailboxes.iter().for_each(|mailbox| mailbox.lock().unwrap().holding.reset_peak());
    let statistics = accelerator.allocator().statistics();
    assert_eq!(allocated(&statistics, |stat| stat.peak), allocated(&statistics, |stat| stat.current));
}

fn totals<B: Backend>(workers: &[Worker<B>]) -> Totals {
    workers.iter().map(|worker| worker.totals).fold(Totals::default(), Totals::and)
}

fn length() -> Duration {
    const VARIABLE: &str = "ACCELERATOR_STRESS_SECONDS";
    let seconds = std::env::var(VARIABLE).map_or(Ok(2), |text| text.parse());
    Duration::from_secs(seconds.unwrap_or_else(|_| panic!("{VARIABLE} must be a number of seconds")))
}

/// Aborts the program on a deadlock. Threads that wait for each other cannot be terminated otherwise.
struct Watchdog(#[expect(dead_code, reason = "dropping it stops the watchdog")] Sender<()>);

impl Watchdog {
    fn new(limit: Duration) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Written directly, because the test harness captures the output of macros.
                let message = format!("not finished after {limit:?}: deadlock\n");
                let _ = std::io::stderr().write_all(message.as_bytes());
                std::process::exit(1);
            }
        });
        Self(sender)
    }
}
