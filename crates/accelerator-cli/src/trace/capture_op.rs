use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use accelerator_core::CaptureMode;

use super::pool_op::PoolName;
use super::words::{ParseError, Words};

/// An operation on graphs and on the streams that they are captured from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by the format")]
pub enum CaptureOp {
    /// Sets the current stream.
    Current { stream: u32 },
    /// Launches a kernel.
    Launch { stream: u32 },
    /// Makes a stream wait for another one.
    Wait { stream: u32, other: u32 },
    /// Begins to capture a graph, whose memory comes from this pool.
    Begin { stream: u32, graph: u64, pool: PoolName, mode: CaptureMode },
    /// Ends the capture that began on this stream.
    End { stream: u32 },
    /// Makes a graph empty.
    Reset { graph: u64 },
}

impl CaptureOp {
    /// Parses the rest of a line that begins with this word. Returns `None` if the word is no such operation.
    pub(super) fn parse(word: &str, words: &mut Words<'_>) -> Result<Option<Self>, ParseError> {
        Ok(Some(match word {
            "current" => Self::Current { stream: words.stream()? },
            "launch" => Self::Launch { stream: words.stream()? },
            "wait" => Self::Wait { stream: words.stream()?, other: words.stream()? },
            "capture_begin" => {
                let stream: NonZeroU32 = words.next("the number of a stream other than 0")?;
                let graph = number_of_graph(words)?;
                let (mut pool, mut mode) = (PoolName::of_graph(graph), CaptureMode::Global);
                while let Some(word) = words.any() {
                    match mode_named(word) {
                        Some(named) => mode = named,
                        None => pool = word.parse().map_err(|_| ParseError::new(PoolName::EXPECTED, Some(word)))?,
                    }
                }
                Self::Begin { stream: stream.get(), graph, pool, mode }
            }
            "capture_end" => Self::End { stream: words.stream()? },
            "graph_reset" => Self::Reset { graph: number_of_graph(words)? },
            _ => return Ok(None),
        }))
    }
}

fn number_of_graph(words: &mut Words<'_>) -> Result<u64, ParseError> {
    words.next("the number of a graph, from 1").map(NonZeroU64::get)
}

fn mode_named(word: &str) -> Option<CaptureMode> {
    match word {
        "global" => Some(CaptureMode::Global),
        "thread_local" => Some(CaptureMode::ThreadLocal),
        "relaxed" => Some(CaptureMode::Relaxed),
        _ => None,
    }
}

/// Formats the operation as a line of a trace.
impl fmt::Display for CaptureOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current { stream } => write!(f, "current {stream}"),
            Self::Launch { stream } => write!(f, "launch {stream}"),
            Self::Wait { stream, other } => write!(f, "wait {stream} {other}"),
            Self::Begin { stream, graph, pool, mode } => {
                write!(f, "capture_begin {stream} {graph}")?;
                if *pool != PoolName::of_graph(*graph) {
                    write!(f, " {pool}")?;
                }
                match mode {
                    CaptureMode::Global => Ok(()),
                    CaptureMode::ThreadLocal => f.write_str(" thread_local"),
                    CaptureMode::Relaxed => f.write_str(" relaxed"),
                }
            }
            Self::End { stream } => write!(f, "capture_end {stream}"),
            Self::Reset { graph } => write!(f, "graph_reset {graph}"),
        }
    }
}
