use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::printable;

/// The number of a memory pool. PyTorch: `MempoolId_t`, a pair of numbers.
///
/// Pools that a program makes are `(0, n)`, those that graphs make for themselves `(n, 0)`, with `n` from 1. Numbers
/// are not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemPoolId(u64, u64);

static USERS: AtomicU64 = AtomicU64::new(1);
static GRAPHS: AtomicU64 = AtomicU64::new(1);

impl MemPoolId {
    /// The memory outside of all private pools: `(0, 0)`.
    pub const DEFAULT: Self = Self(0, 0);

    /// The pool with these numbers, whether or not it exists.
    pub const fn new(graph: u64, user: u64) -> Self {
        Self(graph, user)
    }

    /// Returns a number that no pool of a program has had. PyTorch: `MemPool(is_user_created=True)`.
    pub fn next_user() -> Self {
        Self(0, USERS.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a number that no pool of a graph has had. PyTorch: `graph_pool_handle`.
    pub fn next_graph() -> Self {
        Self(GRAPHS.fetch_add(1, Ordering::Relaxed), 0)
    }

    /// Returns both numbers, as PyTorch writes them to snapshots: `segment_pool_id`.
    pub const fn numbers(self) -> (u64, u64) {
        (self.0, self.1)
    }

    /// Returns what messages and reports call the pool: its name, if it has one, and its number, as in `weights (0_1)`.
    pub fn with_name(self, name: Option<&str>) -> String {
        name.map_or_else(|| self.to_string(), |name| format!("{} ({self})", printable(name)))
    }

    /// Returns whether it is the memory outside of all private pools.
    pub const fn is_default(self) -> bool {
        self.0 == 0 && self.1 == 0
    }
}

/// Writes both numbers, as in the keys of PyTorch's statistics: `0_1`.
impl fmt::Display for MemPoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.0, self.1)
    }
}

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for MemPoolId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (graph, user) = text.split_once('_').unwrap_or((text, ""));
        Ok(Self(graph.parse()?, user.parse()?))
    }
}
