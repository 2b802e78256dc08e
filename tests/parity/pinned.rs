//! Traces of pinned host memory: which block serves each request, and the statistics. docs/TRACE_FORMAT.md describes
//! the lines.

use std::collections::HashMap;
use std::fmt::Write;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, PinnedBuffer, Stream};
use libtest_mimic::Failed;

type Driver = Faulty<Sim>;

struct Replay {
    device: &'static Accelerator<Driver>,
    streams: HashMap<u32, Stream<Driver>>,
    live: HashMap<u64, PinnedBuffer<Driver>>,
    /// The number of the driver allocation for each block.
    blocks: HashMap<usize, u64>,
    output: String,
}

/// Returns our allocator's output for the trace.
pub(crate) fn replay(trace: &str) -> Result<String, Failed> {
    let device = Accelerator::new(Faulty::new(Sim::default()), 0, AllocatorConfig::default())?;
    let mut replay = Replay {
        device,
        streams: HashMap::from([(0, device.default_stream())]),
        live: HashMap::new(),
        blocks: HashMap::new(),
        output: String::new(),
    };
    for (number, line) in trace.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = code.split_whitespace().collect();
        replay.step(number + 1, &words).map_err(|why| format!("line {}: {line}: {why:?}", number + 1))?;
    }
    Ok(replay.output)
}

impl Replay {
    fn step(&mut self, line: usize, words: &[&str]) -> Result<(), Failed> {
        let host = self.device.host_allocator();
        match *words {
            [] => {}
            ["halloc", id, bytes] => self.allocate(id.parse()?, bytes.parse()?)?,
            ["hfree", id] => drop(self.live.remove(&id.parse()?).ok_or("not live")?),
            ["hrecord", id, stream] => {
                let stream = self.stream(stream)?;
                self.live.get(&id.parse()?).ok_or("not live")?.record_use(stream)?;
            }
            ["hold", stream] => self.device.backend().hold(self.stream(stream)?.native()),
            ["release", stream] => self.device.backend().release(self.stream(stream)?.native()),
            ["empty_host_cache"] => host.empty_cache()?,
            ["reset_peak"] => host.reset_peak_statistics(),
            ["reset_accumulated"] => host.reset_accumulated_statistics(),
            ["conf", settings] => {
                let allocator = self.device.allocator();
                allocator.set_config(allocator.config().updated(settings)?);
            }
            ["hstats"] => self.print_statistics(line)?,
            _ => return Err("no such operation".into()),
        }
        Ok(())
    }

    fn allocate(&mut self, id: u64, bytes: u64) -> Result<(), Failed> {
        let asked = || self.device.backend().calls().of(Call::AllocHost);
        let before = asked();
        let pinned = self.device.allocate_host(bytes)?;
        match pinned.ptr() {
            None => writeln!(self.output, "hnull {id}")?,
            Some(start) => {
                let start = start.as_ptr().addr();
                if asked() > before {
                    self.blocks.insert(start, before); // addresses are reused, numbers are not
                }
                let block = self.blocks.get(&start).ok_or("a block from no driver call")?;
                writeln!(self.output, "hat {id} {block}")?;
            }
        }
        match self.live.insert(id, pinned) {
            None => Ok(()),
            Some(_) => Err("already live".into()),
        }
    }

    /// Prints the statistics without the times, which differ in every run.
    fn print_statistics(&mut self, line: usize) -> Result<(), Failed> {
        writeln!(self.output, "@{line} hstats")?;
        for (key, value) in self.device.host_allocator().statistics().entries() {
            if !key.contains("_time.") {
                writeln!(self.output, "{key} {value}")?;
            }
        }
        Ok(writeln!(self.output, "end")?)
    }

    fn stream(&mut self, number: &str) -> Result<Stream<Driver>, Failed> {
        let number = number.parse()?;
        if let Some(stream) = self.streams.get(&number) {
            return Ok(*stream);
        }
        let stream = self.device.dedicated_stream(0)?;
        self.streams.insert(number, stream);
        Ok(stream)
    }
}
