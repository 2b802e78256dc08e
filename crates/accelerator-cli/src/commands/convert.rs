use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use accelerator_tracker::{FileError, write_whole};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::outputs;
use super::reading::Reading;
use crate::console::{tell, warn};
use crate::convert::{Converted, Options, SnapshotFile, Written, convert};
use crate::failure::Failure;

/// The arguments of `accel convert`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot, written by `torch.cuda.memory._dump_snapshot` or by this project
    ///
    /// The file may be compressed with gzip or zstd. `-` reads standard input.
    snapshot: PathBuf,
    /// Where to write the trace; compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The device in the snapshot [default: the one with the longest history]
    #[arg(long)]
    device: Option<u32>,
    #[command(flatten)]
    reading: Reading,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    outputs::check(arguments.output.as_deref(), Some(&arguments.snapshot))?;
    let opened = SnapshotFile::named(&arguments.snapshot, arguments.reading.limits())?;
    let mut snapshot = opened.map_err(|trace| Failure::NoSnapshot(trace.name().to_owned()))?;
    let options = Options { device: arguments.device, ..Options::default() };
    let converted = match &arguments.output {
        None => written(&mut snapshot, &options, io::stdout().lock())?.0,
        Some(path) => to_file(&mut snapshot, &options, path)?,
    };
    converted.warnings.iter().for_each(|warning| warn(warning));
    tell(format_args!("{} operations of device {}", converted.operations, converted.device));
    Ok(ExitCode::SUCCESS)
}

/// Writes the trace completely or not at all.
fn to_file(snapshot: &mut SnapshotFile, options: &Options, path: &Path) -> Result<Converted, Failure> {
    let mut converted = Converted::default();
    let result = write_whole(path, |out| {
        converted = to_output(snapshot, options, path, out).map_err(|failure| match failure {
            Failure::Output(error) => error,
            of_the_input => io::Error::other(of_the_input),
        })?;
        Ok(())
    });
    result.map(|()| converted).map_err(|error| match error {
        FileError::Io { path, doing, source } => match source.downcast::<Failure>() {
            Ok(of_the_input) => of_the_input,
            Err(source) => FileError::Io { path, doing, source }.into(),
        },
        error => error.into(),
    })
}

fn to_output(
    snapshot: &mut SnapshotFile,
    options: &Options,
    path: &Path,
    out: &mut dyn Write,
) -> Result<Converted, Failure> {
    if path.extension().is_some_and(|ending| ending == "gz") {
        let encoder = GzEncoder::new(out, Compression::default());
        let (converted, encoder) = written(snapshot, options, encoder)?;
        encoder.finish()?;
        return Ok(converted);
    }
    written(snapshot, options, out).map(|(converted, _)| converted)
}

/// Writes the trace as text.
pub(super) fn written<W: Write>(
    snapshot: &mut SnapshotFile,
    options: &Options,
    out: W,
) -> Result<(Converted, W), Failure> {
    let name = snapshot.name();
    let mut out = BufWriter::new(out);
    let mut write = |written: Written| match written {
        Written::Operation(op) => writeln!(out, "{op}"),
        Written::Comment(text) => writeln!(out, "# {text}"),
    };
    let converted = convert(snapshot, options, &mut write).map_err(|error| Failure::in_snapshot(&name, error))?;
    let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok((converted, out))
}
