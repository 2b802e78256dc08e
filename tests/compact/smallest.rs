//! The smallest device on which a job completes, beside the bytes that are live in it at once.

use accelerator_cli::replay::{Outcome, Replayer};
use accelerator_cli::trace::{Line, Source, live_at_peak};
use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, MIB};
use libtest_mimic::Failed;

use crate::replayed::Device;

/// The step of the search.
const STEP: u64 = 2 * MIB;
/// The settings that may need no smaller device than the policy. Only the first of them counts where the same memory
/// cannot be mapped twice.
const OTHERS: [&str; 4] = ["", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"];

/// The requests of a job.
pub(crate) struct Requests {
    lines: Vec<Line>,
    /// The most bytes that are live at once, each allocation rounded up to whole blocks.
    live: u64,
}

impl Requests {
    pub(crate) fn read(trace: Source) -> Result<Self, Failed> {
        let lines: Vec<Line> = trace.collect::<Result<_, _>>()?;
        let live = live_at_peak(&lines);
        Ok(Self { lines, live })
    }

    /// Returns the size of the smallest device over the live bytes, after checking that no other setting needs a
    /// smaller one.
    pub(crate) fn smallest_over_live(&self, device: Device, worst: f64) -> Result<f64, Failed> {
        let smallest = self.smallest("policy:compact", device, worst)?;
        let others = match device {
            Device::Maps => OTHERS.len(),
            Device::MapsOnce | Device::Plain => 1,
        };
        for other in &OTHERS[..others] {
            // Without virtual memory, a job may complete there by chance, and not on a slightly larger device.
            let is_chance = || {
                let needed = self.smallest(other, device, worst);
                device == Device::Plain && needed.map_or(true, |needed| needed >= smallest)
            };
            if self.completes(other, device, smallest - STEP)? && !is_chance() {
                return Err(format!("the smallest device has {smallest} bytes, but `{other}` needs less").into());
            }
        }
        Ok(smallest as f64 / self.live as f64)
    }

    /// Returns the capacity of the smallest device by bisection; see `compare::capacity` in `accel`.
    fn smallest(&self, settings: &str, device: Device, worst: f64) -> Result<u64, Failed> {
        let (mut too_small, mut enough) = (self.live / STEP * STEP, (self.live as f64 * worst) as u64 / STEP * STEP);
        if self.completes(settings, device, too_small)? {
            return Ok(too_small); // the live bytes are whole pages
        }
        if !self.completes(settings, device, enough)? {
            return Err(format!("{} bytes are live at once, but {enough} are not enough", self.live).into());
        }
        while enough - too_small > STEP {
            let middle = too_small + ((enough - too_small) / 2).next_multiple_of(STEP);
            match self.completes(settings, device, middle)? {
                true => enough = middle,
                false => too_small = middle,
            }
        }
        Ok(enough)
    }

    fn completes(&self, settings: &str, device: Device, capacity: u64) -> Result<bool, Failed> {
        let config = AllocatorConfig::default().updated(settings)?;
        let mut replayer = Replayer::new(Accelerator::new(device.with(Sim::new(capacity)), 0, config)?, false);
        for line in &self.lines {
            if let Outcome::OutOfMemory(_) = replayer.step(line)? {
                replayer.end()?;
                return Ok(false);
            }
        }
        replayer.end()?;
        Ok(true)
    }
}
