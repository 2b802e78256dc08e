use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use accelerator_conformance::Controls;
use accelerator_core::{Accelerator, AllocatorConfig, ContextsOf, Recording, parse_bytes};
use accelerator_tracker::Limits;
use accelerator_tracker::snapshot::MemorySnapshot;
use accelerator_tracker::temporary_file;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::convert::written;
use super::reading::Reading;
use super::{compare, outputs};
use crate::backends::{Choice, Job, Offered};
use crate::compare::Setting;
use crate::console::warn;
use crate::convert::{Converted, Options, SnapshotFile};
use crate::failure::Failure;
use crate::replay::{MEMORY_OF_ALLOCATION, Outcome, PlainOutput, Replayer, Setup, Summary};
use crate::trace::{Line, Source, SourceError};

/// What to replay, and how.
#[derive(Args)]
pub struct Arguments {
    /// A trace, or a snapshot with its history from PyTorch or from here, as a file, plain or compressed with gzip or
    /// zstd, or `-` for standard input; several with --compare [default: the bundled training run of GPT-2; with
    /// --compare all bundled traces]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The device to replay on [default: host; with --plain sim]
    #[arg(long, value_enum)]
    backend: Option<Choice>,
    /// Memory of the device at the start, such as 16GiB; the trace may change it [default: 16GiB; on a device with a
    /// driver, all that it has; for a snapshot, what the recorded device had; with --compare, as much as is requested]
    #[arg(long, value_parser = capacity)]
    capacity: Option<u64>,
    /// Allocator settings, such as max_split_size_mb:64; with --compare further settings, and the option may be
    /// repeated [default: those of the environment; for a snapshot, those that were recorded]
    #[arg(long, value_parser = setting)]
    conf: Vec<Setting>,
    /// Print line for line what a replay through PyTorch's own allocator prints
    #[arg(long)]
    plain: bool,
    /// With --plain, print the place of each allocation
    #[arg(short, long, requires = "plain")]
    placements: bool,
    /// Print the time of the allocator's operations on standard error
    #[arg(long)]
    time: bool,
    /// The device of a snapshot [default: the one with the longest history]
    #[arg(long)]
    device: Option<u32>,
    /// Write a snapshot of the end of the replay, with its history, that PyTorch's tools read
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Replay under several settings on a simulated device, and show for each the memory that it reserves, its cost,
    /// and the smallest device that it needs; for several traces also a summary. Lines `capacity`, `conf` and
    /// `fail_mallocs` of a trace are ignored, except for the settings at its beginning, which are compared too; the
    /// environment is ignored
    #[arg(long, conflicts_with_all = ["backend", "plain", "placements", "time", "snapshot"])]
    compare: bool,
    /// With --compare, print the tables as Markdown; for several traces all settings side by side
    #[arg(long, requires = "compare")]
    markdown: bool,
    #[command(flatten)]
    reading: Reading,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { traces, device, capacity, conf, compare, markdown, reading, .. } = arguments;
    if *compare {
        return compare::run(traces, *device, *capacity, conf, *markdown, reading.limits());
    }
    if traces.len() > 1 || conf.len() > 1 {
        let several = if traces.len() > 1 { "traces" } else { "settings" };
        return Err(Failure::Usage(format!("several {several} need `--compare`: give one, or add that option")));
    }
    let default = if arguments.plain { Choice::Sim } else { Choice::Host };
    outputs::check(arguments.snapshot.as_deref(), traces.first().map(PathBuf::as_path))?;
    arguments.backend.unwrap_or(default).run(arguments)
}

impl Arguments {
    /// Bytes of memory for a line of the trace.
    fn memory_of_line(&self, is_snapshot: bool) -> u64 {
        const HELD: u64 = 64;
        const IN_HISTORY: u64 = 256;
        let held = if self.plain || is_snapshot { 0 } else { HELD };
        held + self.snapshot.as_ref().map_or(0, |_| IN_HISTORY)
    }
}

impl Job for &Arguments {
    type Outcome = Result<ExitCode, Failure>;

    fn with<B: Offered>(self) -> Self::Outcome {
        replay(self, B::replayed)
    }
}

