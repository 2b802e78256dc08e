//! The operations that are stopped, and those that run meanwhile.

use accelerator_core::{DriverErrorKind, MIB, Result};

use super::super::consistency::check_statistics;
use super::stage::{Blocks, Scene};
use crate::calls::Call;
use crate::controls::Controls;

/// Takes the blocks to free from the list and adds those that it allocates.
pub(super) type Act = fn(Scene, &mut Blocks) -> Result<()>;

/// An operation that is stopped.
pub(super) struct Stopped {
    pub(super) name: &'static str,
    pub(super) settings: &'static str,
    pub(super) prepare: fn(Scene) -> Result<()>,
    pub(super) act: Act,
    /// Whether it fails for lack of memory.
    pub(super) fails: bool,
    /// Whether it uses up memory, which may leave too little for another operation.
    pub(super) takes: bool,
    /// The calls during which it has the right to take events or is about to add events.
    pub(super) holding_events: &'static [Call],
    /// Whether it polls: it first asks whether its stream captures, and obtains the right to take events after that.
    pub(super) polls: bool,
}

/// An operation that runs while another is stopped.
pub(super) struct Meanwhile {
    pub(super) name: &'static str,
    pub(super) act: Act,
    /// Whether it waits for events, and so for the thread that takes them.
    pub(super) waits_for_events: bool,
    /// Whether it returns all unused memory to the driver.
    pub(super) empties: bool,
    /// Whether it takes so much memory that there may be too little for it and another operation.
    pub(super) takes: bool,
    /// Whether it may obtain new memory or return some. Under `compact` it then waits for others that do the same.
    pub(super) maps: bool,
}

impl Stopped {
    /// Makes an allocation that succeeds and has the right to take events while it queries or waits for events.
    fn new(name: &'static str, settings: &'static str, act: Act) -> Self {
        let holding_events = &[Call::IsCapturing, Call::IsComplete, Call::WaitHost, Call::Wait];
        Self { name, settings, prepare: |_| Ok(()), act, fails: false, takes: true, holding_events, polls: true }
    }
}

pub(super) fn stopped() -> Vec<Stopped> {
    const LIMITED: &str = "per_process_memory_fraction:0.5";
    const COLLECTED: &str = "per_process_memory_fraction:0.5,garbage_collection_threshold:0.3";
    vec![
        Stopped::new("an allocation from the cache", "", |scene, blocks| scene.alloc(scene.own, 512, blocks)),
        Stopped::new("an allocation that grows", "", |scene, blocks| scene.alloc(scene.slow, 20 * MIB, blocks)),
        Stopped::new("an allocation that the driver refuses at first", "", need_all),
        Stopped::new("an allocation that the limit refuses at first", LIMITED, need_all),
        Stopped {
            fails: true,
            ..Stopped::new("an allocation that fails", "", |scene, blocks| scene.alloc(scene.own, 300 * MIB, blocks))
        },
        Stopped::new("an allocation that collects garbage", COLLECTED, |scene, blocks| {
            scene.alloc(scene.own, 40 * MIB, blocks)
        }),
        Stopped::new("an allocation that releases oversize blocks", "max_split_size_mb:22", |scene, blocks| {
            scene.alloc(scene.own, 40 * MIB, blocks)
        }),
        Stopped::new("an allocation after a wait on the device", "device_side_reuse:True", |scene, blocks| {
            scene.alloc(scene.own, 28 * MIB, blocks)
        }),
        Stopped {
            prepare: unrecorded_use,
            holding_events: &[Call::IsCapturing, Call::Event, Call::Record, Call::IsComplete],
            ..Stopped::new("an allocation that records an event again", "", |scene, blocks| {
                scene.alloc(scene.own, 512, blocks)
            })
        },
        Stopped {
            holding_events: &[Call::IsCapturing, Call::IsComplete, Call::Dealloc],
            ..Stopped::new("an allocation without a cache", "caching:False", |scene, blocks| {
                scene.alloc(scene.own, 512, blocks)
            })
        },
        Stopped {
            polls: false,
            ..Stopped::new("a free without a cache", "caching:False", |scene, blocks| scene.free(0, blocks))
        },
        Stopped {
            prepare: empty_event_pool,
            polls: false,
            holding_events: &[Call::IsCapturing, Call::Event, Call::Record],
            ..Stopped::new("a free with uses by two streams", "", |scene, blocks| {
                scene.device.allocator().record_use(&blocks[0], scene.other)?;
                scene.device.allocator().record_use(&blocks[0], scene.slow)?;
                scene.free(0, blocks)
            })
        },
        Stopped {
            takes: false,
            polls: false,
            ..Stopped::new("empty_cache", "", |scene, _| scene.device.allocator().empty_cache())
        },
    ]
}

