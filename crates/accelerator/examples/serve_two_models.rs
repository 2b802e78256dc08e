//! Serves two models in turn in the memory of one.
//!
//! The program may use 72 MiB of the device. Each model has 48 MiB of weights, and the conversation with it needs a
//! cache of 16 MiB. So only one model fits. Before the other one answers, the first one is paused: its weights are kept
//! in host memory or in a file, and the cache is discarded. The table shows what the device holds after each step.
//!
//! ```text
//! cargo run --release -p accelerator-rs --example serve_two_models
//! cargo run --release -p accelerator-rs --features cuda --example serve_two_models -- cuda
//! ```

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use accelerator::{
    Buffer, Keep, MIB, MemPool, MemPoolOptions, PauseReport, get_memory_info, memory, set_accelerator, use_mem_pool,
};
use comfy_table::{CellAlignment, Table, presets};

/// What the program may use of the device, in bytes.
const LIMIT: u64 = 72 * MIB;
/// The number of layers of a model.
const LAYERS: usize = 3;
/// The bytes of a layer.
const LAYER: u64 = 16 * MIB;
/// The bytes of the cache.
const CACHE: u64 = 16 * MIB;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = std::env::args().nth(1);
    set_accelerator(backend.as_deref().unwrap_or("host"))?;
    let total = get_memory_info(None)?.total;
    memory::set_per_process_memory_fraction(LIMIT as f64 / total as f64, None)?;
    let folder = tempfile::tempdir()?;
    let mut server = Server::start()?;
    serve(&mut server, &folder.path().join("coder.weights"))?;
    println!("{}\n\nBoth models answered as before their pauses.", server.table);
    Ok(())
}

/// Alternates between the models.
fn serve(server: &mut Server, file: &Path) -> Result<(), Box<dyn Error>> {
    server.load(WRITER)?;
    let writer = server.ask(WRITER, 1.0)?;

    server.pause(WRITER, Keep::Host)?;
    server.load(CODER)?;
    let coder = server.ask(CODER, 2.0)?;

    server.does_not_fit(WRITER)?;
    server.pause(CODER, Keep::File(file.to_owned()))?;
    server.resume(WRITER)?;
    assert_eq!(server.ask(WRITER, 1.0)?, writer);

    server.pause(WRITER, Keep::Host)?;
    server.resume(CODER)?;
    assert_eq!(server.ask(CODER, 2.0)?, coder);
    Ok(())
}

/// The places of the models in the server.
const WRITER: usize = 0;
const CODER: usize = 1;

struct Server {
    models: [Model; 2],
    cache: Cache,
    table: Table,
}

impl Server {
    fn start() -> accelerator::Result<Self> {
        let models = [Model::new("writer")?, Model::new("coder")?];
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["step", "writer", "coder", "cache", "on the device", "moved", "ms"]);
        table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        Ok(Self { models, cache: Cache::new()?, table })
    }

    /// Loads the weights of a model, where there is room for them.
    fn load(&mut self, model: usize) -> accelerator::Result<()> {
        let start = Instant::now();
        let Model { name, .. } = *self.models[model].load()?;
        self.row(format!("load the {name}"), Some((LAYERS as u64 * LAYER, start.elapsed())))?;
        self.resume_cache()
    }

    /// Lets a model answer a question.
    fn ask(&mut self, model: usize, question: f64) -> accelerator::Result<f64> {
        let start = Instant::now();
        let answer = self.models[model].answer(question)?;
        self.cache.add(question, answer)?;
        self.row(format!("the {} answers {answer:.3}", self.models[model].name), Some((0, start.elapsed())))?;
        Ok(answer)
    }

    /// Takes a model and the cache off the device.
    fn pause(&mut self, model: usize, keep: Keep) -> accelerator::Result<()> {
        let Model { name, pool, .. } = &self.models[model];
        let kept = match keep {
            Keep::Nothing => "discarded",
            Keep::Host => "to host memory",
            Keep::File(_) => "to a file",
        };
        let (step, report) = (format!("pause the {name}, {kept}"), pool.pause(keep)?);
        self.row(step, moved(report))?;
        let report = self.cache.pool.pause(Keep::Nothing)?;
        self.row("pause the cache, discarded".to_owned(), moved(report))
    }

    /// Brings a model back, and then an empty cache.
    fn resume(&mut self, model: usize) -> accelerator::Result<()> {
        let Model { name, pool, .. } = &self.models[model];
        let (step, report) = (format!("resume the {name}"), pool.resume()?);
        self.row(step, moved(report))?;
        self.resume_cache()
    }

    fn resume_cache(&mut self) -> accelerator::Result<()> {
        if self.cache.pool.is_paused() {
            let report = self.cache.pool.resume()?;
            self.cache.clear();
            self.row("resume the cache, empty".to_owned(), moved(report))?;
        }
        Ok(())
    }

    /// Tries to resume a model while the other one has the memory. It stays paused.
    fn does_not_fit(&mut self, model: usize) -> accelerator::Result<()> {
        let Model { name, pool, .. } = &self.models[model];
        let refused = pool.resume();
        assert!(matches!(refused, Err(accelerator::Error::OutOfMemory(_))) && pool.is_paused(), "{refused:?}");
        self.row(format!("resume the {name}: out of memory"), None)
    }

    /// Adds a line that shows what the device holds after a step that moved these bytes in this time.
    fn row(&mut self, step: String, moved: Option<(u64, Duration)>) -> accelerator::Result<()> {
        let [writer, coder] = self.models.each_ref().map(|model| held(&model.pool));
        let statistics = memory::statistics(None)?.unwrap_or_default();
        let there = statistics.reserved_bytes.all.current - statistics.paused_bytes;
        let (bytes, time) = match moved {
            None => (String::new(), String::new()),
            Some((0, time)) => (String::new(), milliseconds(time)),
            Some((bytes, time)) => (mebibytes(bytes), milliseconds(time)),
        };
        let on_device = format!("{} of {}", mebibytes(there.unsigned_abs()), mebibytes(LIMIT));
        self.table.add_row([step, writer, coder, held(&self.cache.pool), on_device, bytes, time]);
        Ok(())
    }
}

