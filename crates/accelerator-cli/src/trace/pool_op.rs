use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use accelerator_core::MemPoolId;

use super::words::{ParseError, Words};

/// An operation on a private memory pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by the format")]
pub enum PoolOp {
    /// Makes a pool.
    Create { pool: PoolName, options: Vec<PoolOption> },
    /// Drops the handle of a pool.
    Release { pool: PoolName },
    /// Sends requests to a pool: those of a stream, or all.
    Begin { pool: PoolName, stream: Option<u32> },
    /// Ends `Begin`.
    End { pool: PoolName },
    /// Adds a use.
    Retain { pool: PoolName },
    /// Takes back a use, without giving free memory to the driver.
    Drop { pool: PoolName },
    /// Sets whether the pool's free blocks serve other requests when memory runs out.
    UseOnOom { pool: PoolName, on: bool },
    /// Makes the pool hand out its blocks whole.
    NoSplit { pool: PoolName },
    /// Gives the free memory of a pool without uses to the driver.
    EmptyCache { pool: PoolName },
    /// Prints the number of uses.
    Uses { pool: PoolName },
    /// Prints whether exactly these allocations are live in the pool.
    Live { pool: PoolName, ids: Vec<u64> },
    /// Prints the segments and blocks of the pool.
    Snapshot { pool: PoolName },
    /// Notes the state of the pool.
    Checkpoint { pool: PoolName, name: String },
    /// Sets the pool back to a state.
    Restore { pool: PoolName, name: String },
    /// Gives the memory of the pool back to the driver, but not its addresses.
    Pause { pool: PoolName, keep: PoolKeep },
    /// Maps memory at the addresses of paused pools: of all of them or of none.
    Resume { pool: PoolName, others: Vec<PoolName> },
}

/// A property of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOption {
    /// See [`PoolOp::UseOnOom`].
    UseOnOom,
    /// See [`PoolOp::NoSplit`].
    NoSplit,
    /// The pool takes its segments from an allocator of its own.
    Allocator,
    /// See [`PoolOp::Pause`].
    Pausable,
}

/// Where the contents of a paused pool are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKeep {
    /// They are discarded.
    #[default]
    Nothing,
    /// In pinned host memory.
    Host,
    /// In a temporary file.
    File,
}

/// A pool as a trace names it: `N` is a pool of the program, `gN` the own pool of graph N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName(MemPoolId);

impl PoolName {
    /// What a line should have in place of another word.
    pub(super) const EXPECTED: &str = "a pool (N, or gN for the own pool of graph N)";

    /// Returns the own pool of a graph.
    pub const fn of_graph(graph: u64) -> Self {
        Self(MemPoolId::new(graph, 0))
    }

    /// Returns the number of the pool in the allocator.
    pub const fn id(self) -> MemPoolId {
        self.0
    }
}

impl PoolOp {
    /// Parses the rest of a line that begins with this word. Returns `None` if the word is no operation on a pool.
    pub(super) fn parse(word: &str, words: &mut Words<'_>) -> Result<Option<Self>, ParseError> {
        let mut pool = || words.next(PoolName::EXPECTED);
        Ok(Some(match word {
            "pool_create" => {
                let pool = pool()?;
                Self::Create { pool, options: words.rest("`use_on_oom`, `no_split`, `allocator` or `pausable`")? }
            }
            "pool_release" => Self::Release { pool: pool()? },
            "pool_begin" => Self::Begin { pool: pool()?, stream: words.or_end("the number of a stream")? },
            "pool_end" => Self::End { pool: pool()? },
            "pool_incref" => Self::Retain { pool: pool()? },
            "pool_decref" => Self::Drop { pool: pool()? },
            "use_on_oom" => Self::UseOnOom { pool: pool()?, on: words.next::<u8>("0 or 1")? != 0 },
            "no_split" => Self::NoSplit { pool: pool()? },
            "pool_uses" => Self::Uses { pool: pool()? },
            "pool_live" => Self::Live { pool: pool()?, ids: words.rest("the number of an allocation")? },
            "checkpoint" => Self::Checkpoint { pool: pool()?, name: words.next("the name of a checkpoint")? },
            "restore" => Self::Restore { pool: pool()?, name: words.next("the name of a checkpoint")? },
            "pause" => {
                let pool = pool()?;
                Self::Pause { pool, keep: words.or_end("`nothing`, `host` or `file`")?.unwrap_or_default() }
            }
            "resume" => Self::Resume { pool: pool()?, others: words.rest(PoolName::EXPECTED)? },
            _ => return Ok(None),
        }))
    }

