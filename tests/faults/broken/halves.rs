//! Copies in two halves, between which other streams' work runs.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use accelerator_core::{Backend, DevicePtr, DriverResult, Place};

use super::streams::Lane;
use super::work::Work;
use super::{Broken, lock};
use crate::fault::{Fault, planted};

/// A copy that is held back until the next work of any stream comes.
pub(super) struct Held<B: Backend> {
    lane: Arc<Lane<B>>,
    copy: Work<B::Ptr>,
}

/// Whether the fault is that work runs between the halves of a copy. The driver says that this never happens.
pub(super) fn are_apart() -> bool {
    matches!(planted(), Some(Fault::ConflictsOverlap | Fault::ConflictsAtTwoAddressesOverlap))
}

impl<B: Backend> Broken<B> {
    /// Submits the work, between the halves of another stream's copy if one is held back.
    ///
    /// # Safety
    /// As for [`Backend::copy`] and [`Backend::fill`].
    pub(super) unsafe fn submit_between_halves(&self, lane: &Arc<Lane<B>>, work: Work<B::Ptr>) -> DriverResult<()> {
        let mut held = lock(&self.held);
        match held.take() {
            Some(other) if other.lane.number != lane.number && other.lets_in(&work) => {
                let (first, second) = other.copy.halves();
                self.submit_held(&other.lane, first)?;
                self.inner.wait(lane.native(), &self.marked(other.lane.native())?)?;
                // SAFETY: The caller promises the same.
                unsafe { work.submit(&*self.inner, lane.native()) }?;
                self.inner.wait(other.lane.native(), &self.marked(lane.native())?)?;
                return second.map_or(Ok(()), |second| self.submit_held(&other.lane, second));
            }
            Some(other) => self.submit_held(&other.lane, other.copy)?,
            None => {}
        }
        if work.is_fill() {
            // SAFETY: The caller promises the same.
            return unsafe { work.submit(&*self.inner, lane.native()) };
        }
        *held = Some(Held { lane: Arc::clone(lane), copy: work });
        Ok(())
    }

    /// Submits the stream's last copy, if it is held back.
    pub(super) fn submit_held_copy(&self, lane: &Lane<B>) -> DriverResult<()> {
        let held = lock(&self.held).take_if(|held| held.lane.number == lane.number);
        held.map_or(Ok(()), |held| self.submit_held(lane, held.copy))
    }

    fn submit_held(&self, lane: &Lane<B>, work: Work<B::Ptr>) -> DriverResult<()> {
        // SAFETY: Its submitter promised that it may run until the stream has done it, and has not waited for it.
        unsafe { work.submit(&*self.inner, lane.native()) }
    }
}

impl<B: Backend> Held<B> {
    /// Whether the fault lets this work of another stream run between the halves.
    fn lets_in(&self, work: &Work<B::Ptr>) -> bool {
        let shares_addresses = || {
            let own = self.copy.addresses();
            work.addresses().iter().any(|one| own.iter().any(|own| one.start < own.end && own.start < one.end))
        };
        planted() == Some(Fault::ConflictsOverlap) || !shares_addresses()
    }
}

impl<P: DevicePtr> Work<P> {
    /// Returns the first and the second half of a copy. Other work is one piece.
    fn halves(self) -> (Self, Option<Self>) {
        let Self::Copy { to, from, len } = self else { return (self, None) };
        let half = len.get() / 2;
        let (Some(first), Some(second)) = (NonZeroU64::new(half), NonZeroU64::new(len.get() - half)) else {
            return (self, None);
        };
        let rest = Self::Copy { to: behind(to, half), from: behind(from, half), len: second };
        (Self::Copy { to, from, len: first }, Some(rest))
    }

    /// Returns the device addresses that it uses.
    fn addresses(&self) -> Vec<Range<u64>> {
        let (places, len) = match *self {
            Self::Copy { to, from, len } => (vec![to, from], len),
            Self::Fill { at, len, .. } => (vec![Place::Device(at)], len),
        };
        let starts = places.into_iter().filter_map(|place| match place {
            Place::Device(at) => Some(at.trace_address()),
            _ => None,
        });
        starts.map(|start| start..start + len.get()).collect()
    }
}

/// Returns the place this many bytes further on, which is in the same memory.
fn behind<P: DevicePtr>(place: Place<P>, offset: u64) -> Place<P> {
    match place {
        Place::Device(at) => Place::Device(at.offset(offset)),
        // SAFETY: The copy that is divided is longer than this.
        Place::Host(at) => Place::Host(unsafe { at.add(offset as usize) }),
        other => other, // a kind of place that no case uses
    }
}