/// A model, whose weights have a pool of their own.
struct Model {
    name: &'static str,
    pool: MemPool,
    layers: Vec<Buffer>,
}

impl Model {
    fn new(name: &'static str) -> accelerator::Result<Self> {
        Ok(Self { name, pool: pausable(name)?, layers: Vec::new() })
    }

    /// Loads its weights, which would come from a file.
    fn load(&mut self) -> accelerator::Result<&Self> {
        let _guard = use_mem_pool(&self.pool);
        for layer in 0..LAYERS {
            let seed = self.name.len() + layer;
            let weights: Vec<_> =
                (0..LAYER as usize / 4).map(|place| ((place * seed) % 1000) as f32 / 1000.0).collect();
            self.layers.push(Buffer::from_slice(&weights, None)?);
        }
        Ok(self)
    }

    /// Computes an answer that depends on each weight and its place. The host computes, so that the example runs on
    /// every backend; a server would launch kernels.
    fn answer(&self, question: f64) -> accelerator::Result<f64> {
        self.layers.iter().try_fold(question, |input, layer| {
            let weights = layer.to_vec::<f32>()?;
            Ok(weights.iter().zip(1..).fold(input, |sum, (weight, place)| sum + f64::from(*weight) / f64::from(place)))
        })
    }
}

/// Questions and answers of the conversation. It has a pool of its own, so that it can be discarded apart from weights.
struct Cache {
    pool: MemPool,
    buffer: Buffer,
    used: u64,
}

impl Cache {
    fn new() -> accelerator::Result<Self> {
        let pool = pausable("kv_cache")?;
        let guard = use_mem_pool(&pool);
        let buffer = Buffer::allocate(CACHE, None)?;
        drop(guard);
        Ok(Self { pool, buffer, used: 0 })
    }

    fn add(&mut self, question: f64, answer: f64) -> accelerator::Result<()> {
        for value in [question, answer] {
            self.buffer.write(self.used, &value.to_ne_bytes())?;
            self.used += size_of::<f64>() as u64;
        }
        Ok(())
    }

    /// Forgets everything: the contents are unspecified after a pause that kept nothing.
    fn clear(&mut self) {
        self.used = 0;
    }
}

fn pausable(name: &str) -> accelerator::Result<MemPool> {
    let name = Some(name.into());
    MemPool::with_options(None, MemPoolOptions { name, pausable: true, ..MemPoolOptions::default() })
}

fn moved(report: PauseReport) -> Option<(u64, Duration)> {
    Some((report.bytes, report.duration))
}

/// What a pool holds.
fn held(pool: &MemPool) -> String {
    match pool.is_paused() {
        true => "paused".to_owned(),
        false => mebibytes(pool.snapshot().segments.iter().map(|segment| segment.total_size).sum()),
    }
}

fn mebibytes(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { format!("{} MiB", bytes / MIB) }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", 1000.0 * time.as_secs_f64())
}
