//! Pausing pools: their memory goes back to the driver, their addresses stay.

use std::path::PathBuf;
use std::ptr;
use std::time::{Duration, Instant};

use super::MemPool;
use super::contents::ContentsGuard;
use super::kept::Kept;
use crate::alloc::{Keeper, Limits};
use crate::backend::Backend;
use crate::types::{Error, Result};

/// What becomes of the contents of a pool that is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// They are discarded. After the resume they are unspecified.
    #[default]
    Nothing,
    /// They are kept in pinned host memory, which goes back when the pool is resumed or dropped.
    Host,
    /// They are written to this file, which must not exist, which only its owner can read, and which is removed when
    /// the pool is resumed or dropped.
    File(PathBuf),
}

/// How far the contents of a pool are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseProgress {
    /// The bytes that are copied.
    pub done: u64,
    /// The bytes to copy.
    pub total: u64,
}

/// What pausing or resuming a pool did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct PauseReport {
    /// The bytes that went back to the driver, or came from it.
    pub bytes: u64,
    /// The time that it took.
    pub duration: Duration,
}

impl<B: Backend> MemPool<B> {
    /// Gives the pool's memory back to the driver, but not its addresses: blocks, buffers and statistics stay as they
    /// are, and [`resume`](Self::resume) maps memory at the same addresses. First waits for all work of the device, and
    /// for the calls of other threads that use the pool.
    ///
    /// While the pool is paused, requests to it, operations on its buffers and replays of graphs that hold it fail with
    /// [`Error::MemPool`]. Freeing blocks works as always. The paused bytes still count as reserved; see
    /// [`Statistics::paused_bytes`](crate::Statistics::paused_bytes).
    ///
    /// It must not be called from a callback of the allocator in a request to the same pool, for which it would wait,
    /// or from the destructor of a [`HistoryContext`](crate::HistoryContext), which such a request may drop.
    /// In requests to two pools, callbacks that pause each other's pool would wait for each other.
    /// Nor may another thread begin a capture meanwhile: the wait for its stream fails, and may break the capture.
    ///
    /// # Errors
    /// * [`Error::MemPool`] if the pool is not [pausable](crate::MemPoolOptions::pausable) or is paused already, or
    ///   during a capture.
    /// * [`Error::PoolFile`] if the file exists, or cannot be written.
    /// * [`Error::Driver`].
    ///
    /// The pool is not paused then, and nothing is lost, except in two cases:
    ///
    /// * If the driver refuses to take memory, after it has taken some and [`Keep::Nothing`] has discarded it, the
    ///   contents are unspecified. If the driver does not give that memory back either, the pool counts as paused.
    /// * If the driver twice refuses to wait for a copy of contents, the pool counts as paused, with its contents.
    pub fn pause(&self, keep: Keep) -> Result<PauseReport> {
        self.pause_with(keep, &mut |_| ())
    }

    /// As [`pause`](Self::pause), and calls `progress` each time that a part of the contents is copied. It can
    /// neither pause nor resume the same pool.
    ///
    /// # Errors
    /// As for [`pause`](Self::pause).
    pub fn pause_with(&self, keep: Keep, progress: &mut dyn FnMut(PauseProgress)) -> Result<PauseReport> {
        let mut pausing = self.begin_pause()?;
        pausing.save(keep, progress)?;
        pausing.give_pages_back()?;
        Ok(pausing.end())
    }

    /// Maps memory at the addresses of a paused pool, and copies back what was kept. If memory runs out, gives the
    /// cache back to the driver and tries again.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`], [`Error::PoolFile`]: the pool stays paused, with all that was kept,
    /// and the call may be repeated. [`Error::MemPool`] if the pool is not paused, or if the default stream is being
    /// captured and a copy of a pause or resume that failed may still run.
    pub fn resume(&self) -> Result<PauseReport> {
        self.resume_with(&mut |_| ())
    }

    /// As [`resume`](Self::resume), and calls `progress` each time that a part of the contents is copied. It can
    /// neither pause nor resume the same pool. If it panics, the pool stays paused, with all that was kept.
    ///
    /// # Errors
    /// As for [`resume`](Self::resume).
    pub fn resume_with(&self, progress: &mut dyn FnMut(PauseProgress)) -> Result<PauseReport> {
        let mut resuming = self.begin_resume()?;
        resuming.map()?;
        resuming.restore(progress)
    }

