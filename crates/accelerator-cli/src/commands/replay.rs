use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use accelerator_conformance::Controls;
use accelerator_core::{Accelerator, AllocatorConfig, parse_bytes};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::backends::{Choice, Job, Offered};
use crate::failure::Failure;
use crate::replay::{Outcome, PlainOutput, Replayer, Setup, Summary};
use crate::trace::{Line, Source, SourceError};

/// What to replay, and how.
#[derive(Args)]
pub struct Arguments {
    /// The trace: a file, plain or compressed with gzip or zstd, or `-` for standard input [default: the bundled
    /// training run of GPT-2]
    trace: Option<PathBuf>,
    /// The device to replay on [default: host; with --plain sim]
    #[arg(long, value_enum)]
    backend: Option<Choice>,
    /// Memory of the device, as 16GiB, before what the trace says [default: 16GiB; on a
    /// device with a driver, all that it has]
    #[arg(long, value_parser = capacity)]
    capacity: Option<u64>,
    /// Allocator settings, as max_split_size_mb:64 [default: those of the environment]
    #[arg(long, value_parser = config)]
    conf: Option<AllocatorConfig>,
    /// Print line for line what a replay through PyTorch's own allocator prints
    #[arg(long)]
    plain: bool,
    /// With --plain, print where each allocation lies
    #[arg(short, long, requires = "plain")]
    placements: bool,
    /// Print the time of the allocator's operations on standard error
    #[arg(long)]
    time: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let default = if arguments.plain { Choice::Sim } else { Choice::Host };
    arguments.backend.unwrap_or(default).run(arguments)
}

impl Job for &Arguments {
    type Outcome = Result<ExitCode, Failure>;

    fn with<B: Offered>(self) -> Self::Outcome {
        replay::<B>(self)
    }
}

fn replay<B: Offered>(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut lines = match &arguments.trace {
        None => Source::bundled()?,
        Some(path) if path.as_os_str() == "-" => Source::standard_input()?,
        Some(path) => Source::open(path)?,
    };
    let trace = lines.name().to_owned();
    let config = arguments.conf.map_or_else(AllocatorConfig::from_environment, Ok)?;
    let mut setup = Setup { capacity: arguments.capacity, config };
    let first = setup.take_from(&mut lines)?;
    let device = B::replayed(setup.capacity)?;
    let accelerator = Accelerator::new(device, 0, setup.config)?;
    let lines = first.into_iter().map(Ok).chain(lines);
    let timed = arguments.time || !arguments.plain;
    let mut replay = Replay { trace, replayer: Replayer::new(accelerator, timed) };
    if arguments.plain {
        replay.plain(lines, arguments.placements)?;
    } else {
        replay.with_summary(lines)?;
    }
    if let (true, (operations, Some(time))) = (arguments.time, replay.replayer.operations()) {
        eprintln!("time_ns {} ops {operations}", time.as_nanos());
    }
    Ok(ExitCode::SUCCESS)
}

struct Replay<B: Controls> {
    trace: String,
    replayer: Replayer<B>,
}

impl<B: Controls> Replay<B> {
    /// Line by line, so that a trace may come through a pipe.
    fn plain(
        &mut self,
        mut lines: impl Iterator<Item = Result<Line, SourceError>>,
        placements: bool,
    ) -> Result<(), Failure> {
        let mut output = PlainOutput::new(BufWriter::new(std::io::stdout().lock()), placements);
        let result = lines.try_for_each(|line| {
            let line = line?;
            let outcome = self.step(&line)?;
            Ok(output.write(line.number, &outcome)?)
        });
        output.finish()?; // what came before a failure is told
        result
    }

    /// All lines are read first, so that the progress bar knows its end.
    fn with_summary(
        &mut self,
        lines: impl Iterator<Item = Result<Line, SourceError>>,
    ) -> Result<(), Failure> {
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let bar = ProgressBar::new(lines.len() as u64).with_style(style());
        let mut summary = Summary::default();
        for (done, line) in lines.iter().enumerate() {
            summary.add(&self.step(line)?);
            if done % 1024 == 0 {
                bar.set_position(done as u64);
            }
        }
        bar.finish_and_clear();
        Ok(write!(std::io::stdout(), "{}", summary.of(&self.trace, &self.replayer))?)
    }

    fn step(&mut self, line: &Line) -> Result<Outcome, Failure> {
        self.replayer.step(line).map_err(|error| Failure::in_line(&self.trace, line.number, error))
    }
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} lines, {eta} left");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn capacity(text: &str) -> Result<u64, String> {
    parse_bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size, as 16GiB".to_owned())
}

fn config(text: &str) -> Result<AllocatorConfig, String> {
    AllocatorConfig::default().updated(text).map_err(|error| error.to_string())
}
