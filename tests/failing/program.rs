//! Random programs, whose driver calls may fail at any point.
//!
//! A program goes on after an error, as a program may. It knows what its buffers hold, unless a call on them failed.
#![allow(unsafe_code)] // `Graph::replay`

use accelerator_core::{
    Accelerator, Backend, Buffer, CaptureMode, Error, EventFlags, Graph, KIB, Keep, MIB, MemPool, MemPoolOptions,
    PinnedBuffer, Result, Stream,
};
use fastrand::Rng;

const SETTINGS: [&str; 5] =
    ["", "expandable_segments:True", "device_side_reuse:True", "policy:compact", "max_split_size_mb:20"];
const LATER_SETTINGS: [&str; 4] =
    ["expandable_segments:True", "expandable_segments:False", "caching:False", "caching:True"];
/// Work on more bytes than those of the first five takes too long.
const SIZES: [u64; 8] = [100, 5000, 300 * KIB, MIB, 3 * MIB, 11 * MIB, 30 * MIB, 90 * MIB];
const MOST_WORK: u64 = 4 * MIB;
const STEPS: usize = 60;
const STREAMS: usize = 3;

/// Returns the settings of the program with this seed.
pub(crate) fn settings(seed: u64) -> &'static str {
    SETTINGS[seed as usize % SETTINGS.len()]
}

/// Memory of the program.
struct Owned<B: Backend> {
    buffer: Buffer<B>,
    /// What each byte is, if that is known.
    value: Option<u8>,
    /// The streams that may be at work on it.
    users: Vec<Stream<B>>,
    /// The number of its pool.
    pool: Option<usize>,
}

pub(crate) struct Program<B: Backend> {
    device: &'static Accelerator<B>,
    /// Whether memory has contents.
    has_bytes: bool,
    streams: Vec<Stream<B>>,
    owned: Vec<Owned<B>>,
    pinned: Vec<PinnedBuffer<B>>,
    pools: Vec<MemPool<B>>,
    random: Rng,
    errors: Vec<Error>,
}

impl<B: Backend> Program<B> {
    /// Runs the program with this seed. Nothing of it is dropped yet.
    pub(crate) fn run(device: &'static Accelerator<B>, seed: u64, has_bytes: bool) -> Self {
        let (owned, pinned, pools, errors) = Default::default();
        let random = Rng::with_seed(seed);
        let streams = vec![device.default_stream()];
        let mut program = Self { device, has_bytes, streams, owned, pinned, pools, random, errors };
        for _ in 1..STREAMS {
            let stream = device.dedicated_stream(0);
            let stream = program.done(stream);
            program.streams.extend(stream);
        }
        for _ in 0..STEPS {
            program.step();
            #[cfg(debug_assertions)]
            device.allocator().check();
        }
        program
    }

    /// Returns the errors so far.
    pub(crate) fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// Whether a stream is captured for ever, because the driver has refused to end that each time.
    pub(crate) fn is_stuck(&self) -> bool {
        let _ = self.device.synchronize(); // tells of work that failed
        self.streams.iter().any(|stream| stream.is_capturing().unwrap_or(true))
    }

    /// Checks what the buffers hold. Calls must succeed again.
    pub(crate) fn check(&mut self) -> Result<()> {
        for pool in self.pools.iter().filter(|pool| pool.is_paused()) {
            match pool.resume() {
                Err(Error::OutOfMemory(_)) => {} // other memory has taken its place
                resumed => drop(resumed?),
            }
        }
        let (pools, stream) = (&self.pools, self.streams[0]);
        let is_there = |owned: &&mut Owned<B>| owned.pool.is_none_or(|pool| !pools[pool].is_paused());
        let mut there = self.owned.iter_mut().filter(is_there).filter(|_| self.has_bytes);
        there.try_for_each(|owned| owned.read(stream))
    }

