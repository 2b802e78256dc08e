use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, Backend, GIB, MIB, Result, Statistics};

use super::report::{Checked, Outcome};
use super::section::Progress;
use crate::failure::Failure;
use crate::markdown::Table;
use crate::replay::{Outcome as Told, Replayer};
use crate::trace::{BUNDLED, Line};

/// Enough memory for every bundled trace. With less, the device must run out of memory where the simulated one does.
const ENOUGH: u64 = 16 * GIB;
/// The number of lines between two checks of the statistics.
const STEP: usize = 1000;

/// Replays the bundled traces on the device and on the simulated device, with equal memory. Each trace opens the device
/// again.
pub(super) fn check<B: Backend, R: Controls>(
    accelerator: &'static Accelerator<B>,
    open: impl Fn(Option<u64>) -> Result<R>,
    progress: &Progress,
) -> Checked {
    // Other programs may take some of the memory that is free now.
    let capacity = (accelerator.memory_info()?.free / 4 * 3 / MIB * MIB).min(ENOUGH);
    let largest = accelerator.properties().largest_allocation;
    let mut table = Table::new(["trace", "calls", "ns per call", "out of memory", "statistics"]);
    let mut wrong = Vec::new();
    for trace in &BUNDLED {
        progress.at(trace.name);
        let lines: Vec<Line> = trace.source()?.collect::<Result<_, _>>()?;
        let ended = replay(open(Some(capacity))?, trace.name, &lines)?;
        let simulated = Sim::new(capacity).with_largest_allocation(largest);
        let simulated = replay(simulated, trace.name, &lines)?;
        let difference = ended.difference_from(&simulated);
        table.add([
            trace.name.to_owned(),
            ended.calls.to_string(),
            (ended.nanoseconds / u128::from(ended.calls.max(1))).to_string(),
            ended.out_of_memory.len().to_string(),
            if difference.is_none() { "equal" } else { "DIFFERENT" }.to_owned(),
        ]);
        wrong.extend(difference.map(|difference| format!("{}: {difference}", trace.name)));
    }
    let note = format!(
        "All statistics were compared with those of the simulated device, every {STEP} lines and at the end. Each \
         device had {} MiB.",
        capacity / MIB
    );
    Ok(Outcome::of(format!("{table}\n{note}\n"), wrong))
}

/// The result of a replay.
struct Ended {
    /// The lines whose requests ran out of memory.
    out_of_memory: Vec<u64>,
    statistics: Vec<Statistics>,
    calls: u64,
    nanoseconds: u128,
}

fn replay<R: Controls>(device: R, trace: &str, lines: &[Line]) -> Result<Ended, Failure> {
    let mut replayer = Replayer::new(Accelerator::new(device, 0, AllocatorConfig::default())?, true);
    let (mut out_of_memory, mut statistics) = (Vec::new(), Vec::new());
    for (number, line) in lines.iter().enumerate() {
        let told = replayer.step(line).map_err(|error| Failure::in_line(trace, line.number, error))?;
        if let Told::OutOfMemory(id) = told {
            out_of_memory.push(id);
        }
        if (number + 1) % STEP == 0 || number + 1 == lines.len() {
            statistics.push(replayer.accelerator().allocator().statistics());
        }
    }
    let (calls, time) = replayer.operations();
    replayer.end()?;
    Ok(Ended { out_of_memory, statistics, calls, nanoseconds: time.unwrap_or_default().as_nanos() })
}

impl Ended {
    /// Describes the first difference.
    fn difference_from(&self, simulated: &Self) -> Option<String> {
        for (number, (ours, theirs)) in self.statistics.iter().zip(&simulated.statistics).enumerate() {
            let both = ours.entries().into_iter().zip(theirs.entries());
            if let Some((ours, theirs)) = both.into_iter().find(|(ours, theirs)| ours != theirs) {
                let lines = (number + 1) * STEP;
                let (key, ours) = ours;
                return Some(format!(
                    "`{key}` is {ours}, but {} on the simulated device, in the first {lines} lines",
                    theirs.1
                ));
            }
        }
        (self.out_of_memory != simulated.out_of_memory)
            .then(|| "the requests that ran out of memory differ from those on the simulated device".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_sim_opened_by(open: fn(Option<u64>) -> Result<Sim>) -> Outcome {
        let sim = Accelerator::new(Sim::default(), 0, AllocatorConfig::default()).unwrap();
        check(sim, open, &Progress::new()).unwrap()
    }

    #[test]
    fn a_device_that_behaves_as_the_simulated_one_is_equal() {
        let Outcome::Passed(text) = on_sim_opened_by(|capacity| Ok(Sim::new(capacity.unwrap()))) else {
            panic!("they are the same");
        };
        assert_eq!(text.matches("| equal").count() + text.matches("      equal |").count(), BUNDLED.len(), "{text}");
        assert!(text.contains("12288 MiB"), "three quarters of 16 GiB: {text}");
    }

    #[test]
    fn a_device_with_less_memory_than_it_says_is_found() {
        let Outcome::Failed(text, wrong) = on_sim_opened_by(|_| Ok(Sim::new(2 * GIB))) else {
            panic!("it has less");
        };
        assert!(text.contains("DIFFERENT"), "{text}");
        assert!(wrong[0].starts_with("gpt2_train: `"), "{wrong:?}");
    }
}
