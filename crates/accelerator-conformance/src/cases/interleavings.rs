//! K, every interleaving of two threads at driver calls: case 94.
//!
//! Blocks and counters are split by stream, and no lock is held while the driver works: so it is there that others come in
//! between. Each operation of one list is stopped inside each driver call that it makes, and meanwhile each operation of
//! another list runs. Nothing depends on time, but for the limit after which a deadlock is a failure.

mod operations;
mod stage;

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use accelerator_core::{BlockState, Error, Result, Snapshot};
use libtest_mimic::Failed;

use self::operations::{Act, Meanwhile, Stopped, meanwhile, stopped};
use self::stage::{Blocks, LIMIT, Scene, Stage};
use super::context::{Device, STUCK, address};
use super::threads::in_thread;
use super::{Context, Outcome};
use crate::calls::Call;
use crate::faulty::Gate;

pub(super) fn interleavings_at_driver_calls(context: &Context) -> Outcome {
    for first in stopped() {
        let scene = Scene::new(context, first.settings)?;
        let log = alone(scene, &first)?;
        assert!(!log.is_empty(), "{}: makes driver calls", first.name);
        for place in 0..log.len() {
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

/// The driver calls that the operation makes by itself.
fn alone(scene: Scene, first: &Stopped) -> Result<Vec<Call>, Failed> {
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

/// Stops the first operation in the last of these calls, and runs the second meanwhile.
fn both(scene: Scene, first: &Stopped, calls: &[Call], second: &Meanwhile) -> Outcome {
    let Some((call, before)) = calls.split_last() else { return Ok(()) };
    let mut stage = scene.set()?;
    (first.prepare)(scene)?;
    let backend = scene.device.backend();
    before.iter().filter(|earlier| *earlier == call).for_each(|_| backend.gate(*call).open());
    let gate = backend.gate(*call);
    let mut stopped = start(scene, first.act, std::mem::take(&mut stage.first));
    if !stopped.comes_to(&gate) {
        // What the device has done by then decides under the policy `compact`, too, what a request is made of.
        let is_expected = stopped.done.is_some() && scene.is_compact;
        gate.open();
        let (blocks, result) = stopped.into_result("the call is not made")?;
        stage.first = blocks;
        check_result(result, first.fails, first.fails)?;
        return if is_expected { clear(scene, stage) } else { Err("the call is not made".into()) };
    }
    let waits = in_thread(move || scene.device.statistics().num_sync_all_streams);
    let waits = waits.recv_timeout(STUCK).map_err(|_| "the statistics wait for it")?;
    let mut running = start(scene, second.act, std::mem::take(&mut stage.second));
    // Who must wait for memory waits for who holds the right to take events, for who is giving memory back, and where the
    // limit refuses it for who may be refused what it counts; under the policy `compact`, for who gets memory or gives some back;
    // nobody else waits for anybody.
    let gives_or_takes = *call == Call::Dealloc || (*call == Call::Alloc && second.takes);
    if (second.waits_for_events && gives_or_takes) || (second.maps && scene.is_compact) {
        // It may be anywhere up to there.
    } else if second.waits_for_events && first.holding_events.contains(call) {
        running.go_as_far_as_possible(scene.device, waits)?;
    } else {
        running.finish("it waits for a thread that is inside the driver")?;
    }
    if second.empties && running.done.is_some() {
        check_emptied(scene.device, &stage);
    }
    gate.open();
    let ((first_blocks, first_result), (second_blocks, second_result)) =
        (stopped.into_result("the stopped one")?, running.into_result("the other")?);
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
        Ok(()) if must_fail => Err("that much memory there is not".into()),
        Err(Error::OutOfMemory(_)) if may_fail => Ok(()),
        result => Ok(result?),
    }
}

/// What must hold behind both.
fn check(device: Device, stage: &Stage) {
    device.check_consistency();
    assert!(device.backend().used() <= LIMIT, "more was taken than is allowed");
    let mut live: Vec<_> = stage.blocks().map(|block| (address(block), block.size())).collect();
    live.sort_unstable();
    for pair in live.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "live blocks overlap: {live:x?}");
    }
    for (start, _) in live {
        assert_eq!(state(device, start), Some(BlockState::Allocated), "of a live block at {start:#x}");
    }
}

/// `empty_cache` has waited for whatever was in use before.
fn check_emptied(device: Device, stage: &Stage) {
    for start in stage.pending {
        assert_ne!(state(device, start), Some(BlockState::PendingFree), "of a block at {start:#x}");
    }
}

fn state(device: Device, start: u64) -> Option<BlockState> {
    let Snapshot { segments, aliases } = device.allocator().snapshot();
    let mut blocks = segments.iter().chain(&aliases).flat_map(|segment| &segment.blocks);
    blocks.find(|block| block.address == start).map(|block| block.state)
}

/// Nothing may be lost: all goes back to the driver, and all that is allowed can be had, to the byte.
fn clear(scene: Scene, stage: Stage) -> Outcome {
    let device = scene.device;
    device.free_all(stage.into_blocks())?;
    scene.reset()?;
    device.allocator().empty_cache()?;
    assert_eq!(device.statistics().active.all.current, 0);
    assert_eq!((device.reserved(), device.backend().live_allocations()), (0, 0), "all is given back");
    device.allocator().set_memory_fraction(0.5)?;
    device.free_all([device.alloc(device.properties().total_memory / 2)?])?;
    device.allocator().empty_cache()?;
    Ok(scene.reset()?)
}

/// An operation in a thread of its own, which hands back the blocks that it was given or made.
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
            let done = self.receiver.recv_timeout(STUCK);
            self.done = Some(done.map_err(|error| at(otherwise, &error.into()))?);
        }
        Ok(())
    }

    /// Whether it waits at the gate: otherwise it ends without, or never does.
    fn comes_to(&mut self, gate: &Gate) -> bool {
        let begun = Instant::now();
        while !gate.wait_reached(Duration::from_millis(1)) {
            self.done = self.receiver.try_recv().ok();
            if self.done.is_some() || begun.elapsed() > STUCK {
                return false;
            }
        }
        true
    }

    /// Until it ends or is about to wait for the right to take events, and then some turns, in which it must not go on.
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
                    return Err("it does not wait for who takes events".into());
                }
            }
            if begun.elapsed() > STUCK {
                return Err("it waits, but not for events".into());
            }
        }
        Ok(())
    }

    fn into_result(mut self, who: &str) -> Result<Done, Failed> {
        self.finish(who)?;
        self.done.ok_or_else(|| "nothing came back".into())
    }
}

fn at(what: &str, error: &Failed) -> Failed {
    format!("{what}: {}", error.message().unwrap_or("failed")).into()
}

/// Says at which interleaving a check panicked.
struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
