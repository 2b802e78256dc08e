use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use super::capture_op::CaptureOp;
use super::pool_op::{PoolName, PoolOp};
use super::words::{ParseError, Words};

/// One operation of a trace.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are named by the format")]
pub enum Op {
    /// Allocates; 0 bytes are allowed.
    Alloc { id: u64, bytes: u64, stream: u32 },
    /// Allocates at an address, counted from the device's first.
    AllocAt { id: u64, bytes: u64, offset: u64, stream: u32 },
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
    /// An operation on a private memory pool.
    Pool(PoolOp),
    /// An operation on graphs and on the streams that they are captured from.
    Capture(CaptureOp),
}

/// Formats the operation as a line of a trace.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc { id, bytes, stream } => write!(f, "alloc {id} {bytes} {stream}"),
            Self::AllocAt { id, bytes, offset, stream } => write!(f, "alloc_at {id} {bytes} {offset:#x} {stream}"),
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
            Self::Pool(op) => op.fmt(f),
            Self::Capture(op) => op.fmt(f),
        }
    }
}

/// Parses a line. Returns `None` if it is empty or a comment.
///
/// # Errors
/// [`ParseError`] says what was expected and what was found.
pub fn parse_line(line: &str) -> Result<Option<Op>, ParseError> {
    let mut words = Words::of(line);
    let Some(op) = words.any() else { return Ok(None) };
    let op = match op {
        "alloc" => Op::Alloc { id: words.id()?, bytes: words.bytes()?, stream: words.stream()? },
        "alloc_at" => {
            let (id, bytes, Address(offset)) = (words.id()?, words.bytes()?, words.next("an address")?);
            Op::AllocAt { id, bytes, offset, stream: words.stream()? }
        }
        "free" => Op::Free { id: words.id()? },
        "record" => Op::Record { id: words.id()?, stream: words.stream()? },
        "hold" => Op::Hold { stream: words.stream()? },
        "release" => Op::Release { stream: words.stream()? },
        "sync" => Op::Sync,
        "empty_cache" => {
            words.or_end(PoolName::EXPECTED)?.map_or(Op::EmptyCache, |pool| Op::Pool(PoolOp::EmptyCache { pool }))
        }
        "reset_peak" => Op::ResetPeak,
        "reset_accumulated" => Op::ResetAccumulated,
        "stats" => Op::Stats,
        "snapshot" => {
            words.or_end(PoolName::EXPECTED)?.map_or(Op::Snapshot, |pool| Op::Pool(PoolOp::Snapshot { pool }))
        }
        "meminfo" => Op::MemInfo,
        "cacheinfo" => Op::CacheInfo,
        "calls" => Op::Calls,
        "capacity" => Op::Capacity { bytes: words.bytes()? },
        "conf" => Op::Conf { settings: words.joined() },
        "fraction" => Op::Fraction { fraction: words.next("a memory fraction")? },
        "fail_mallocs" => Op::FailMallocs { count: words.next("a number of driver allocations")? },
        other => {
            let pool = PoolOp::parse(other, &mut words)?.map(Op::Pool);
            let capture = CaptureOp::parse(other, &mut words)?.map(Op::Capture);
            pool.or(capture).ok_or_else(|| ParseError::new("an operation", Some(other)))?
        }
    };
    words.end()?;
    Ok(Some(op))
}

/// A decimal number, or a hexadecimal one after `0x`.
struct Address(u64);

impl FromStr for Address {
    type Err = ParseIntError;

    fn from_str(word: &str) -> Result<Self, ParseIntError> {
        word.strip_prefix("0x").map_or_else(|| word.parse(), |digits| u64::from_str_radix(digits, 16)).map(Self)
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
        let global = "capture_begin 1 7 global g7";
        assert_eq!(parse_line(global), parse_line("capture_begin 1 7"), "these are the defaults");
        assert_eq!(parse_line("alloc_at 1 2 16 0"), parse_line("alloc_at 1 2 0x10 0"));
        assert_eq!(parse_line("pause 1 nothing"), parse_line("pause 1"), "this is the default");
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
            "alloc_at 7 512 0x200000 1",
            "pool_create 1",
            "pool_create 2 use_on_oom no_split allocator",
            "pool_create 3 pausable",
            "pool_release 1",
            "pool_begin 1",
            "pool_begin g2 3",
            "pool_end g2",
            "pool_incref 1",
            "pool_decref 1",
            "use_on_oom 1 0",
            "use_on_oom 1 1",
            "no_split 1",
            "pool_uses 1",
            "pool_live 1",
            "pool_live 1 2 3",
            "empty_cache 1",
            "snapshot g7",
            "checkpoint g7 before",
            "restore g7 before",
            "pause 1",
            "pause g7 host",
            "pause 1 file",
            "resume 1",
            "resume 1 g7 2",
            "current 2",
            "launch 2",
            "wait 2 1",
            "capture_begin 1 7",
            "capture_begin 1 7 3 thread_local",
            "capture_begin 1 8 g7 relaxed",
            "capture_end 1",
            "graph_reset 7",
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
            ("alloc_at 1 512 0xg 0", "expected an address, but found `0xg`"),
            ("pool_begin 0", "expected a pool (N, or gN for the own pool of graph N), but found `0`"),
            ("pool_create 1 huge", "expected `use_on_oom`, `no_split`, `allocator` or `pausable`, but found `huge`"),
            ("pause", "expected a pool (N, or gN for the own pool of graph N), but the line ends"),
            ("pause 1 disk", "expected `nothing`, `host` or `file`, but found `disk`"),
            ("pause 1 host file", "expected the end of the line, but found `file`"),
            ("resume", "expected a pool (N, or gN for the own pool of graph N), but the line ends"),
            ("resume 1 host", "expected a pool (N, or gN for the own pool of graph N), but found `host`"),
            ("capture_begin 0 1", "expected the number of a stream other than 0, but found `0`"),
            ("capture_begin 1 0", "expected the number of a graph, from 1, but found `0`"),
            ("capture_begin 1 1 strict", "expected a pool (N, or gN for the own pool of graph N), but found `strict`"),
            ("restore 1", "expected the name of a checkpoint, but the line ends"),
            ("fraction half", "expected a memory fraction, but found `half`"),
        ] {
            assert_eq!(parse_line(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}
