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
use crate::backends::{Backends, SIMULATED, USUAL, simulated};
use crate::compare::Setting;
use crate::console::warn;
use crate::convert::{Converted, Options, SnapshotFile};
use crate::failure::Failure;
use crate::replay::{MEMORY_OF_ALLOCATION, MEMORY_OF_STEP, Outcome, PlainOutput, Program, Replayer, Setup, Summary};
use crate::trace::{Line, Source, SourceError};

/// The options that a comparison does not have.
const OF_ONE_REPLAY: [&str; 6] = ["backend", "plain", "placements", "time", "time_calls", "snapshot"];

/// The arguments of `accel replay`.
#[derive(Args)]
pub struct Arguments {
    /// A trace, or a snapshot with a history; several with --compare [default: the bundled training run of GPT-2; with
    /// --compare all bundled traces]
    ///
    /// PyTorch or this project may have written the snapshot. The file may be compressed with gzip or zstd. `-` reads
    /// standard input.
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The device to replay on; with --plain, it is sim if none is named
    #[arg(long, default_value = USUAL, default_value_if("plain", "true", SIMULATED))]
    backend: String,
    /// The memory of the device, such as 16GiB; the trace may change it
    ///
    /// The default is 16GiB for host and sim, and all memory of the device for the other backends. For a snapshot it is
    /// the memory of the recorded device, and with --compare as much as is requested.
    #[arg(long, value_parser = capacity)]
    capacity: Option<u64>,
    /// Allocator settings, such as max_split_size_mb:64 [default: from the environment, or as recorded in the snapshot]
    ///
    /// With --compare these settings are compared with the others, and the option may be repeated.
    #[arg(long, value_parser = setting)]
    conf: Vec<Setting>,
    /// Print exactly what a replay through PyTorch's own allocator prints
    #[arg(long)]
    plain: bool,
    /// With --plain, also print the place of each allocation
    #[arg(short, long, requires = "plain")]
    placements: bool,
    /// Parse the trace first, then run it in one loop, and print the time of the loop on standard error
    ///
    /// It is printed as `loop_ns TOTAL ops N`. The loop leaves out lines that only print something, such as `stats`.
    #[arg(long, conflicts_with_all = ["plain", "placements", "snapshot"])]
    time: bool,
    /// Read the clock around each allocator operation, and print the sum of the times on standard error
    ///
    /// It is printed as `time_ns TOTAL ops N`, and includes one reading of the clock for each operation.
    #[arg(long, conflicts_with = "time")]
    time_calls: bool,
    /// The device in the snapshot [default: the one with the longest history]
    #[arg(long)]
    device: Option<u32>,
    /// Write a snapshot of the final state, with its history, for PyTorch's tools
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Compare several settings on a simulated device: reserved memory, cost, and the smallest device that is enough
    ///
    /// Several traces also get a summary. The lines `capacity`, `conf` and `fail_mallocs` of a trace are ignored,
    /// except for settings at its beginning, which are compared too. The environment is ignored.
    #[arg(long, conflicts_with_all = OF_ONE_REPLAY)]
    compare: bool,
    /// With --compare, print Markdown tables; several traces are shown with all settings side by side
    #[arg(long, requires = "compare", conflicts_with_all = OF_ONE_REPLAY)]
    markdown: bool,
    #[command(flatten)]
    reading: Reading,
}

pub(super) fn run(arguments: &Arguments, backends: &Backends) -> Result<ExitCode, Failure> {
    let Arguments { traces, device, capacity, conf, compare, markdown, reading, .. } = arguments;
    if *compare {
        return compare::run(traces, *device, *capacity, conf, *markdown, reading.limits());
    }
    if traces.len() > 1 || conf.len() > 1 {
        let several = if traces.len() > 1 { "traces" } else { "settings" };
        return Err(Failure::Usage(format!("several {several} need `--compare`: give only one, or add that option")));
    }
    let backend = backends.named(&arguments.backend)?;
    outputs::check(arguments.snapshot.as_deref(), traces.first().map(PathBuf::as_path))?;
    match backend.name() {
        SIMULATED => replay(arguments, |capacity| Ok(simulated(capacity))),
        _ => replay(arguments, |capacity| backend.replayed(capacity)),
    }
}

impl Arguments {
    /// Returns the memory that a line of the trace needs, in bytes.
    fn memory_of_line(&self, is_snapshot: bool) -> u64 {
        const HELD: u64 = 64;
        const IN_HISTORY: u64 = 256;
        let held = if self.time {
            HELD + MEMORY_OF_STEP
        } else if self.plain || is_snapshot {
            0
        } else {
            HELD
        };
        held + self.snapshot.as_ref().map_or(0, |_| IN_HISTORY)
    }
}

fn replay<R: Controls>(
    arguments: &Arguments,
    open: impl FnOnce(Option<u64>) -> accelerator_core::Result<R>,
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
        (None, Some(_)) => AllocatorConfig::default(), // the trace sets the recorded ones
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
    let timed = arguments.time_calls || !(arguments.plain || arguments.time);
    let replayer = Replayer::new(accelerator, timed).with_limits(arguments.reading.limits());
    let mut replay = Replay { trace, replayer };
    if arguments.time {
        replay.looped(lines, recorded.as_ref())?;
    } else if arguments.plain {
        replay.plain(lines, arguments.placements)?;
    } else {
        replay.with_summary(lines, recorded.as_ref())?;
    }
    if let (operations, Some(time)) = replay.replayer.operations()
        && (arguments.time || arguments.time_calls)
    {
        let name = if arguments.time { "loop_ns" } else { "time_ns" };
        writeln!(std::io::stderr(), "{name} {} ops {operations}", time.as_nanos())?;
    }
    if let Some(path) = &arguments.snapshot {
        let mut snapshot = MemorySnapshot::default();
        snapshot.add(accelerator.device(), accelerator.properties(), &accelerator.allocator().history());
        snapshot.write(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the input. Returns the trace, and, if it was converted from a snapshot, information about the snapshot.
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
    /// Replays line by line, so that a trace may come through a pipe.
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
        output.finish()?; // shows the output before a failure
        result
    }

    /// Reads all lines in advance, since the progress bar needs their number. For a snapshot it is already known.
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

    /// Reads and checks all lines in advance, and then runs them in one loop.
    fn looped(
        &mut self,
        lines: impl Iterator<Item = Result<Line, SourceError>>,
        recorded: Option<&Converted>,
    ) -> Result<(), Failure> {
        let failed = |(number, error)| Failure::in_line(&self.trace, number, error);
        let program = Program::new(lines.collect::<Result<Vec<_>, _>>()?).map_err(failed)?;
        let mut summary = Summary::beside(recorded);
        self.replayer.run(&program, |outcome| summary.add(outcome)).map_err(failed)?;
        Ok(write!(std::io::stdout(), "{}", summary.of(&self.trace, &self.replayer))?)
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