impl Meanwhile {
    fn new(name: &'static str, act: Act) -> Self {
        Self { name, act, waits_for_events: false, empties: false, takes: false, maps: false }
    }

    fn mapping(self) -> Self {
        Self { maps: true, ..self }
    }
}

pub(super) fn meanwhile() -> Vec<Meanwhile> {
    vec![
        Meanwhile::new("an allocation from the cache", |scene, blocks| scene.alloc(scene.own, 512, blocks)),
        Meanwhile::new("an allocation of a whole segment", |scene, blocks| scene.alloc(scene.own, 24 * MIB, blocks))
            .mapping(),
        Meanwhile::new("two allocations of parts of a segment", |scene, blocks| {
            scene.alloc(scene.own, 13 * MIB, blocks)?;
            scene.alloc(scene.own, 11 * MIB, blocks)?;
            scene.free(blocks.len() - 2, blocks)
        })
        .mapping(),
        Meanwhile::new("an allocation on another stream", |scene, blocks| scene.alloc(scene.other, 512, blocks)),
        Meanwhile::new("a free", |scene, blocks| scene.free(0, blocks)),
        Meanwhile::new("a free of a block that other streams used", |scene, blocks| scene.free(1, blocks)),
        Meanwhile::new("a free of a whole segment", |scene, blocks| scene.free(2, blocks)),
        Meanwhile::new("a use by another stream", |scene, blocks| {
            scene.device.allocator().record_use(&blocks[0], scene.slow)
        }),
        Meanwhile::new("events that complete", |scene, blocks| {
            scene.device.release(scene.slow);
            scene.device.backend().settle();
            scene.alloc(scene.own, 512, blocks)
        }),
        Meanwhile::new("statistics and a snapshot", |scene, _| {
            check_statistics(&scene.device.statistics());
            scene.device.allocator().snapshot();
            Ok(())
        }),
        Meanwhile::new("resets of the statistics", |scene, _| {
            scene.device.allocator().reset_peak_statistics();
            scene.device.allocator().reset_accumulated_statistics();
            Ok(())
        }),
        Meanwhile::new("a lower limit", |scene, _| {
            scene.device.allocator().set_memory_fraction(scene.device.allocator().memory_fraction() * 0.95)
        }),
        Meanwhile::new("the cache switched off", |scene, _| {
            let allocator = scene.device.allocator();
            allocator.set_config(allocator.config().updated("caching:False")?);
            Ok(())
        }),
        Meanwhile {
            waits_for_events: true,
            empties: true,
            maps: true,
            ..Meanwhile::new("empty_cache", |scene, _| scene.device.allocator().empty_cache())
        },
        Meanwhile {
            waits_for_events: true,
            takes: true,
            maps: true,
            ..Meanwhile::new("an allocation that needs much memory", |scene, blocks| {
                scene.alloc(scene.other, 100 * MIB, blocks)
            })
        },
    ]
}

/// Needs more memory than there is without the cached blocks and those that other streams use.
fn need_all(scene: Scene, blocks: &mut Blocks) -> Result<()> {
    scene.alloc(scene.own, 100 * MIB, blocks)
}

/// Leaves a freed block with a use for which no event could be recorded.
fn unrecorded_use(scene: Scene) -> Result<()> {
    let used = scene.device.alloc(512)?;
    scene.device.allocator().record_use(&used, scene.slow)?;
    scene.device.backend().fail_next(Call::Record, DriverErrorKind::Other);
    scene.device.free(used)
}

/// Empties the event pool, so that the next use asks the driver for a new event.
fn empty_event_pool(scene: Scene) -> Result<()> {
    let made = scene.device.calls(Call::Event);
    while scene.device.calls(Call::Event) == made {
        let used = scene.device.alloc(512)?;
        scene.device.allocator().record_use(&used, scene.slow)?;
        scene.device.free(used)?;
    }
    Ok(())
}