    fn step(&mut self) {
        let stream = self.stream();
        let done = match self.random.u8(0..24) {
            0..=5 => self.allocate(stream),
            6..=8 => {
                self.chosen().into_iter().for_each(|nth| drop(self.owned.swap_remove(nth)));
                Ok(())
            }
            9 | 10 => self.fill(stream),
            11 => self.copy(stream),
            12 => self.use_pinned(stream),
            13 => self.chosen().map_or(Ok(()), |nth| match self.has_bytes {
                true => self.owned[nth].read(stream),
                false => self.owned[nth].buffer.record_use(stream),
            }),
            14 => self.device.allocate_host(SIZES[self.random.usize(..4)]).map(|pinned| self.pinned.push(pinned)),
            15 => {
                let dropped = self.pinned.pop();
                drop(dropped);
                self.device.memory_info().map(drop)
            }
            16 => stream.synchronize(),
            17 => self.events(stream),
            18 => self.device.allocator().empty_cache().and(self.device.host_allocator().empty_cache()),
            19 => self.configure(),
            20 => self.make_pool(),
            21 => self.pause_or_resume(),
            22 => self.capture(),
            _ => self.drop_pool(),
        };
        self.done(done);
    }

    /// Notes the error of a result, if there is one.
    fn done<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn stream(&mut self) -> Stream<B> {
        self.streams[self.random.usize(..self.streams.len())]
    }

    /// Chooses memory to work on.
    fn target(&mut self) -> Option<usize> {
        self.chosen().filter(|nth| self.has_bytes && self.owned[*nth].buffer.len() <= MOST_WORK)
    }

    /// Chooses memory that is not paused.
    fn chosen(&mut self) -> Option<usize> {
        let nth = (!self.owned.is_empty()).then(|| self.random.usize(..self.owned.len()))?;
        let pool = self.owned[nth].pool;
        pool.is_none_or(|pool| !self.pools[pool].is_paused()).then_some(nth)
    }

    fn allocate(&mut self, stream: Stream<B>) -> Result<()> {
        let last = self.pools.len().checked_sub(1).filter(|nth| !self.pools[*nth].is_paused());
        let pool = last.filter(|_| self.random.bool());
        let sizes = if pool.is_some() { &SIZES[..5] } else { &SIZES[..] };
        let bytes = sizes[self.random.usize(..sizes.len())] + self.random.u64(..2) * 512;
        let guard = pool.map(|pool| self.pools[pool].use_pool());
        let buffer = self.device.allocate(bytes, stream)?;
        drop(guard);
        self.owned.push(Owned { buffer, value: None, users: vec![stream], pool });
        Ok(())
    }

    fn fill(&mut self, stream: Stream<B>) -> Result<()> {
        let value = self.random.u8(..);
        let Some(nth) = self.target() else { return Ok(()) };
        let owned = &mut self.owned[nth];
        owned.order(stream)?;
        owned.value = None;
        if owned.buffer.len() < MIB && value.is_multiple_of(2) {
            owned.buffer.write(0, &vec![value; owned.buffer.len() as usize], stream)?;
        } else {
            owned.buffer.fill(value, stream)?;
        }
        owned.value = Some(value);
        Ok(())
    }

    fn copy(&mut self, stream: Stream<B>) -> Result<()> {
        let (Some(from), Some(to)) = (self.target(), self.target()) else { return Ok(()) };
        if self.owned[from].buffer.len() != self.owned[to].buffer.len() || from == to {
            return Ok(());
        }
        let [from, to] = self.owned.get_disjoint_mut([from, to]).unwrap();
        from.order(stream)?;
        to.order(stream)?;
        to.value = None;
        to.buffer.copy_from(&from.buffer, stream)?;
        to.value = from.value;
        Ok(())
    }

    /// Copies to pinned memory and back.
    fn use_pinned(&mut self, stream: Stream<B>) -> Result<()> {
        let Some(nth) = self.chosen() else { return Ok(()) };
        let (owned, Some(pinned)) = (&mut self.owned[nth], self.pinned.last_mut()) else { return Ok(()) };
        if !self.has_bytes {
            return pinned.record_use(stream);
        }
        owned.order(stream)?;
        let len = owned.buffer.len().min(pinned.len());
        owned.buffer.copy_to_pinned(0..len, pinned, 0, stream)?;
        if let Some(value) = owned.value {
            assert!(pinned.bytes()?[..len as usize].iter().all(|byte| *byte == value), "pinned memory holds {value}");
        }
        owned.buffer.copy_from_pinned(0, pinned, 0..len, stream)
    }