    /// Pauses several pools: keeps the contents of each, in this order, and only then gives memory back.
    ///
    /// In a request to one of the pools, a callback of the allocator must neither pause nor resume another of them, for
    /// which it would wait.
    ///
    /// # Errors
    /// As for [`pause`](Self::pause); [`Error::MemPool`] also if a pool is given twice. No pool is paused then, and
    /// nothing is lost, except in two cases:
    ///
    /// * If the driver refuses to take memory of one pool, after it has taken that of others, these are resumed. With
    ///   [`Keep::Nothing`], their contents are unspecified. If the driver does not give their memory back, they count
    ///   as [paused](Self::is_paused), with what was kept.
    /// * If the driver twice refuses to wait for a copy of contents, that pool counts as paused, with its contents.
    pub fn pause_all<'a>(pools: impl IntoIterator<Item = (&'a Self, Keep)>) -> Result<Vec<PauseReport>> {
        let (pools, keeps): (Vec<_>, Vec<_>) = pools.into_iter().unzip();
        let mut pausing = begin_each(&pools, Self::begin_pause)?;
        pausing.iter_mut().zip(keeps).try_for_each(|(pausing, keep)| pausing.save(keep, &mut |_| ()))?;
        pausing.iter_mut().try_for_each(Pausing::give_pages_back)?;
        Ok(pausing.into_iter().map(Pausing::end).collect())
    }

    /// Resumes several pools: maps the memory of all of them, and then copies back what was kept, in this order.
    ///
    /// # Errors
    /// As for [`resume`](Self::resume). If there is not enough memory for all, all stay paused. If the contents of one
    /// cannot be copied, it and those after it stay paused.
    pub fn resume_all(pools: &[&Self]) -> Result<Vec<PauseReport>> {
        let mut resuming = begin_each(pools, Self::begin_resume)?;
        resuming.iter_mut().try_for_each(Resuming::map)?;
        resuming.into_iter().map(|resuming| resuming.restore(&mut |_| ())).collect()
    }

    fn begin_pause(&self) -> Result<Pausing<'_, B>> {
        let (start, kept) = (Instant::now(), self.contents()?);
        self.accelerator.allocator().close_pool(self.id)?;
        Ok(Pausing { pool: self, kept, runs: Vec::new(), start, state: State::Closed, keeper: None })
    }

    fn begin_resume(&self) -> Result<Resuming<'_, B>> {
        let (start, mut kept) = (Instant::now(), self.contents()?);
        if !self.is_paused() {
            return Err(self.problem("is not paused"));
        }
        kept.get_or_insert_with(|| Kept::nothing(self.accelerator, self.id)); // none if there was no handle for a while
        let allocator = self.accelerator.allocator();
        let keeper = allocator.keep_pool(self.id);
        let bytes = allocator.paused_bytes(self.id);
        Ok(Resuming { pool: self, kept, bytes, start, is_mapped: false, _keeper: keeper })
    }

    fn contents(&self) -> Result<ContentsGuard<'_, B>> {
        self.contents.lock().ok_or_else(|| self.problem("is being paused or resumed by this thread"))
    }

    fn problem(&self, problem: &'static str) -> Error {
        Error::MemPool { device: self.accelerator.device(), pool: self.id, name: self.name(), problem }
    }

    /// Whether the pool is paused.
    pub fn is_paused(&self) -> bool {
        self.accelerator.allocator().is_pool_paused(self.id)
    }
}

/// Begins to pause or to resume several pools.
fn begin_each<'a, B: Backend, T>(
    pools: &[&'a MemPool<B>],
    begin: impl Fn(&'a MemPool<B>) -> Result<T>,
) -> Result<Vec<T>> {
    let identity = |place: &usize| (pools[*place].id, ptr::from_ref(pools[*place].accelerator).addr());
    // Locked in the same order by all threads.
    let mut order: Vec<usize> = (0..pools.len()).collect();
    order.sort_unstable_by_key(identity);
    if let Some(twice) = order.windows(2).find(|pair| identity(&pair[0]) == identity(&pair[1])) {
        return Err(pools[twice[0]].problem("is given twice"));
    }
    let begun = order.iter().map(|place| Ok((*place, begin(pools[*place])?)));
    let mut begun = begun.collect::<Result<Vec<_>>>()?;
    begun.sort_unstable_by_key(|(place, _)| *place);
    Ok(begun.into_iter().map(|(_, begun)| begun).collect())
}

/// A pool that is being paused. If it is dropped before the end, also because the caller's callback panics, the pool is
/// open again with its contents, as far as the driver gives its memory back and no copy may still run. Otherwise it
/// stays paused.
struct Pausing<'a, B: Backend> {
    pool: &'a MemPool<B>,
    kept: ContentsGuard<'a, B>,
    /// The memory of the pool.
    runs: Vec<(B::Ptr, u64)>,
    start: Instant,
    state: State,
    /// Keeps the pages while they are copied.
    keeper: Option<Keeper<'static>>,
}

