use std::collections::BTreeMap;
use std::time::Duration;

use accelerator_conformance::Controls;
use accelerator_core::{Accelerator, Error, Keep, MemPool, MemPoolId, MemPoolOptions, PauseReport, Result};
use accelerator_tracker::{Limits, TemporaryName};

use super::outcome::{Outcome, ReplayError};
use super::replayer::Replayer;
use crate::trace::{PoolKeep, PoolName, PoolOption};

/// The pools of a trace that can be paused.
pub(super) struct Pauses<B: Controls> {
    handles: BTreeMap<MemPoolId, Pausable<B>>,
    /// The bytes that may be kept of paused pools.
    most: u64,
    /// Whether pools are not paused: these lines are skipped.
    skipped: bool,
}

struct Pausable<B: Controls> {
    pool: MemPool<B>,
    /// The bytes that are kept while it is paused.
    kept: u64,
}

impl<B: Controls> Pauses<B> {
    pub(super) fn new() -> Self {
        Self { handles: BTreeMap::new(), most: Limits::default().memory, skipped: false }
    }

    /// Makes a pausable pool.
    pub(super) fn create(
        &mut self,
        accelerator: &'static Accelerator<B>,
        name: PoolName,
        options: &[PoolOption],
    ) -> Result<(), ReplayError> {
        let id = name.id();
        if self.handles.contains_key(&id) || accelerator.allocator().pool_uses(id) > 0 {
            return Err(ReplayError::PoolExists(name));
        }
        if options.contains(&PoolOption::Allocator) {
            return Err(ReplayError::OwnAllocator(name));
        }
        let options = MemPoolOptions {
            use_on_oom: options.contains(&PoolOption::UseOnOom),
            no_split: options.contains(&PoolOption::NoSplit),
            pausable: true,
            ..MemPoolOptions::default()
        };
        self.handles.insert(id, Pausable { pool: MemPool::with_id(accelerator, id, options)?, kept: 0 });
        Ok(())
    }

    /// Drops the handle of a pausable pool, and what is kept of it. Returns whether there was one.
    pub(super) fn release(&mut self, pool: MemPoolId) -> bool {
        self.handles.remove(&pool).is_some()
    }

    /// Drops all handles.
    pub(super) fn end(&mut self) {
        self.handles.clear();
    }

    fn pause(&mut self, name: PoolName, keep: PoolKeep) -> Result<PauseReport, ReplayError> {
        let others: u64 = self.handles.values().map(|handle| handle.kept).sum();
        let Pausable { pool, kept } = self.handles.get_mut(&name.id()).ok_or(ReplayError::NotPausable(name))?;
        let keep = if B::HAS_BYTES { keep } else { PoolKeep::Nothing };
        if pool.is_paused() || keep == PoolKeep::Nothing {
            return Ok(pool.pause(Keep::Nothing)?); // says so if it is paused
        }
        let bytes: u64 = pool.snapshot().segments.iter().map(|segment| segment.total_size).sum();
        if others.saturating_add(bytes) > self.most {
            return Err(ReplayError::KeepsTooMuch(self.most));
        }
        let report = match keep {
            PoolKeep::File => in_temporary_file(pool)?,
            PoolKeep::Nothing | PoolKeep::Host => pool.pause(Keep::Host)?,
        };
        *kept = report.bytes;
        Ok(report)
    }

    /// Resumes all of these pools or none. Returns `None` if there is not enough memory.
    fn resume(&mut self, names: &[PoolName]) -> Result<Option<PauseReport>, ReplayError> {
        let handle = |name: &PoolName| self.handles.get(&name.id()).ok_or(ReplayError::NotPausable(*name));
        let handles = names.iter().map(handle).collect::<Result<Vec<_>, _>>()?;
        let pools: Vec<_> = handles.iter().map(|handle| &handle.pool).collect();
        let reports = match MemPool::resume_all(&pools) {
            Ok(reports) => reports,
            Err(Error::OutOfMemory(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        for name in names {
            if let Some(handle) = self.handles.get_mut(&name.id()) {
                handle.kept = 0;
            }
        }
        let nothing = PauseReport { bytes: 0, duration: Duration::ZERO };
        Ok(Some(reports.into_iter().fold(nothing, |sum, report| PauseReport {
            bytes: sum.bytes + report.bytes,
            duration: sum.duration + report.duration,
        })))
    }
}

/// Pauses a pool, whose contents are written to a file that vanishes with the replay.
fn in_temporary_file<B: Controls>(pool: &MemPool<B>) -> Result<PauseReport, ReplayError> {
    let name = TemporaryName::new().map_err(ReplayError::NoFile)?;
    let file = Keep::File(name.path().to_owned());
    let mut name = Some(name);
    // The pool needs the name only to make the file.
    Ok(pool.pause_with(file, &mut |_| drop(name.take()))?)
}

impl<B: Controls> Replayer<B> {
    /// Limits the bytes that are kept of paused pools. The default is that of [`Limits`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.pauses.most = limits.memory;
        self
    }

    /// Skips the lines that pause and resume pools, for devices without virtual memory.
    #[must_use]
    pub fn without_pauses(mut self) -> Self {
        self.pauses.skipped = true;
        self
    }

    /// Returns whether a pool with these options is to be pausable.
    pub(super) fn makes_pausable(&self, options: &[PoolOption]) -> bool {
        options.contains(&PoolOption::Pausable) && !self.pauses.skipped
    }

    pub(super) fn pause(&mut self, pool: PoolName, keep: PoolKeep) -> Result<Outcome, ReplayError> {
        match self.pauses.skipped {
            true => Ok(Outcome::Done),
            false => Ok(Outcome::Paused(self.pauses.pause(pool, keep)?)),
        }
    }

    pub(super) fn resume(&mut self, pool: PoolName, others: &[PoolName]) -> Result<Outcome, ReplayError> {
        if self.pauses.skipped {
            return Ok(Outcome::Done);
        }
        let pools: Vec<_> = std::iter::once(pool).chain(others.iter().copied()).collect();
        Ok(match self.pauses.resume(&pools)? {
            Some(report) => Outcome::Resumed(report),
            None => Outcome::NotResumed(pools.into_iter().map(PoolName::id).collect()),
        })
    }
}
