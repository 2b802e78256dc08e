//! Traces, and the histories that PyTorch's own allocator recorded for them: `data/history`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use accelerator_cli::trace::Bundled;

/// A trace with a digest of its history.
pub(crate) struct Recorded {
    /// `FOLDER::NAME`, followed by `::expandable` where the trace is preceded by settings that enable expandable
    /// segments.
    pub(crate) name: String,
    /// The number of lines of the history and the segments.
    pub(crate) lines: usize,
    /// The [`hash`] of these lines.
    pub(crate) hash: u64,
}

/// Returns all recordings.
pub(crate) fn all() -> Vec<Recorded> {
    let digests = fs::read_to_string(data().join("history/digests.txt")).expect("tests/data/history/digests.txt");
    let read = |line: &str| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words");
        let (name, lines, hash) = (word().to_owned(), word().parse(), u64::from_str_radix(word(), 16));
        Recorded { name, lines: lines.expect("a number"), hash: hash.expect("a hash") }
    };
    digests.lines().map(read).collect()
}

impl Recorded {
    /// Returns the trace.
    pub(crate) fn trace(&self) -> String {
        match self.name.strip_suffix("::expandable") {
            Some(name) => format!("conf expandable_segments:True\n{}", trace(name)),
            None => trace(&self.name),
        }
    }

    /// Returns all lines that PyTorch recorded, including settings, for the traces whose lines are stored.
    pub(crate) fn whole(&self) -> Option<String> {
        let file = format!("{}.txt.zst", self.name.replace("::expandable", ".expandable").replace("::", "/"));
        let path = data().join("history").join(file);
        path.exists().then(|| decompressed(File::open(path).expect("a history")))
    }
}

fn trace(name: &str) -> String {
    let path = data().join(format!("{}.trace.zst", name.replace("::", "/")));
    if path.exists() {
        return decompressed(File::open(path).expect("a trace"));
    }
    let name = name.trim_start_matches("models::");
    decompressed(Bundled::named(name).expect("a bundled trace").file)
}

/// Returns the 64-bit FNV-1a hash of the lines, each with its line end.
pub(crate) fn hash(lines: &[String]) -> u64 {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

fn decompressed(compressed: impl Read) -> String {
    let mut text = String::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(compressed).expect("zstd");
    decoder.read_to_string(&mut text).expect("a text file");
    text
}
