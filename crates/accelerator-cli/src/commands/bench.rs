use std::io::Write;
use std::num::{NonZeroU32, NonZeroU64};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use accelerator_core::{AllocatorConfig, Backend, Error, printable};
use clap::{ArgAction, Args, ValueEnum};

use super::replay::config;
use crate::backends::{Backends, SIMULATED};
use crate::bench::{Bench, Effort, Scenario, header};
use crate::console::warn;
use crate::failure::Failure;

/// The most threads. With more, only the system's scheduler would be measured.
const MOST_THREADS: usize = 256;

const COUNTING: &str = "\
Columns:
  ns_per_op      wall time in ns, divided by the operations of all threads: the median of the repetitions
  min, max       the lowest and the highest of these values
  cpu_ns         CPU time of the threads, divided in the same way
  thread_ns      the time of an operation as one thread sees it
  device_allocs  driver allocations in all repetitions, 0 with a warm cache
  ops_per_rep    operations in a repetition

To count instructions, build with `cargo build --release` and run:
  valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*bench::counted*' accel bench -c small 2000
This counts the instructions of exactly 2000 operations. The loop itself adds 20 to 70 to each operation.
`callgrind_annotate` shows where the instructions are.";

/// The arguments of `accel bench`.
#[derive(Args)]
#[command(after_long_help = COUNTING)]
pub struct Arguments {
    /// What to measure [default: all scenarios]
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// The device to measure on; on sim, calls of the driver take no time
    #[arg(long, default_value = SIMULATED)]
    backend: String,
    /// Allocator settings, such as policy:compact [default: PyTorch's]
    #[arg(long, value_parser = config)]
    conf: Option<AllocatorConfig>,
    /// Numbers of threads
    #[arg(short, long, value_delimiter = ',', default_value = "1,2,4", value_parser = threads)]
    threads: Vec<usize>,
    /// Repetitions of each measurement
    #[arg(short, long, default_value = "7", value_parser = at_least_1::<NonZeroU32>)]
    reps: NonZeroU32,
    /// The approximate duration of a repetition
    #[arg(short, long, default_value = "200", value_parser = at_least_1::<NonZeroU32>)]
    milliseconds: NonZeroU32,
    /// Run this many operations on one thread, to count instructions; `lifo` runs whole rounds of 64
    #[arg(
        short,
        long,
        num_args = 2,
        value_names = ["SCENARIO", "OPS"],
        action = ArgAction::Set,
        conflicts_with_all = ["scenarios", "threads", "reps", "milliseconds"]
    )]
    count: Option<Vec<String>>,
}

pub(super) fn run(arguments: &Arguments, backends: &Backends) -> Result<ExitCode, Failure> {
    let backend = backends.named(&arguments.backend)?;
    match backend.name() {
        SIMULATED => measure(arguments, Bench::simulated()?),
        _ => measure(arguments, Bench::on(backend.accelerator()?)),
    }
}

fn measure<B: Backend>(arguments: &Arguments, mut bench: Bench<B>) -> Result<ExitCode, Failure> {
    if let Some(config) = arguments.conf {
        bench.set_config(config);
    }
    let mut out = std::io::stdout().lock();
    if let Some([scenario, ops]) = arguments.count.as_deref() {
        let (scenario, ops) = (scenario_of(scenario)?, ops_of(ops)?);
        let done = bench.count(scenario, ops.get())?;
        writeln!(out, "{scenario} ops {done}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let scenarios = match arguments.scenarios.as_slice() {
        [] => Scenario::value_variants(),
        some => some,
    };
    let length = Duration::from_millis(arguments.milliseconds.get().into());
    let effort = Effort { repetitions: arguments.reps.get(), length };
    writeln!(out, "{}", header(effort.repetitions))?;
    for scenario in scenarios {
        for threads in &arguments.threads {
            match bench.measure(*scenario, *threads, effort) {
                Ok(figures) => writeln!(out, "{figures}")?,
                Err(Failure::Accelerator(Error::OutOfMemory(_))) => {
                    warn(&format!("{scenario} on {threads} threads was left out: the device has too little memory"));
                }
                Err(failure) => return Err(failure),
            }
            out.flush()?; // show each line as soon as it is known
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|threads| (1..=MOST_THREADS).contains(threads));
    number.ok_or_else(|| format!("expected numbers of threads from 1 to {MOST_THREADS}, such as 1,2,4"))
}

fn at_least_1<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "expected a whole number of at least 1".to_owned())
}

fn scenario_of(text: &str) -> Result<Scenario, Failure> {
    Scenario::from_str(text, false).map_err(|_| {
        let names: Vec<_> = Scenario::value_variants().iter().map(Scenario::to_string).collect();
        in_count(text, &format!("expected one of {}", names.join(", ")))
    })
}

fn ops_of(text: &str) -> Result<NonZeroU64, Failure> {
    at_least_1(text).map_err(|expected| in_count(text, &expected))
}

/// Returns the same message as clap, which cannot check two values of different types.
fn in_count(text: &str, expected: &str) -> Failure {
    Failure::Usage(format!("invalid value '{}' for '--count <SCENARIO> <OPS>': {expected}", printable(text)))
}
