//! Copies and fills that do something else.

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Arc;

use accelerator_core::{Backend, DevicePtr, DriverResult, MIB, Place};

use super::streams::{Lane, State};
use super::{Broken, halves};
use crate::fault::{Fault, has, planted};

/// Work of a stream.
#[derive(Clone, Copy)]
pub(super) enum Work<P> {
    Copy { to: Place<P>, from: Place<P>, len: NonZeroU64 },
    Fill { at: P, value: u8, len: NonZeroU64 },
}

// SAFETY: Only the host pointers keep it from being `Send` automatically. `Backend::copy` requires host memory that
// stays valid until the stream has done the copy, on whatever thread that happens.
unsafe impl<P: Send> Send for Work<P> {}

/// Bytes on their way between host memory and a stream.
pub(super) struct Staged {
    bytes: Box<[u8]>,
    /// Where they go when the stream is synchronized, if they do.
    to: Option<NonNull<u8>>,
}

// SAFETY: As for `Work`.
unsafe impl Send for Staged {}

impl Staged {
    pub(super) fn arrive(self) {
        if let Some(to) = self.to {
            // SAFETY: The destination of a copy that the program has not waited for before, and so has not freed.
            unsafe { self.bytes.as_ptr().copy_to(to.as_ptr(), self.bytes.len()) };
        }
    }
}

/// The length of the part that a driver does that does only one.
const PART: u64 = 16 * MIB;

/// The length of the longest fill that a driver has a faster way for.
const SHORT: u64 = MIB;

impl<P: DevicePtr> Work<P> {
    /// Submits it to the inner stream.
    ///
    /// # Safety
    /// As for [`Backend::copy`] and [`Backend::fill`].
    pub(super) unsafe fn submit<B: Backend<Ptr = P>>(self, inner: &B, stream: &B::Stream) -> DriverResult<()> {
        match self {
            // SAFETY: The caller promises the same.
            Self::Copy { to, from, len } => unsafe { inner.copy(to, from, len, stream) },
            // SAFETY: The caller promises the same.
            Self::Fill { at, value, len } => unsafe { inner.fill(at, value, len, stream) },
        }
    }

    fn len(&self) -> u64 {
        let (Self::Copy { len, .. } | Self::Fill { len, .. }) = self;
        len.get()
    }

    fn is_short_or_a_copy(&self) -> bool {
        !self.is_fill() || self.len() <= SHORT
    }

    pub(super) fn is_fill(&self) -> bool {
        matches!(self, Self::Fill { .. })
    }
}

impl<B: Backend> Broken<B> {
    /// # Safety
    /// As for [`Backend::copy`] and [`Backend::fill`].
    pub(super) unsafe fn submit(&self, lane: &Arc<Lane<B>>, work: Work<B::Ptr>) -> DriverResult<()> {
        let Some(work) = self.altered(work).filter(|_| !lane.has_stopped()) else { return Ok(()) };
        let mut state = lane.state();
        self.submit_waits(lane, &mut state)?;
        state.before_the_wait = None;
        let work = staged(self, work, &mut state);
        let overtakes = has(if work.is_fill() { Fault::ShortFillOvertakes } else { Fault::CopyOvertakes });
        let waits = has(if work.is_fill() { Fault::ShortFillWaits } else { Fault::CopyWaits });
        let native = lane.native();
        if overtakes && work.is_short_or_a_copy() {
            // SAFETY: The caller promises the same for the stream, which waits for the work.
            unsafe { work.submit(&*self.inner, lane.beside()) }?;
            return self.inner.wait(native, &self.marked(lane.beside())?);
        }
        if halves::are_apart() {
            // SAFETY: The caller promises the same.
            return unsafe { self.submit_between_halves(lane, work) };
        }
        if has(Fault::RecordOneSubmissionEarly) {
            return match state.late.replace(work) {
                // SAFETY: Its submitter promised that it may run until the stream has done it.
                Some(work) => unsafe { work.submit(&*self.inner, native) },
                None => Ok(()),
            };
        }
        // SAFETY: The caller promises the same, and `altered` stays within the bytes that it may use.
        unsafe { work.submit(&*self.inner, native) }?;
        if self.doubles(lane)? {
            // SAFETY: The same work, within the same bytes.
            unsafe { work.submit(&*self.inner, lane.beside()) }?;
            if has(Fault::CapturedWorkRunsAtOnce) {
                self.inner.synchronize(lane.beside())?;
            }
        }
        if waits && work.is_short_or_a_copy() {
            self.inner.synchronize(native)?;
        }
        if has(Fault::SynchronizeWaitsForTheFirst) && state.first.is_none() {
            state.first = Some(self.marked(native)?);
        }
        Ok(())
    }

