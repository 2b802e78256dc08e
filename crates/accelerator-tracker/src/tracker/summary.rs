use std::collections::HashMap;
use std::fmt;

use accelerator_core::printable;

use super::python_float::PythonFloat;
use super::stats::TrackerStats;

/// The operators that used the most memory, the largest first. `Display` prints the same as PyTorch's
/// `MemoryTracker.summary`, but without the last newline, and with control characters in names escaped.
///
/// An operator's share is the allocated memory after it, minus the allocated memory after the previous one. The first
/// operator is counted relative to the start, if known. Shares of operators with the same name are added up. Operators
/// with equal shares stay in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How often the allocator released cached memory and retried.
    pub num_alloc_retries: u64,
    /// The requested maximum number of operators.
    pub top: usize,
    /// The number of recorded operators.
    pub recorded: usize,
    /// The names and bytes of at most `top` operators.
    pub operators: Vec<(String, i64)>,
}

impl Summary {
    /// The default number of operators in a summary, the same as PyTorch's.
    pub const DEFAULT_TOP: usize = 20;

    pub(super) fn new(stats: &TrackerStats, top: usize) -> Self {
        let mut operators = parts(stats);
        operators.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        operators.truncate(top);
        let operators = operators.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        let TrackerStats { num_alloc_retries, operators: recorded, .. } = stats;
        Self { num_alloc_retries: *num_alloc_retries, top, recorded: recorded.len(), operators }
    }
}

/// Returns the share of each name, in the order of their first operators.
fn parts(stats: &TrackerStats) -> Vec<(&str, i64)> {
    let mut parts: Vec<(&str, i64)> = Vec::new();
    let mut places = HashMap::new();
    let mut before = stats.start.map(|memory| memory.allocated);
    for operator in &stats.operators {
        let after = operator.memory.allocated;
        if let Some(before) = before.replace(after) {
            let place = *places.entry(operator.name.as_str()).or_insert(parts.len());
            if place == parts.len() {
                parts.push((&operator.name, 0));
            }
            let part = after.wrapping_sub(before) as i64; // both are below 2^63
            // The shares in a file may add up to anything.
            parts[place].1 = parts[place].1.saturating_add(part);
        }
    }
    parts
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LINE: &str = "------------------------------------------------";
        let Self { num_alloc_retries, top, recorded, operators } = self;
        writeln!(f, "{LINE}\nThe number of alloc retries are: {num_alloc_retries}")?;
        match recorded {
            0 => writeln!(f, "No operators were recorded")?,
            _ => writeln!(f, "Top {top} ops that generates memory are:")?,
        }
        for (name, bytes) in operators {
            writeln!(f, "{}: {}MB", printable(name), PythonFloat(*bytes as f64 / super::BYTES_PER_MIB))?;
        }
        f.write_str(LINE)
    }
}