fn replay<R: Controls>(
    arguments: &Arguments,
    open: fn(Option<u64>) -> accelerator_core::Result<R>,
) -> Result<ExitCode, Failure> {
    let conf = arguments.conf.first();
    let options =
        Options { device: arguments.device, settings: conf.is_none(), refusals: arguments.capacity.is_none() };
    let (mut lines, recorded) =
        input(arguments.traces.first().map(PathBuf::as_path), &options, arguments.reading.limits())?;
    lines.charge(arguments.memory_of_line(recorded.is_some()), MEMORY_OF_ALLOCATION);
    let trace = lines.name().to_owned();
    let config = match (conf, &recorded) {
        (Some(setting), _) => setting.config,
        (None, Some(_)) => AllocatorConfig::default(), // the recorded ones follow
        (None, None) => AllocatorConfig::from_environment()?,
    };
    let mut setup = Setup { capacity: arguments.capacity, config };
    let first = setup.take_from(&mut lines)?;
    let device = open(setup.capacity)?;
    let accelerator = Accelerator::new(device, 0, setup.config)?;
    if arguments.snapshot.is_some() {
        let recording = Recording { max_entries: usize::MAX, contexts: ContextsOf::State, capture: None };
        accelerator.allocator().record_history(Some(recording));
    }
    let lines = first.into_iter().map(Ok).chain(lines);
    let timed = arguments.time || !arguments.plain;
    let mut replay = Replay { trace, replayer: Replayer::new(accelerator, timed) };
    if arguments.plain {
        replay.plain(lines, arguments.placements)?;
    } else {
        replay.with_summary(lines, recorded.as_ref())?;
    }
    if let (true, (operations, Some(time))) = (arguments.time, replay.replayer.operations()) {
        writeln!(std::io::stderr(), "time_ns {} ops {operations}", time.as_nanos())?;
    }
    if let Some(path) = &arguments.snapshot {
        let mut snapshot = MemorySnapshot::default();
        snapshot.add(accelerator.device(), accelerator.properties(), &accelerator.allocator().history());
        snapshot.write(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The trace, and what is known of the snapshot from which it was made.
pub(super) fn input(
    path: Option<&Path>,
    options: &Options,
    limits: Limits,
) -> Result<(Source, Option<Converted>), Failure> {
    let opened = match path {
        None => Err(Source::bundled()?),
        Some(path) => SnapshotFile::named(path, limits)?,
    };
    let mut snapshot = match opened {
        Ok(snapshot) => snapshot,
        Err(trace) if options.device.is_some() => {
            return Err(Failure::unused("--device", trace.name(), "a trace"));
        }
        Err(trace) => return Ok((trace, None)),
    };
    let name = snapshot.name();
    let spooling = |error| Failure::Spool { name: name.clone(), error };
    let written = written(&mut snapshot, options, temporary_file().map_err(spooling)?);
    let (converted, mut file) = written.map_err(|failure| match failure {
        Failure::Output(error) => spooling(error),
        of_the_input => of_the_input,
    })?;
    converted.warnings.iter().for_each(|warning| warn(warning));
    file.rewind().map_err(spooling)?;
    Ok((Source::from_file(&name, file, limits)?, Some(converted)))
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
        output.finish()?; // shows what came before a failure
        result
    }

    /// Reads everything in advance, since the progress bar needs the number of lines. For a snapshot it is known
    /// already.
    fn with_summary(
        &mut self,
        lines: impl Iterator<Item = Result<Line, SourceError>>,
        recorded: Option<&Converted>,
    ) -> Result<(), Failure> {
        if let Some(converted) = recorded {
            return self.counted(converted.operations, lines, Summary::beside(recorded));
        }
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        self.counted(lines.len() as u64, lines.into_iter().map(Ok), Summary::default())
    }

    fn counted(
        &mut self,
        count: u64,
        lines: impl Iterator<Item = Result<Line, SourceError>>,
        mut summary: Summary,
    ) -> Result<(), Failure> {
        let bar = ProgressBar::new(count).with_style(style());
        for (done, line) in (0_u64..).zip(lines) {
            summary.add(&self.step(&line?)?);
            if done % 1024 == 0 {
                bar.set_position(done);
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

pub(super) fn capacity(text: &str) -> Result<u64, String> {
    parse_bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size, such as 16GiB".to_owned())
}

fn setting(text: &str) -> Result<Setting, String> {
    Setting::read(text).map_err(|error| error.to_string())
}

pub(super) fn config(text: &str) -> Result<AllocatorConfig, String> {
    AllocatorConfig::default().updated(text).map_err(|error| error.to_string())
}
