//! `accel report`: a page, pictures and tables that show where the memory went.

mod input;
mod replayed;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use accelerator_core::{AllocatorConfig, Bytes, printable};
use accelerator_tracker::picture::{Profile, Series};
use accelerator_tracker::plot::{Along, ColorBy, Picture, PlotError, Theme};
use accelerator_tracker::{is_standard_output, perfetto, report};
use clap::{ArgGroup, Args, ValueEnum};

use super::outputs;
use super::reading::Reading;
use super::replay::{capacity, config};
use crate::failure::Failure;

/// The arguments of `accel report`.
#[derive(Args)]
#[command(group(ArgGroup::new("outputs").required(true).multiple(true).args(["output", "pictures", "perfetto"])))]
pub struct Arguments {
    /// A trace, a snapshot or a tracker file [default: the bundled training run of GPT-2]
    ///
    /// PyTorch or this project may have written the file. It may be compressed with gzip or zstd. `-` reads standard
    /// input. A snapshot needs memory of about ten times its size: if that is too much, record a shorter history, with
    /// `max_entries`.
    input: Option<PathBuf>,
    /// Write a page (.html) or a single picture (.svg or .png); may be repeated
    #[arg(short, long, value_name = "FILE", value_parser = output)]
    output: Vec<PathBuf>,
    /// Write all pictures to this folder, as SVG
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev and chrome://tracing
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// The picture for .svg and .png outputs [default: memory]
    #[arg(long, value_enum)]
    picture: Option<Choice>,
    /// Use dark colours for PNG; pages and SVGs follow the theme of the reader's system
    #[arg(long)]
    dark: bool,
    /// The device in the snapshot [default: the one with the longest history]
    #[arg(long)]
    device: Option<u32>,
    /// The memory of the simulated device that replays a trace; the trace may change it [default: 16GiB]
    #[arg(long, value_parser = capacity)]
    capacity: Option<u64>,
    /// Allocator settings for a trace, such as max_split_size_mb:64 [default: from the environment]
    #[arg(long, value_parser = config)]
    conf: Option<AllocatorConfig>,
    #[command(flatten)]
    reading: Reading,
}

/// A picture by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Allocated, active and reserved over operator calls
    Memory,
    /// Allocated, active and reserved over time
    MemoryOverTime,
    /// All three together, then each on its own, like PyTorch's `show_traces`
    Traces,
    /// Only allocated
    Allocated,
    /// Only active
    Active,
    /// Only reserved
    Reserved,
    /// The operators that allocate the most
    Largest,
    /// The segments at the peak of allocated memory, coloured by block state
    Segments,
    /// The same, coloured by block size
    SegmentsBySize,
    /// The same, coloured by the operator that allocated the block
    SegmentsByScope,
    /// Sizes of allocations
    Sizes,
    /// Lifetimes of allocations
    Lifetimes,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    arguments.check_outputs()?;
    let input = arguments.input.as_deref();
    outputs::check(arguments.output.iter().chain(&arguments.perfetto).map(PathBuf::as_path), input)?;
    let profile = input::profile(arguments)?;
    let choice = arguments.picture.unwrap_or(Choice::Memory);
    let picture = choice.of(&profile);
    if let Some(path) = arguments.output.iter().find(|path| extension(path) != "html") {
        choice.check(picture, &profile, path)?;
    }
    let theme = if arguments.dark { Theme::Dark } else { Theme::Light };
    for path in &arguments.output {
        if extension(path) == "html" {
            report::save(&profile, path)?;
        } else {
            save(picture, &profile, path, theme)?;
        }
        tell(path)?;
    }
    if let Some(folder) = &arguments.pictures {
        fs::create_dir_all(folder).map_err(|error| Failure::file(folder, error))?;
        let pictures = Picture::all(&profile).into_iter();
        let pictures: Vec<_> =
            pictures.map(|(name, picture)| (folder.join(name).with_extension("svg"), picture)).collect();
        outputs::check(pictures.iter().map(|(path, _)| path.as_path()), input)?;
        for (path, picture) in pictures {
            save(picture, &profile, &path, theme)?;
            tell(&path)?;
        }
    }
    if let Some(path) = &arguments.perfetto {
        perfetto::save(&profile, path)?;
        tell(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// Refuses options that no output uses.
    fn check_outputs(&self) -> Result<(), Failure> {
        let any = |endings: &[&str]| self.output.iter().any(|path| endings.contains(&extension(path).as_str()));
        let unused = |text: &str| Err(Failure::Usage(text.to_owned()));
        if self.dark && !any(&["png"]) {
            return unused(
                "`--dark` needs a PNG output, such as -o memory.png: pages and SVGs follow the reader's system",
            );
        }
        if self.picture.is_some() && !any(&["svg", "png"]) {
            return unused("`--picture` needs a .svg or .png output, such as -o memory.svg");
        }
        Ok(())
    }
}

fn save(picture: Picture, profile: &Profile, path: &Path, theme: Theme) -> Result<(), Failure> {
    picture.save(profile, path, theme).map_err(|error| match error {
        PlotError::Drawing(why) => Failure::NotDrawn { path: path.to_owned(), why },
        error => error.into(),
    })
}

/// Prints which file was written, unless it is standard output or not a regular file.
fn tell(path: &Path) -> Result<(), Failure> {
    let found = fs::metadata(path).map_err(|error| Failure::file(path, error))?;
    match found.is_file() && !is_standard_output(path) {
        true => Ok(writeln!(std::io::stdout(), "{}: {}", printable(path), Bytes(found.len()))?),
        false => Ok(()),
    }
}

fn output(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    match extension(&path).as_str() {
        "html" | "svg" | "png" => Ok(path),
        _ => Err("expected a file name that ends in .html, .svg or .png".to_owned()),
    }
}

fn extension(path: &Path) -> String {
    path.extension().map_or_else(String::new, |extension| extension.to_string_lossy().to_lowercase())
}

impl Choice {
    /// Refuses a picture that would be empty.
    fn check(self, picture: Picture, profile: &Profile, path: &Path) -> Result<(), Failure> {
        let lacks = match self {
            Self::MemoryOverTime => "times",
            Self::Segments | Self::SegmentsBySize | Self::SegmentsByScope => "segments",
            Self::Sizes | Self::Lifetimes => "individual allocations",
            Self::Memory | Self::Traces | Self::Allocated | Self::Active | Self::Reserved | Self::Largest => {
                return Ok(());
            }
        };
        match Picture::all(profile).iter().any(|(_, offered)| *offered == picture) {
            true => Ok(()),
            false => Err(Failure::NoPicture { path: path.to_owned(), name: profile.title.clone(), lacks }),
        }
    }

    fn of(self, profile: &Profile) -> Picture {
        const OPERATORS: usize = 20;
        let moment = profile.moment_of_the_peak();
        match self {
            Self::Memory => Picture::Memory(Along::Calls),
            Self::MemoryOverTime => Picture::Memory(Along::Time),
            Self::Traces => Picture::Traces,
            Self::Allocated => Picture::Series(Series::Allocated, Along::Calls),
            Self::Active => Picture::Series(Series::Active, Along::Calls),
            Self::Reserved => Picture::Series(Series::Reserved, Along::Calls),
            Self::Largest => Picture::Largest(OPERATORS),
            Self::Segments => Picture::Segments(moment, ColorBy::State),
            Self::SegmentsBySize => Picture::Segments(moment, ColorBy::Size),
            Self::SegmentsByScope => Picture::Segments(moment, ColorBy::Scope),
            Self::Sizes => Picture::Sizes,
            Self::Lifetimes => Picture::Lifetimes,
        }
    }
}
