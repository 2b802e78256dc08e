//! Work that takes long enough to be looked at while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accelerator_core::{Backend, MIB, StreamKind};

use super::rig::{Rig, Span};
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};
use crate::progress;

/// How long the work of [`Rig::busy`] is to take at least.
const LONG: Duration = Duration::from_millis(30);
/// The size and the number of its pieces: those that are tried first, and the largest.
const FIRST_BYTES: u64 = 4 * MIB;
const FIRST_PIECES: u32 = 32;
const MOST_BYTES: u64 = 64 * MIB;
const MOST_PIECES: u32 = 4096;
/// Work that takes this long to submit, and is done a tenth of that time later, is done when it is submitted.
const SUBMITTED: Duration = Duration::from_millis(300);

/// The size of work that takes long enough: pieces, and how many of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    kind: Kind,
    pub(super) len: u64,
    pieces: u32,
    /// How long it took after it was submitted.
    pub(super) time: Duration,
}

/// What the long work consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fills,
    /// Copies within the device, if fills are done when they are submitted.
    Copies,
    /// All work is done when it is submitted.
    AtOnce,
}

/// A stream with memory of its own for long work.
pub(super) struct Worker<B: Backend> {
    pub(super) stream: Arc<B::Stream>,
    scratch: Span<B::Ptr>,
}

/// Whether a case could look at what it is about while the work ran.
pub(super) enum Asked {
    Yes,
    /// The work was done before.
    TooLate,
    /// The call that asked waited for the work. Contains the message about it.
    Waited(String),
}

impl From<bool> for Asked {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::TooLate }
    }
}

impl<B: Backend> Rig<'_, B> {
    /// Returns the number of bytes in the largest piece of work.
    pub(super) fn most_bytes(&self) -> u64 {
        let properties = self.backend.properties();
        (properties.total_memory / 16).min(properties.largest_allocation).clamp(MIB, MOST_BYTES)
    }

    /// Returns how much work takes long enough, found by trying.
    pub(super) fn scale(&self) -> Result<Scale, Failure> {
        if let Some(scale) = self.scale.get() {
            return Ok(*scale);
        }
        let worker = Worker { stream: self.stream()?, scratch: self.alloc(self.most_bytes())? };
        let mut scale = self.tried(&worker, Kind::Fills)?;
        if scale.kind == Kind::AtOnce {
            scale = self.tried(&worker, Kind::Copies)?;
        }
        self.dealloc(worker.scratch);
        Ok(*self.scale.get_or_init(|| scale))
    }

    /// Tries more and more work of this kind.
    fn tried(&self, worker: &Worker<B>, kind: Kind) -> Result<Scale, Failure> {
        let len = FIRST_BYTES.min(worker.scratch.len);
        let first = Scale { kind, len, pieces: FIRST_PIECES, time: Duration::ZERO };
        let mut scale = first;
        loop {
            let start = Instant::now();
            self.work(worker, scale, 1)?;
            let submitted = start.elapsed();
            let event = self.recorded(&worker.stream)?;
            // Either of the two may be wrong; the longer time counts.
            self.poll(Call::IsComplete, || self.is_complete(&event))?;
            self.synchronize(&worker.stream)?;
            scale.time = start.elapsed() - submitted;
            if scale.time >= LONG || (scale.len == worker.scratch.len && scale.pieces == MOST_PIECES) {
                return Ok(scale);
            }
            if submitted >= SUBMITTED && scale.time < submitted / 10 {
                return Ok(Scale { kind: Kind::AtOnce, ..first });
            }
            match scale.len < worker.scratch.len {
                true => scale.len = (scale.len * 2).min(worker.scratch.len),
                false => scale.pieces *= 2,
            }
        }
    }

    /// Returns a stream that can be kept busy.
    pub(super) fn worker(&self) -> Result<Worker<B>, Failure> {
        let scale = self.scale()?;
        Ok(Worker { stream: self.stream()?, scratch: self.alloc(scale.len)? })
    }

    /// Returns a worker like this one on a stream that the rig does not keep: it is dropped with the worker.
    pub(super) fn worker_that_goes(&self, like: &Worker<B>) -> Result<Worker<B>, Failure> {
        let stream = self.call(Call::Stream, || self.backend.stream(StreamKind::Side { priority: 0 }))?;
        Ok(Worker { stream: Arc::new(stream), scratch: like.scratch })
    }

    /// Submits work that takes tens of milliseconds, times `factor`.
    pub(super) fn busy(&self, worker: &Worker<B>, factor: u32) -> Outcome {
        self.work(worker, self.scale()?, factor)
    }

    fn work(&self, worker: &Worker<B>, scale: Scale, factor: u32) -> Outcome {
        let (scratch, stream) = (worker.scratch.part(0, scale.len), &worker.stream);
        let half = scale.len / 2;
        let halves = [scratch.part(0, half), scratch.part(half, half)];
        (0..scale.pieces * factor).try_for_each(|piece| match scale.kind {
            Kind::Fills => self.fill(scratch, piece as u8, stream),
            Kind::Copies | Kind::AtOnce => self.copy(halves[1], halves[0], stream),
        })
    }

    /// Polls until the answer is yes. Returns whether it was no at first.
    pub(super) fn poll(&self, method: Call, mut ask: impl FnMut() -> Result<bool, Failure>) -> Result<Asked, Failure> {
        let (start, name) = (Instant::now(), method.name());
        if ask()? {
            let time = start.elapsed();
            return Ok(match time < LONG {
                true => Asked::TooLate,
                false => Asked::Waited(format!(
                    "`{name}` took {time:.0?} and returned when the work was done: it must answer without waiting"
                )),
            });
        }
        while !ask()? {
            if start.elapsed() > progress::limit() {
                let seconds = start.elapsed().as_secs();
                let stuck = format!("`{name}` still said no {seconds} s after the work was submitted");
                return Err(Failure::Stuck(stuck));
            }
            std::thread::yield_now();
        }
        Ok(Asked::Yes)
    }

    /// Tries with more and more work, until `ask` says that it could look at what it is about while the work ran.
    pub(super) fn asked<A: Into<Asked>>(
        &self,
        why_not: &str,
        mut ask: impl FnMut(u32) -> Result<A, Failure>,
    ) -> Outcome {
        let scale = self.scale()?;
        if scale.kind == Kind::AtOnce {
            ask(1)?;
            return Err(Failure::NotAsked(format!("could not ask: {why_not}, since this backend does it at once")));
        }
        let mut last = Asked::TooLate;
        for factor in [1, 4, 16] {
            last = ask(factor)?.into();
            if matches!(last, Asked::Yes) {
                return Ok(());
            }
        }
        if let Asked::Waited(blame) = last {
            return Err(blame.into());
        }
        let time = scale.time * 16;
        Err(Failure::NotAsked(format!("could not ask: {why_not}, although it should have taken {time:.0?}")))
    }
}
