//! K, every interleaving of two threads at driver calls: case 94.
//!
//! Blocks and counters are split by stream, and no lock is held during a driver call, so that is where other threads
//! can intervene. Each operation of one list is stopped inside each driver call that it makes; meanwhile each operation
//! of another list runs. Nothing depends on time, except the limit after which a deadlock counts as a failure.

mod operations;
mod stage;

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use accelerator_core::{BlockState, Error, Result, Snapshot};

use self::operations::{Act, Meanwhile, Stopped, meanwhile, stopped};
use self::stage::{Blocks, LIMIT, Scene, Stage};
use super::context::{Device, address};
use super::threads::in_thread;
use super::{Context, Outcome};
use crate::calls::Call;
use crate::faulty::Gate;
use crate::outcome::Failure;
use crate::progress::limit;

pub(super) fn interleavings_at_driver_calls(context: &Context) -> Outcome {
    for first in stopped() {
        let scene = Scene::new(context, first.settings)?;
        let log = alone(scene, &first)?;
        assert!(!log.is_empty(), "{}: makes no driver calls", first.name);
        for place in places(&log) {
            for second in meanwhile() {
                let call = log[place].name();
                let what = format!("{}, stopped in call {place}, `{call}`; {}", first.name, second.name);
                let _told = Told(&what);
                both(scene, &first, &log[..=place], &second).map_err(|error| at(&what, &error))?;
            }
        }
    }
    Ok(())
}

/// Returns the places in the log where the operation is stopped. Of a call that it makes many times, such as once for
/// each page, these are the first two and the last two: between those, usually only the number of pages differs.
fn places(log: &[Call]) -> impl Iterator<Item = usize> {
    let of_this_kind = |calls: &[Call], call| calls.iter().filter(|other| **other == call).count();
    (0..log.len()).filter(move |place| {
        let call = log[*place];
        of_this_kind(&log[..*place], call) < 2 || of_this_kind(&log[place + 1..], call) < 2
    })
}

/// Returns the driver calls that the operation makes when it runs alone.
fn alone(scene: Scene, first: &Stopped) -> Result<Vec<Call>, Failure> {
    let mut stage = scene.set()?;
    (first.prepare)(scene)?;
    scene.device.backend().start_log();
    let result = (first.act)(scene, &mut stage.first);
    let log = scene.device.backend().take_log();
    check_result(result, first.fails, first.fails)?;
    check(scene.device, &stage);
    clear(scene, stage)?;
    Ok(log)
}

/// Stops the first operation in the last of these calls and runs the second one meanwhile.
fn both(scene: Scene, first: &Stopped, calls: &[Call], second: &Meanwhile) -> Outcome {
    let Some((call, before)) = calls.split_last() else { return Ok(()) };
    let mut stage = scene.set()?;
    (first.prepare)(scene)?;
    let backend = scene.device.backend();
    before.iter().filter(|earlier| *earlier == call).for_each(|_| backend.gate(*call).open());
    let gate = backend.gate(*call);
    let mut stopped = start(scene, first.act, std::mem::take(&mut stage.first));
    if !stopped.comes_to(&gate) {
        // Under `compact`, the memory that serves a request also depends on how far the device has got.
        let is_expected = stopped.done.is_some() && scene.is_compact;
        gate.open();
        let (blocks, result) = stopped.into_result("the call is not made")?;
        stage.first = blocks;
        check_result(result, first.fails, first.fails)?;
        return if is_expected { clear(scene, stage) } else { Err("the call is not made".into()) };
    }
    let waits = in_thread(move || scene.device.statistics().num_sync_all_streams);
    let waits = waits.recv_timeout(limit()).map_err(|_| "the statistics wait for the stopped thread")?;
    let mut running = start(scene, second.act, std::mem::take(&mut stage.second));
    // An operation that must wait for memory waits for the thread that takes events, and for a thread that is giving
    // memory back. If the limit refuses the request, it also waits for a thread whose charge the driver may still
    // refuse. Under `compact`, it waits for any thread that obtains or returns memory. Nothing else waits for another
    // thread.
    let asks_first = first.polls && *call == Call::IsCapturing && !before.contains(call);
    let holds_events = first.holding_events.contains(call) && !asks_first;
    let gives_or_takes = *call == Call::Dealloc || (*call == Call::Alloc && second.takes);
    if (second.waits_for_events && gives_or_takes) || (second.maps && scene.is_compact) {
        // The second operation may stop anywhere before that.
    } else if second.waits_for_events && holds_events {
        running.go_as_far_as_possible(scene.device, waits)?;
    } else {
        running.finish("it waits for a thread that is inside the driver")?;
    }
    if second.empties && running.done.is_some() {
        check_emptied(scene.device, &stage);
    }
    gate.open();
    let ((first_blocks, first_result), (second_blocks, second_result)) =
        (stopped.into_result("the stopped operation")?, running.into_result("the other operation")?);
    (stage.first, stage.second) = (first_blocks, second_blocks);
    let too_little = first.takes && second.takes;
    check_result(first_result, first.fails, first.fails || too_little)?;
    check_result(second_result, false, too_little)?;
    if second.empties {
        check_emptied(scene.device, &stage);
    }
    check(scene.device, &stage);
    clear(scene, stage)
}