    /// Submits work that was kept back.
    pub(super) fn submit_late_work(&self, lane: &Lane<B>) -> DriverResult<()> {
        self.submit_held_copy(lane)?;
        match lane.state().late.take() {
            // SAFETY: Its submitter promised that it may run until the stream has done it.
            Some(work) => unsafe { work.submit(&*self.inner, lane.native()) },
            None => Ok(()),
        }
    }

    /// Returns what the driver does instead of this work, or `None` if it does nothing.
    fn altered(&self, work: Work<B::Ptr>) -> Option<Work<B::Ptr>> {
        match work {
            Work::Fill { at, value, len } => self.altered_fill(at, value, len),
            Work::Copy { to, from, len } => self.altered_copy(to, from, len),
        }
    }

    fn altered_fill(&self, at: B::Ptr, value: u8, len: NonZeroU64) -> Option<Work<B::Ptr>> {
        let shorter = |len| Some(Work::Fill { at, value, len: NonZeroU64::new(len)? });
        match planted() {
            Some(Fault::FillDoesNothing) => None,
            Some(Fault::FillValueLost) => Some(Work::Fill { at, value: 0, len }),
            Some(Fault::FillRoundedDown) => shorter(len.get() & !3),
            Some(Fault::FillRoundedUp) => shorter(len.get().next_multiple_of(4).min(self.memory.room_at(at, len))),
            Some(Fault::FillAligned) => Some(Work::Fill { at: self.memory.aligned(at, 4), value, len }),
            Some(Fault::FillOffsetIgnored) => Some(Work::Fill { at: self.memory.start(at), value, len }),
            Some(Fault::FillOfTheFirstPart) => shorter(len.get().min(PART)),
            _ => Some(Work::Fill { at, value, len }),
        }
    }

    fn altered_copy(&self, to: Place<B::Ptr>, from: Place<B::Ptr>, len: NonZeroU64) -> Option<Work<B::Ptr>> {
        let shorter = |len| Some(Work::Copy { to, from, len: NonZeroU64::new(len)? });
        let start = |place| match place {
            Place::Device(at) => Place::Device(self.memory.start(at)),
            place => place,
        };
        let on_the_device = matches!((to, from), (Place::Device(_), Place::Device(_)));
        match planted() {
            Some(Fault::CopyDoesNothing) => None,
            Some(Fault::CopyOneByteShort) => shorter(len.get() - 1),
            Some(Fault::CopyRoundedDown) => shorter(len.get() & !3),
            Some(Fault::CopySourceOffsetIgnored) => Some(Work::Copy { to, from: start(from), len }),
            Some(Fault::CopyDestinationOffsetIgnored) => Some(Work::Copy { to: start(to), from, len }),
            Some(Fault::CopyReversed) if on_the_device => Some(Work::Copy { to: from, from: to, len }),
            Some(Fault::CopyOnTheDeviceLost) if on_the_device => None,
            Some(Fault::CopyOfTheFirstPart) => shorter(len.get().min(PART)),
            _ => Some(Work::Copy { to, from, len }),
        }
    }
}

/// Returns the work with other host memory instead, if the driver stages its bytes.
fn staged<B: Backend>(broken: &Broken<B>, work: Work<B::Ptr>, state: &mut State<B>) -> Work<B::Ptr> {
    let Work::Copy { to, from, len } = work else { return work };
    let bytes = || vec![0; len.get() as usize].into_boxed_slice();
    let is_staged = |at| match planted() {
        Some(Fault::PinnedStagedAtSubmission) => broken.host.contains(at),
        Some(Fault::PageableStagedAtSubmission) => !broken.host.contains(at),
        _ => false,
    };
    match (to, from) {
        (_, Place::Host(at)) if is_staged(at) => {
            let mut bytes = bytes();
            // SAFETY: The source is valid for reads. Earlier work may still write it, which is the fault.
            unsafe { at.as_ptr().copy_to(bytes.as_mut_ptr(), bytes.len()) };
            let from = Place::Host(NonNull::from(&mut bytes[..]).cast());
            state.staged.push(Staged { bytes, to: None });
            Work::Copy { to, from, len }
        }
        (Place::Host(at), Place::Device(_)) if has(Fault::CopyToTheHostIsLate) => {
            let mut bytes = bytes();
            let to = Place::Host(NonNull::from(&mut bytes[..]).cast());
            state.staged.push(Staged { bytes, to: Some(at) });
            Work::Copy { to, from, len }
        }
        _ => work,
    }
}
