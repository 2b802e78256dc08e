use std::io::{self, Write};

use super::outcome::{Outcome, Place, Restored, Segments};

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
            Outcome::Done | Outcome::Paused(_) | Outcome::Resumed(_) => Ok(()),
            Outcome::OutOfMemory(id) => writeln!(out, "oom {id}"),
            Outcome::Null(id) => writeln!(out, "null {id}"),
            Outcome::Placed(id, place) if self.placements => writeln!(out, "at {id} {place:#x}"),
            Outcome::Placed(..) => Ok(()),
            Outcome::Unplaced(id) => writeln!(out, "unplaced {id}"),
            Outcome::Statistics(statistics) => self.block(line, "stats", statistics),
            Outcome::Calls(driver, sources) => {
                let driver = driver.iter().map(|(call, count)| ((*call).to_owned(), count.to_string()));
                let sources = sources.iter().map(|of| {
                    (format!("pool_allocator.{}", of.pool), format!("allocs {} frees {}", of.allocs, of.frees))
                });
                self.block(line, "calls", &driver.chain(sources).collect::<Vec<_>>())
            }
            Outcome::Snapshot(segments) => self.snapshot(line, segments),
            Outcome::MemoryInfo(memory) => {
                writeln!(out, "@{line} meminfo free {} total {}", memory.free, memory.total)
            }
            Outcome::LargestAvailable(bytes) => writeln!(out, "@{line} cacheinfo largest {bytes}"),
            Outcome::PoolUses(pool, uses) => writeln!(out, "@{line} pool_uses {pool} {uses}"),
            Outcome::PoolLive(pool, are_live) => writeln!(out, "@{line} pool_live {pool} {are_live}"),
            Outcome::Restored(restored) => self.restored(line, restored),
            Outcome::NotResumed(pools) => {
                write!(out, "oom resume")?;
                pools.iter().try_for_each(|pool| write!(out, " {pool}"))?;
                writeln!(out)
            }
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

    fn restored(&mut self, line: usize, restored: &Restored) -> io::Result<()> {
        let Restored { pool, name, freed, allocated } = restored;
        writeln!(self.out, "@{line} restore {pool} {name}")?;
        let freed = freed.iter().map(|place| ("freed", place));
        for (what, Place { id, offset, .. }) in freed.chain(allocated.iter().map(|place| ("allocated", place))) {
            match self.placements {
                true => writeln!(self.out, "{what} {id} {offset:#x}")?,
                false => writeln!(self.out, "{what} {id}")?,
            }
        }
        writeln!(self.out, "end")
    }

    fn snapshot(&mut self, line: usize, segments: &Segments) -> io::Result<()> {
        let Segments { pool, snapshot, streams, base } = segments;
        let of = pool.map(|pool| format!(" {pool}")).unwrap_or_default();
        writeln!(self.out, "@{line} snapshot{of}")?;
        for (number, segment) in snapshot.segments.iter().enumerate() {
            let pool = segment.pool.name();
            let expandable = if segment.expandable { " expandable" } else { "" };
            let private = match segment.mem_pool.is_default() {
                true => String::new(),
                false => format!(" private {}", segment.mem_pool),
            };
            let paused = if segment.paused { " paused" } else { "" };
            writeln!(
                self.out,
                "segment {number} at {:#x} size {} stream {} pool {pool}{expandable}{private}{paused} allocated {} active {} requested {} blocks {} counter {}",
                segment.address.wrapping_sub(*base),
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