fn check_result(result: Result<()>, must_fail: bool, may_fail: bool) -> Outcome {
    match result {
        Ok(()) if must_fail => Err("succeeded, but there is not that much memory".into()),
        Err(Error::OutOfMemory(_)) if may_fail => Ok(()),
        result => Ok(result?),
    }
}

/// Checks the invariants after both operations.
fn check(device: Device, stage: &Stage) {
    device.check_consistency();
    assert!(device.backend().used() <= LIMIT, "more memory was taken than the limit allows");
    let mut live: Vec<_> = stage.blocks().map(|block| (address(block), block.size())).collect();
    live.sort_unstable();
    for pair in live.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "live blocks overlap: {live:x?}");
    }
    for (start, _) in live {
        assert_eq!(state(device, start), Some(BlockState::Allocated), "the state of a live block at {start:#x}");
    }
}

/// Checks that `empty_cache` has waited for everything that was in use before.
fn check_emptied(device: Device, stage: &Stage) {
    for start in stage.pending {
        assert_ne!(state(device, start), Some(BlockState::PendingFree), "the state of a block at {start:#x}");
    }
}

fn state(device: Device, start: u64) -> Option<BlockState> {
    let Snapshot { segments, aliases, .. } = device.allocator().snapshot();
    let mut blocks = segments.iter().chain(&aliases).flat_map(|segment| &segment.blocks);
    blocks.find(|block| block.address == start).map(|block| block.state)
}

/// Checks that nothing is lost: everything goes back to the driver, and exactly the allowed memory can be allocated.
fn clear(scene: Scene, stage: Stage) -> Outcome {
    let device = scene.device;
    device.free_all(stage.into_blocks())?;
    scene.reset()?;
    device.allocator().empty_cache()?;
    assert_eq!(device.statistics().active.all.current, 0);
    assert_eq!(
        (device.reserved(), device.backend().live_allocations()),
        (0, 0),
        "everything is returned to the driver"
    );
    device.allocator().set_memory_fraction(0.5)?;
    device.free_all([device.alloc(device.properties().total_memory / 2)?])?;
    device.allocator().empty_cache()?;
    Ok(scene.reset()?)
}

/// An operation in its own thread, which hands back the blocks that it was given or allocated.
struct Running {
    receiver: Receiver<Done>,
    done: Option<Done>,
}

type Done = (Blocks, Result<()>);

fn start(scene: Scene, act: Act, mut blocks: Blocks) -> Running {
    let receiver = in_thread(move || {
        let result = act(scene, &mut blocks);
        (blocks, result)
    });
    Running { receiver, done: None }
}

impl Running {
    fn finish(&mut self, otherwise: &str) -> Outcome {
        if self.done.is_none() {
            let done = self.receiver.recv_timeout(limit());
            self.done = Some(done.map_err(|error| at(otherwise, &error.into()))?);
        }
        Ok(())
    }

    /// Whether the operation reaches the gate. If not, it has ended without the call, or is stuck.
    fn comes_to(&mut self, gate: &Gate) -> bool {
        let begun = Instant::now();
        while !gate.wait_reached(Duration::from_millis(1)) {
            self.done = self.receiver.try_recv().ok();
            if self.done.is_some() || begun.elapsed() > limit() {
                return false;
            }
        }
        true
    }

    /// Runs until the operation ends or is about to wait for the right to take events. It then gets some more turns,
    /// during which it must make no progress.
    fn go_as_far_as_possible(&mut self, device: Device, waits: i64) -> Outcome {
        let begun = Instant::now();
        let mut calls = None;
        let mut turns = 0;
        while self.done.is_none() && turns < 20 {
            match self.receiver.try_recv() {
                Ok(done) => self.done = Some(done),
                Err(TryRecvError::Empty) => std::thread::yield_now(),
                Err(TryRecvError::Disconnected) => return Err("it panicked".into()),
            }
            if device.statistics().num_sync_all_streams > waits {
                turns += 1;
                let before = *calls.get_or_insert_with(|| device.all_calls());
                if self.done.is_some() || device.all_calls() != before {
                    return Err("it does not wait for the thread that takes events".into());
                }
            }
            if begun.elapsed() > limit() {
                return Err("it waits, but not for events".into());
            }
        }
        Ok(())
    }

    fn into_result(mut self, who: &str) -> Result<Done, Failure> {
        self.finish(who)?;
        self.done.ok_or_else(|| "nothing came back".into())
    }
}

fn at(what: &str, error: &Failure) -> Failure {
    format!("{what}: {}", error.text()).into()
}

/// Prints the interleaving in which a check panicked.
struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
