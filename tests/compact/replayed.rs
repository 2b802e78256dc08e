//! Replays a job on a simulated device with unlimited memory, under the policy `compact`.

use accelerator_cli::replay::{Outcome, Replayer};
use accelerator_cli::trace::Source;
use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, GIB};
use libtest_mimic::Failed;

use crate::steps::Steps;

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// With virtual memory.
    Maps,
    /// With virtual memory that can be mapped at only one address at a time.
    MapsOnce,
    /// Without virtual memory.
    Plain,
}

impl Device {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Maps => "maps",
            Self::MapsOnce => "maps_once",
            Self::Plain => "plain",
        }
    }

    /// Returns a simulated device of this kind.
    pub(crate) fn with(self, sim: Sim) -> Sim {
        match self {
            Self::Maps => sim,
            Self::MapsOnce => sim.without_second_mappings(),
            Self::Plain => sim.without_virtual_memory(),
        }
    }
}

/// The result of a replay.
pub(crate) struct Replayed {
    /// Peak bytes.
    pub(crate) reserved: u64,
    /// Device calls, as the statistics count them.
    pub(crate) device_calls: u64,
    /// The steps that repeat the previous one, each with the number of its driver calls, as the driver counts them.
    pub(crate) repeated_steps: Vec<(String, u64)>,
}

/// The driver calls that concern memory.
const FOR_MEMORY: [Call; 8] =
    [Call::Alloc, Call::Dealloc, Call::Reserve, Call::Release, Call::Create, Call::Destroy, Call::Map, Call::Unmap];

pub(crate) fn replay(mut trace: Source, device: Device) -> Result<Replayed, Failed> {
    let config = AllocatorConfig::default().updated("policy:compact")?;
    let mut replayer = Replayer::new(Accelerator::new(device.with(Sim::new(1024 * GIB)), 0, config)?, false);
    let backend = replayer.accelerator().backend();
    let calls = || FOR_MEMORY.iter().map(|call| backend.calls().of(*call)).sum::<u64>();

    let (mut calls_before, mut repeated_steps) = (0, Vec::new());
    let mut end_step = |name: String, steps: &mut Steps| {
        let calls_until = calls();
        if steps.end() {
            repeated_steps.push((name, calls_until - calls_before));
        }
        calls_before = calls_until;
    };

    let (mut steps, mut name) = (Steps::default(), "start".to_owned());
    while let Some(line) = trace.next() {
        let line = line?;
        for mark in trace.comments().iter().filter(|comment| comment.starts_with("step ")) {
            let ended = std::mem::replace(&mut name, mark.clone());
            end_step(ended, &mut steps);
        }
        steps.ask(&line.op);
        if let Outcome::OutOfMemory(id) = replayer.step(&line)? {
            return Err(format!("line {}: {id} is out of memory", line.number).into());
        }
    }
    end_step(name, &mut steps);

    let statistics = replayer.accelerator().allocator().statistics();
    replayer.end()?;
    Ok(Replayed {
        reserved: statistics.reserved_bytes.all.peak.try_into()?,
        device_calls: (statistics.num_device_alloc + statistics.num_device_free).try_into()?,
        repeated_steps,
    })
}
