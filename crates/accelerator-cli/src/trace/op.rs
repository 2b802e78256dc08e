use std::fmt;
use std::str::FromStr;

use accelerator_tracker::excerpt;

/// One operation of a trace.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are named by the format")]
pub enum Op {
    /// Allocates; 0 bytes are allowed.
    Alloc { id: u64, bytes: u64, stream: u32 },
    /// Frees.
    Free { id: u64 },
    /// Records that a stream uses an allocation.
    Record { id: u64, stream: u32 },
    /// Holds a stream, so that its work waits.
    Hold { stream: u32 },
    /// Releases a stream. A stream that is not held stays as it is.
    Release { stream: u32 },
    /// Synchronizes the device.
    Sync,
    /// Empties the cache.
    EmptyCache,
    /// Sets the peaks to the current values.
    ResetPeak,
    /// Sets the accumulated values to 0.
    ResetAccumulated,
    /// Prints the statistics.
    Stats,
    /// Prints segments and blocks.
    Snapshot,
    /// Prints free and total memory.
    MemInfo,
    /// Prints the size of the largest available block.
    CacheInfo,
    /// Prints the driver calls so far.
    Calls,
    /// Sets the device's memory.
    Capacity { bytes: u64 },
    /// Sets the allocator's settings.
    Conf { settings: String },
    /// Sets the memory fraction.
    Fraction { fraction: f64 },
    /// Makes the next driver allocations fail.
    FailMallocs { count: u64 },
}

/// Formats the operation as a line of a trace.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc { id, bytes, stream } => write!(f, "alloc {id} {bytes} {stream}"),
            Self::Free { id } => write!(f, "free {id}"),
            Self::Record { id, stream } => write!(f, "record {id} {stream}"),
            Self::Hold { stream } => write!(f, "hold {stream}"),
            Self::Release { stream } => write!(f, "release {stream}"),
            Self::Sync => f.write_str("sync"),
            Self::EmptyCache => f.write_str("empty_cache"),
            Self::ResetPeak => f.write_str("reset_peak"),
            Self::ResetAccumulated => f.write_str("reset_accumulated"),
            Self::Stats => f.write_str("stats"),
            Self::Snapshot => f.write_str("snapshot"),
            Self::MemInfo => f.write_str("meminfo"),
            Self::CacheInfo => f.write_str("cacheinfo"),
            Self::Calls => f.write_str("calls"),
            Self::Capacity { bytes } => write!(f, "capacity {bytes}"),
            Self::Conf { settings } if settings.is_empty() => write!(f, "conf"),
            Self::Conf { settings } => write!(f, "conf {settings}"),
            Self::Fraction { fraction } => write!(f, "fraction {fraction}"),
            Self::FailMallocs { count } => write!(f, "fail_mallocs {count}"),
        }
    }
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    expected: String,
    found: Option<String>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, ", self.expected)?;
        match &self.found {
            Some(found) => write!(f, "but found `{}`", excerpt(found)),
            None => f.write_str("but the line ends"),
        }
    }
}

impl std::error::Error for ParseError {}

/// Parses a line. Returns `None` if it is empty or a comment.
///
/// # Errors
/// [`ParseError`] says what was expected and what was found.
pub fn parse_line(line: &str) -> Result<Option<Op>, ParseError> {
    let code = line.split('#').next().unwrap_or_default();
    let mut words = Words(code.split_ascii_whitespace());
    let Some(op) = words.0.next() else { return Ok(None) };
    let op = match op {
        "alloc" => Op::Alloc { id: words.id()?, bytes: words.bytes()?, stream: words.stream()? },
        "free" => Op::Free { id: words.id()? },
        "record" => Op::Record { id: words.id()?, stream: words.stream()? },
        "hold" => Op::Hold { stream: words.stream()? },
        "release" => Op::Release { stream: words.stream()? },
        "sync" => Op::Sync,
        "empty_cache" => Op::EmptyCache,
        "reset_peak" => Op::ResetPeak,
        "reset_accumulated" => Op::ResetAccumulated,
        "stats" => Op::Stats,
        "snapshot" => Op::Snapshot,
        "meminfo" => Op::MemInfo,
        "cacheinfo" => Op::CacheInfo,
        "calls" => Op::Calls,
        "capacity" => Op::Capacity { bytes: words.bytes()? },
        "conf" => Op::Conf { settings: std::mem::replace(&mut words.0, "".split_ascii_whitespace()).collect() },
        "fraction" => Op::Fraction { fraction: words.next("a memory fraction")? },
        "fail_mallocs" => Op::FailMallocs { count: words.next("a number of driver allocations")? },
        _ => return Err(ParseError { expected: "an operation".to_owned(), found: Some(op.to_owned()) }),
    };
    match words.0.next() {
        None => Ok(Some(op)),
        Some(more) => Err(ParseError { expected: "the end of the line".to_owned(), found: Some(more.to_owned()) }),
    }
}

struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn id(&mut self) -> Result<u64, ParseError> {
        self.next("the number of an allocation")
    }

    fn bytes(&mut self) -> Result<u64, ParseError> {
        self.next("a number of bytes")
    }

    fn stream(&mut self) -> Result<u32, ParseError> {
        self.next("the number of a stream")
    }

    fn next<T: FromStr>(&mut self, expected: &str) -> Result<T, ParseError> {
        let word = self.0.next();
        let error = |found: Option<&str>| ParseError { expected: expected.to_owned(), found: found.map(str::to_owned) };
        word.ok_or_else(|| error(None))?.parse().map_err(|_| error(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let alloc = Op::Alloc { id: 7, bytes: 512, stream: 1 };
        assert_eq!(parse_line("alloc 7 512 1"), Ok(Some(alloc)));
        assert_eq!(parse_line("  free 7 # the last"), Ok(Some(Op::Free { id: 7 })));
        assert_eq!(parse_line("# step 3"), Ok(None));
        assert_eq!(parse_line(""), Ok(None));
        let conf = Op::Conf { settings: "max_split_size_mb:50,caching:True".to_owned() };
        assert_eq!(parse_line("conf max_split_size_mb:50, caching:True"), Ok(Some(conf)));
    }

    #[test]
    fn an_operation_is_written_as_its_line() {
        for line in [
            "alloc 7 512 1",
            "free 7",
            "record 7 2",
            "hold 2",
            "release 2",
            "sync",
            "empty_cache",
            "reset_peak",
            "reset_accumulated",
            "stats",
            "snapshot",
            "meminfo",
            "cacheinfo",
            "calls",
            "capacity 4096",
            "conf",
            "conf max_split_size_mb:50",
            "fraction 0.25",
            "fail_mallocs 3",
        ] {
            assert_eq!(parse_line(line).unwrap().unwrap().to_string(), line);
        }
    }

    #[test]
    fn a_malformed_line_says_what_was_expected() {
        for (line, message) in [
            ("allocate 1", "expected an operation, but found `allocate`"),
            ("alloc", "expected the number of an allocation, but the line ends"),
            ("alloc 1 -5 0", "expected a number of bytes, but found `-5`"),
            ("alloc 1 18446744073709551616 0", "expected a number of bytes, but found `18446744073709551616`"),
            ("alloc 1 5", "expected the number of a stream, but the line ends"),
            ("free 1 2", "expected the end of the line, but found `2`"),
            ("fraction half", "expected a memory fraction, but found `half`"),
        ] {
            assert_eq!(parse_line(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}