    fn events(&mut self, stream: Stream<B>) -> Result<()> {
        let [start, end] = [(); 2].map(|()| self.device.event(EventFlags::TIMING));
        start.record(stream)?;
        end.record(stream)?;
        end.wait(self.stream())?;
        end.is_complete()?;
        stream.is_idle()?;
        end.synchronize()?;
        start.elapsed_time(&end).map(drop)
    }

    fn configure(&mut self) -> Result<()> {
        let allocator = self.device.allocator();
        let text = LATER_SETTINGS[self.random.usize(..LATER_SETTINGS.len())];
        let config = allocator.config().updated(text)?;
        allocator.set_config(config);
        Ok(())
    }

    fn make_pool(&mut self) -> Result<()> {
        let options = MemPoolOptions { pausable: self.random.bool(), ..MemPoolOptions::default() };
        MemPool::new(self.device, options).map(|pool| self.pools.push(pool))
    }

    fn pause_or_resume(&mut self) -> Result<()> {
        let Some(pool) = self.pools.last() else { return Ok(()) };
        if pool.is_paused() {
            return pool.resume().map(drop);
        }
        let keeps = self.has_bytes && self.random.bool();
        if !keeps {
            let of_pool = |owned: &&mut Owned<B>| owned.pool == Some(self.pools.len() - 1);
            self.owned.iter_mut().filter(of_pool).for_each(|owned| owned.value = None);
        }
        pool.pause(if keeps { Keep::Host } else { Keep::Nothing }).map(drop)
    }

    /// Drops the last pool, with its memory or before it.
    fn drop_pool(&mut self) -> Result<()> {
        let Some(pool) = self.pools.pop_if(|pool| !pool.is_paused()) else { return Ok(()) };
        let last = self.pools.len();
        let stays = self.random.bool();
        self.owned.retain(|owned| stays || owned.pool != Some(last));
        self.owned.iter_mut().filter(|owned| owned.pool == Some(last)).for_each(|owned| owned.pool = None);
        let trimmed = pool.trim();
        drop(pool);
        trimmed.map(drop)
    }

    /// Captures work on memory of the program and on memory of the graph, and replays it.
    fn capture(&mut self) -> Result<()> {
        let (value, stream, side) = (self.random.u8(..), self.streams[self.streams.len() - 1], self.stream());
        let Some(nth) = self.target() else { return Ok(()) };
        let (device, owned) = (self.device, &mut self.owned[nth]);
        owned.order(stream)?;
        stream.synchronize()?;
        owned.value = None;
        let mut graph = Graph::new(device)?;
        graph.capture_begin(stream, None, CaptureMode::default())?;
        let captured = device.allocate(MIB, stream).and_then(|mut inside| {
            inside.fill(3, stream)?;
            side.wait_stream(stream)?;
            owned.buffer.fill(value, side)?;
            stream.wait_stream(side)
        });
        graph.capture_end()?;
        captured?;
        // SAFETY: The memory outlives the graph's work, which is waited for, and the streams that used it were.
        unsafe { graph.replay(stream) }?;
        let waited = stream.synchronize();
        if waited.is_err() {
            let _ = stream.synchronize();
        }
        owned.value = Some(value);
        waited.and(graph.reset())
    }
}

impl<B: Backend> Owned<B> {
    /// Orders a stream after all work on the memory.
    fn order(&mut self, stream: Stream<B>) -> Result<()> {
        self.users.iter().filter(|user| **user != stream).try_for_each(|user| stream.wait_stream(*user))?;
        if self.users != [stream] {
            self.buffer.record_use(stream)?;
            self.users = vec![stream];
        }
        Ok(())
    }

    /// Reads the memory, and compares it with what it must hold.
    fn read(&mut self, stream: Stream<B>) -> Result<()> {
        self.order(stream)?;
        let len = self.buffer.len().min(MIB);
        let mut bytes = vec![0; len as usize];
        self.buffer.read(self.buffer.len() - len, &mut bytes, stream)?;
        let is_right = self.value.is_none_or(|value| bytes.iter().all(|byte| *byte == value));
        assert!(is_right, "{:?} was written, and {} is read", self.value, bytes[0]);
        Ok(())
    }
}
