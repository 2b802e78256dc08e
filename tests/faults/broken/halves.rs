//! Copies in two halves, between which other streams' work runs.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use accelerator_core::{Backend, DevicePtr, DriverResult, Place};

use super::streams::Lane;
use super::work::Work;
use super::{Broken, lock};
use crate::fault::{Fault, planted};

/// The second half of a copy, which waits for the next work of any stream.
pub(super) struct Half<B: Backend> {
    lane: Arc<Lane<B>>,
    work: Work<B::Ptr>,
}

/// Whether the fault is that work runs between the halves of a copy. The driver says that this never happens.
pub(super) fn are_apart() -> bool {
    matches!(planted(), Some(Fault::ConflictsOverlap | Fault::ConflictsAtTwoAddressesOverlap))
}

impl<B: Backend> Broken<B> {
    /// Submits the work, between the halves of another stream's copy if there is one.
    ///
    /// # Safety
    /// As for [`Backend::copy`] and [`Backend::fill`].
    pub(super) unsafe fn submit_in_halves(&self, lane: &Arc<Lane<B>>, work: Work<B::Ptr>) -> DriverResult<()> {
        let mut held = lock(&self.half);
        if let Some(half) = held.take() {
            if half.lane.number != lane.number && half.lets_in(&work) {
                self.inner.wait(lane.native(), &self.marked(half.lane.native())?)?;
                // SAFETY: The caller promises the same.
                unsafe { work.submit(&*self.inner, lane.native()) }?;
                self.inner.wait(half.lane.native(), &self.marked(lane.native())?)?;
                return self.submit_half(half);
            }
            self.submit_half(half)?;
        }
        let (first, second) = work.halves();
        // SAFETY: The caller promises the same for the whole.
        unsafe { first.submit(&*self.inner, lane.native()) }?;
        *held = second.map(|work| Half { lane: Arc::clone(lane), work });
        Ok(())
    }

    /// Submits the second half of the stream's last copy, if it was held back.
    pub(super) fn submit_second_half(&self, lane: &Lane<B>) -> DriverResult<()> {
        let half = lock(&self.half).take_if(|half| half.lane.number == lane.number);
        half.map_or(Ok(()), |half| self.submit_half(half))
    }

    fn submit_half(&self, half: Half<B>) -> DriverResult<()> {
        // SAFETY: Its submitter promised that it may run until the stream has done it, and has not waited for it.
        unsafe { half.work.submit(&*self.inner, half.lane.native()) }
    }
}

impl<B: Backend> Half<B> {
    /// Whether the fault lets this work of another stream in before the half.
    fn lets_in(&self, work: &Work<B::Ptr>) -> bool {
        let shares_addresses = || {
            let own = self.work.addresses();
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
