//! Traces, and the histories that PyTorch's own allocator recorded for them: `data/history`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use accelerator_cli::trace::Bundled;

/// A trace and what is known of its history.
pub(crate) struct Recorded {
    /// `FOLDER::NAME`.
    pub(crate) name: String,
    /// Lines of the history and the segments.
    pub(crate) lines: usize,
    /// Their [`hash`].
    pub(crate) hash: u64,
}

/// All of them.
pub(crate) fn all() -> Vec<Recorded> {
    let digests =
        fs::read_to_string(data().join("history/digests.txt")).expect("tests/data/history/digests.txt");
    let read = |line: &str| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words");
        let (name, lines, hash) = (word().to_owned(), word().parse(), u64::from_str_radix(word(), 16));
        Recorded { name, lines: lines.expect("a number"), hash: hash.expect("a hash") }
    };
    digests.lines().map(read).collect()
}

impl Recorded {
    /// The trace.
    pub(crate) fn trace(&self) -> String {
        let path = data().join(self.path()).with_extension("trace.zst");
        if path.exists() {
            return decompressed(File::open(path).expect("a trace"));
        }
        let name =
            path.file_name().and_then(|name| name.to_str()).expect("a name").trim_end_matches(".trace.zst");
        decompressed(Bundled::named(name).expect("a bundled trace").file)
    }

    /// All lines that PyTorch recorded, settings too, of those traces of which they are kept.
    pub(crate) fn whole(&self) -> Option<String> {
        let path = data().join("history").join(self.path()).with_extension("txt.zst");
        path.exists().then(|| decompressed(File::open(path).expect("a history")))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(self.name.replace("::", "/"))
    }
}

/// FNV-1a of 64 bits, each line with its end.
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
    decoder.read_to_string(&mut text).expect("a text");
    text
}
