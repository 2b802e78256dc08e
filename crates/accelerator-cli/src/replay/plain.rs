use std::collections::HashMap;
use std::io::{self, Write};

use accelerator_core::Snapshot;

use super::replayer::Outcome;

/// Writes outcomes in exactly the format of the replay through PyTorch's own allocator.
pub struct PlainOutput<W> {
    out: W,
    placements: bool,
}

impl<W: Write> PlainOutput<W> {
    /// Creates an output that writes to `out`. With `placements`, it also writes the place of every allocation.
    pub fn new(out: W, placements: bool) -> Self {
        Self { out, placements }
    }

    /// Writes the outcome of the line with this number.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&mut self, line: usize, outcome: &Outcome) -> io::Result<()> {
        let out = &mut self.out;
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::OutOfMemory(id) => writeln!(out, "oom {id}"),
            Outcome::Null(id) => writeln!(out, "null {id}"),
            Outcome::Placed(id, place) if self.placements => writeln!(out, "at {id} {place:#x}"),
            Outcome::Placed(..) => Ok(()),
            Outcome::Statistics(statistics) => self.block(line, "stats", &statistics.entries()),
            Outcome::Calls(calls) => self.block(line, "calls", calls),
            Outcome::Snapshot(snapshot, streams, base) => self.snapshot(line, snapshot, streams, *base),
            Outcome::MemoryInfo(memory) => {
                writeln!(out, "@{line} meminfo free {} total {}", memory.free, memory.total)
            }
            Outcome::LargestAvailable(bytes) => writeln!(out, "@{line} cacheinfo largest {bytes}"),
        }
    }

    /// Flushes the output and returns the writer.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn block<K: std::fmt::Display, V: std::fmt::Display>(
        &mut self,
        line: usize,
        name: &str,
        entries: &[(K, V)],
    ) -> io::Result<()> {
        writeln!(self.out, "@{line} {name}")?;
        for (key, value) in entries {
            writeln!(self.out, "{key} {value}")?;
        }
        writeln!(self.out, "end")
    }

    fn snapshot(&mut self, line: usize, snapshot: &Snapshot, streams: &HashMap<u32, u32>, base: u64) -> io::Result<()> {
        writeln!(self.out, "@{line} snapshot")?;
        for (number, segment) in snapshot.segments.iter().enumerate() {
            let pool = segment.pool.name();
            let expandable = if segment.expandable { " expandable" } else { "" };
            writeln!(
                self.out,
                "segment {number} at {:#x} size {} stream {} pool {pool}{expandable} allocated {} active {} requested {} blocks {} counter {}",
                segment.address.wrapping_sub(base),
                segment.total_size,
                streams.get(&segment.stream.get()).copied().unwrap_or_default(),
                segment.allocated_size,
                segment.active_size,
                segment.requested_size,
                segment.blocks.len(),
                segment.created,
            )?;
            for block in &segment.blocks {
                writeln!(
                    self.out,
                    "  block +{} size {} requested {} {}",
                    block.address - segment.address,
                    block.size,
                    block.requested_size,
                    block.state.name(),
                )?;
            }
        }
        writeln!(self.out, "end")
    }
}