/// How far a pool is paused.
#[derive(PartialEq, Eq)]
enum State {
    /// It has all of its memory.
    Closed,
    /// Its memory is going back to the driver, or is there.
    Going,
    Paused,
}

impl<B: Backend> Pausing<'_, B> {
    fn save(&mut self, keep: Keep, progress: &mut dyn FnMut(PauseProgress)) -> Result<()> {
        let MemPool { accelerator, id, .. } = *self.pool;
        accelerator.synchronize()?;
        self.keeper = accelerator.allocator().shrink_closed_pool(id)?;
        self.runs = accelerator.allocator().page_runs(id);
        self.kept.insert(Kept::nothing(accelerator, id)).save(keep, &self.runs, progress)
    }

    fn give_pages_back(&mut self) -> Result<()> {
        self.state = State::Going;
        self.pool.accelerator.allocator().give_pages_back(self.pool.id)
    }

    fn end(mut self) -> PauseReport {
        self.state = State::Paused;
        let bytes = self.runs.iter().map(|(_, len)| len).sum();
        PauseReport { bytes, duration: self.start.elapsed() }
    }

    /// Brings back what has gone. Returns whether that worked.
    fn undo(&self) -> bool {
        let (allocator, id) = (self.pool.accelerator.allocator(), self.pool.id);
        let has_memory = || allocator.paused_bytes(id) == 0 || allocator.take_pages_again(id, Limits::Lifted).is_ok();
        let restore = |contents: &Kept<B>| contents.restore(&self.runs, &mut |_| ()).is_ok();
        has_memory() && self.kept.as_ref().is_none_or(restore)
    }
}

impl<B: Backend> Drop for Pausing<'_, B> {
    fn drop(&mut self) {
        let (allocator, id) = (self.pool.accelerator.allocator(), self.pool.id);
        let is_whole = self.state == State::Closed || (self.state == State::Going && self.undo());
        if is_whole && allocator.wait_for_copies(id).is_ok() {
            *self.kept = None;
            allocator.open_pool(id);
        }
    }
}

/// A pool that is being resumed. If it is dropped before the end, it stays paused.
struct Resuming<'a, B: Backend> {
    pool: &'a MemPool<B>,
    kept: ContentsGuard<'a, B>,
    bytes: u64,
    start: Instant,
    is_mapped: bool,
    _keeper: Option<Keeper<'static>>,
}

impl<B: Backend> Resuming<'_, B> {
    fn map(&mut self) -> Result<()> {
        self.pool.accelerator.allocator().take_pages_again(self.pool.id, Limits::Hold)?;
        self.is_mapped = true;
        Ok(())
    }

    fn restore(mut self, progress: &mut dyn FnMut(PauseProgress)) -> Result<PauseReport> {
        let (allocator, id) = (self.pool.accelerator.allocator(), self.pool.id);
        if let Some(contents) = &mut *self.kept {
            contents.restore(&allocator.page_runs(id), progress)?;
        }
        allocator.wait_for_copies(id)?;
        allocator.open_pool(id);
        *self.kept = None;
        self.is_mapped = false; // the pool keeps its memory
        Ok(PauseReport { bytes: self.bytes, duration: self.start.elapsed() })
    }
}

impl<B: Backend> Drop for Resuming<'_, B> {
    fn drop(&mut self) {
        // Pages that were there before have contents, which may be kept nowhere else.
        let has_mapped = self.is_mapped && self.bytes > 0;
        let (allocator, id) = (self.pool.accelerator.allocator(), self.pool.id);
        if has_mapped && allocator.wait_for_copies(id).is_ok() {
            // Pages that the driver refuses to take stay, and the next resume finds them.
            let _ = allocator.give_pages_back(id);
        }
    }
}