    /// Returns the pool, or the first of several.
    pub fn pool(&self) -> PoolName {
        match self {
            Self::Create { pool, .. }
            | Self::Release { pool }
            | Self::Begin { pool, .. }
            | Self::End { pool }
            | Self::Retain { pool }
            | Self::Drop { pool }
            | Self::UseOnOom { pool, .. }
            | Self::NoSplit { pool }
            | Self::EmptyCache { pool }
            | Self::Uses { pool }
            | Self::Live { pool, .. }
            | Self::Snapshot { pool }
            | Self::Checkpoint { pool, .. }
            | Self::Restore { pool, .. }
            | Self::Pause { pool, .. }
            | Self::Resume { pool, .. } => *pool,
        }
    }

    /// Returns whether it only prints.
    pub fn only_prints(&self) -> bool {
        matches!(self, Self::Uses { .. } | Self::Live { .. } | Self::Snapshot { .. })
    }
}

/// Formats the operation as a line of a trace.
impl fmt::Display for PoolOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { pool, options } => {
                write!(f, "pool_create {pool}")?;
                options.iter().try_for_each(|option| write!(f, " {option}"))
            }
            Self::Release { pool } => write!(f, "pool_release {pool}"),
            Self::Begin { pool, stream: None } => write!(f, "pool_begin {pool}"),
            Self::Begin { pool, stream: Some(stream) } => write!(f, "pool_begin {pool} {stream}"),
            Self::End { pool } => write!(f, "pool_end {pool}"),
            Self::Retain { pool } => write!(f, "pool_incref {pool}"),
            Self::Drop { pool } => write!(f, "pool_decref {pool}"),
            Self::UseOnOom { pool, on } => write!(f, "use_on_oom {pool} {}", u8::from(*on)),
            Self::NoSplit { pool } => write!(f, "no_split {pool}"),
            Self::EmptyCache { pool } => write!(f, "empty_cache {pool}"),
            Self::Uses { pool } => write!(f, "pool_uses {pool}"),
            Self::Live { pool, ids } => {
                write!(f, "pool_live {pool}")?;
                ids.iter().try_for_each(|id| write!(f, " {id}"))
            }
            Self::Snapshot { pool } => write!(f, "snapshot {pool}"),
            Self::Checkpoint { pool, name } => write!(f, "checkpoint {pool} {name}"),
            Self::Restore { pool, name } => write!(f, "restore {pool} {name}"),
            Self::Pause { pool, keep: PoolKeep::Nothing } => write!(f, "pause {pool}"),
            Self::Pause { pool, keep } => write!(f, "pause {pool} {keep}"),
            Self::Resume { pool, others } => {
                write!(f, "resume {pool}")?;
                others.iter().try_for_each(|other| write!(f, " {other}"))
            }
        }
    }
}

impl fmt::Display for PoolOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UseOnOom => "use_on_oom",
            Self::NoSplit => "no_split",
            Self::Allocator => "allocator",
            Self::Pausable => "pausable",
        })
    }
}

impl FromStr for PoolOption {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "use_on_oom" => Ok(Self::UseOnOom),
            "no_split" => Ok(Self::NoSplit),
            "allocator" => Ok(Self::Allocator),
            "pausable" => Ok(Self::Pausable),
            _ => Err(()),
        }
    }
}

impl fmt::Display for PoolKeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Host => "host",
            Self::File => "file",
        })
    }
}

impl FromStr for PoolKeep {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "nothing" => Ok(Self::Nothing),
            "host" => Ok(Self::Host),
            "file" => Ok(Self::File),
            _ => Err(()),
        }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.numbers() {
            (0, number) => write!(f, "{number}"),
            (graph, _) => write!(f, "g{graph}"),
        }
    }
}

impl FromStr for PoolName {
    type Err = std::num::ParseIntError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word.strip_prefix('g') {
            Some(graph) => graph.parse().map(|graph: NonZeroU64| Self::of_graph(graph.get())),
            None => word.parse().map(|number: NonZeroU64| Self(MemPoolId::new(0, number.get()))),
        }
    }
}
