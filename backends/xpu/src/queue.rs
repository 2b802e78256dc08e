//! Streams: immediate command lists that execute their commands in the order of submission.
#![allow(unsafe_code)] // calls the driver

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fmt, mem, ptr, thread};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{Submissions, lock, try_twice};
use level_zero_sys as sys;
use level_zero_sys::{ze_command_list_handle_t, ze_command_queue_priority_t as Priority};

use crate::answer::{ask, call};
use crate::device::Device;
use crate::signal::{Signal, Signals};
use crate::work::Work;

/// A stream of an Intel GPU: an immediate command list.
#[derive(Debug)]
pub struct XpuStream(pub(crate) Arc<Queue>);

impl Drop for XpuStream {
    fn drop(&mut self) {
        if !self.0.device.health.is_forked() {
            self.0.device.captures.abandon(self.0.number);
        }
        self.0.close();
    }
}

pub(crate) struct Queue {
    /// Distinguishes all streams of the process in captures.
    pub(crate) number: u64,
    pub(crate) device: Arc<Device>,
    signals: Arc<Signals>,
    pub(crate) list: ze_command_list_handle_t,
    order: Order,
    /// Whether only this queue uses the list. If not, another library may add commands at any time.
    owned: bool,
    submitted: Mutex<Submitted>,
    /// Whether all work is done and no more will come.
    closed: AtomicBool,
}

/// The hardware queues that streams use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) ordinal: u32,
    /// The number of queues in the group.
    pub(crate) queues: u32,
    pub(crate) order: Order,
}

impl Group {
    /// Makes an immediate list in one of its queues.
    pub(crate) fn list(
        self,
        device: &Device,
        number: u32,
        priority: Priority,
    ) -> DriverResult<ze_command_list_handle_t> {
        let in_order = sys::ze_command_queue_flag_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER.0;
        let description = sys::ze_command_queue_desc_t {
            ordinal: self.ordinal,
            index: number % self.queues,
            flags: if self.order == Order::Driver { in_order } else { 0 },
            mode: sys::ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            priority,
            ..Default::default()
        };
        let (context, raw, mut list) = (device.context(), device.raw(), ptr::null_mut());
        // SAFETY: The `stype` of the description is set, and the call writes a handle.
        unsafe { call!(device, zeCommandListCreateImmediate(context, raw, &description, &mut list)) }?;
        Ok(list)
    }
}

/// How the order of commands is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the driver: the list was made in order.
    Driver,
    /// By barriers between the commands.
    Barriers,
}

struct Submitted {
    end: End,
    /// Signals of barriers that may not be done yet, each with the signal that its barrier waits for.
    barriers: Submissions<(Arc<Signal>, Option<Arc<Signal>>)>,
    /// A spare signal, for waiting when there is no memory for another event: the caller is about to touch the host
    /// memory of copies.
    spare: Option<Arc<Signal>>,
}

/// The end of the work submitted so far.
enum End {
    /// There was no work.
    Start,
    /// The last command is this barrier.
    At(Arc<Signal>),
    /// The last command is not a barrier with a signal.
    Unmarked,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.list).finish()
    }
}

// SAFETY: Commands are added to the list under the lock, which is all that Level Zero requires.
unsafe impl Send for Queue {}
// SAFETY: As for `Send`.
unsafe impl Sync for Queue {}

impl Queue {
    /// Makes a queue around the list that `make` returns.
    pub(crate) fn new(
        device: &Arc<Device>,
        signals: &Arc<Signals>,
        (order, owned): (Order, bool),
        make: impl FnOnce() -> DriverResult<ze_command_list_handle_t>,
    ) -> DriverResult<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let submitted = Submitted { end: End::Start, barriers: Submissions::new(), spare: Some(signals.take()?) };
        Ok(Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            device: Arc::clone(device),
            signals: Arc::clone(signals),
            list: make()?,
            order,
            owned,
            submitted: Mutex::new(submitted),
            closed: AtomicBool::new(false),
        }))
    }

    /// Locks the state, after a check: in a forked process, the thread that holds the lock may not exist.
    fn submitted(&self) -> DriverResult<MutexGuard<'_, Submitted>> {
        self.device.health.check()?;
        Ok(lock(&self.submitted))
    }

    /// Captures work if the stream captures, and submits it otherwise.
    ///
    /// # Safety
    /// * The requirements of [`Work::append`]; captured work is executed when its graph is launched.
    pub(crate) unsafe fn run(&self, work: &Work) -> DriverResult<()> {
        if self.device.captures.record(self.number, || work.clone()) {
            return Ok(());
        }
        // SAFETY: The caller promises valid memory; the list is used under its lock.
        self.submit(|list| unsafe { work.append(self.device.api, list) })
    }

    /// Lets work run elsewhere between the earlier work of the stream and the later. `submit` submits it: that work
    /// waits for `start` and signals `end`. Returns a signal after which no command needs these two any more, or `None`
    /// if that is the case already.
    ///
    /// If `submit` fails, nothing needs them either.
    pub(crate) fn detour(
        &self,
        start: &Signal,
        end: &Arc<Signal>,
        submit: impl FnOnce() -> DriverResult<()>,
    ) -> DriverResult<Option<Arc<Signal>>> {
        let submitted = &mut *self.submitted()?;
        let joined = self.take(submitted, &self.signals)?;
        submitted.end = End::Unmarked;
        // SAFETY: The lock is held. The caller keeps the event, also after an error: then it is signalled before this
        // returns.
        unsafe { self.barrier(start.native(), None) }?;
        submit().inspect_err(|_| _ = start.wait_at_any_cost())?;
        match self.mark(submitted, joined, Some(end)) {
            Ok(joined) => Ok(Some(joined)),
            // The work runs all the same. The lock keeps later work back until it is done.
            Err(_) if end.wait_at_any_cost() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds commands to the list, after all earlier ones.
    pub(crate) fn submit(
        &self,
        commands: impl FnOnce(ze_command_list_handle_t) -> DriverResult<()>,
    ) -> DriverResult<()> {
        let submitted = &mut *self.submitted()?;
        self.keep_order(submitted)?;
        // Set even if the call fails: the driver may have accepted the first of several commands.
        submitted.end = End::Unmarked;
        commands(self.list)
    }

    fn known_end<'a>(&self, submitted: &'a Submitted) -> &'a End {
        if self.owned { &submitted.end } else { &End::Unmarked }
    }

    /// Makes the next command wait for the previous one. The barrier is added before a command rather than after it, so
    /// that a failure never leaves a command in the list without its submitter's knowledge.
    fn keep_order(&self, submitted: &Submitted) -> DriverResult<()> {
        match (self.order, self.known_end(submitted)) {
            // SAFETY: The list is used under its lock.
            (Order::Barriers, End::Unmarked) => unsafe { self.barrier(ptr::null_mut(), None) },
            _ => Ok(()),
        }
    }

    /// Adds a barrier. It waits for all earlier commands, or with `awaited` only makes later commands wait for that
    /// event.
    ///
    /// # Safety
    /// * The lock is held, and the events live until the barrier is done.
    unsafe fn barrier(&self, signal: sys::ze_event_handle_t, awaited: Option<&Signal>) -> DriverResult<()> {
        let (device, list) = (&self.device, self.list);
        match awaited.map(Signal::native) {
            // SAFETY: The caller makes the same promise.
            None => unsafe { call!(device, zeCommandListAppendBarrier(list, signal, 0, ptr::null_mut())) },
            // The event may belong to another device. The loss of that device does not concern this one. SAFETY: The
            // caller makes the same promise.
            Some(mut event) => unsafe { ask!(device.api, zeCommandListAppendBarrier(list, signal, 1, &mut event)) },
        }
    }

    /// Adds a barrier that signals after all work submitted so far, and after the awaited signal.
    fn mark(
        &self,
        submitted: &mut Submitted,
        signal: Arc<Signal>,
        awaited: Option<&Arc<Signal>>,
    ) -> DriverResult<Arc<Signal>> {
        if awaited.is_some() {
            self.keep_order(submitted)?; // a barrier that waits for an event does not wait for earlier commands
        }
        // SAFETY: The lock is held, and the events are kept until the signal is reached.
        unsafe { self.barrier(signal.native(), awaited.map(Arc::as_ref)) }?;
        submitted.barriers.push((Arc::clone(&signal), awaited.cloned()));
        submitted.end = End::At(Arc::clone(&signal));
        Ok(signal)
    }

    /// Returns an unused signal to be placed after the submitted work.
    fn take(&self, submitted: &mut Submitted, kind: &Arc<Signals>) -> DriverResult<Arc<Signal>> {
        // This releases the events of barriers.
        submitted.barriers.retire(|(signal, _)| (signal.is_reached() == Ok(true)).then_some(Ok(())));
        if submitted.spare.is_none() {
            submitted.spare = self.signals.take().ok();
        }
        kind.take()
    }

    /// Returns a signal after all submitted work, or `None` if there was none.
    fn end(&self, submitted: &mut Submitted, urgent: bool) -> DriverResult<Option<Arc<Signal>>> {
        match self.known_end(submitted) {
            End::Start => Ok(None),
            End::At(signal) => Ok(Some(Arc::clone(signal))),
            End::Unmarked => {
                let taken = self.take(submitted, &self.signals);
                let spare = if urgent && taken.is_err() { submitted.spare.take() } else { None };
                let signal = spare.map_or(taken, Ok)?;
                self.mark(submitted, signal, None).map(Some)
            }
        }
    }

    /// Returns a signal of this kind after all submitted work, or `None` if there is nothing to wait for.
    pub(crate) fn record(&self, kind: &Arc<Signals>) -> DriverResult<Option<Arc<Signal>>> {
        let submitted = &mut *self.submitted()?;
        match kind.timing {
            true => {
                let signal = self.take(submitted, kind)?;
                self.mark(submitted, signal, None).map(Some)
            }
            false => self.end(submitted, false),
        }
    }

    /// Makes later commands wait for a signal.
    pub(crate) fn wait_for(&self, awaited: &Arc<Signal>) -> DriverResult<()> {
        let submitted = &mut *self.submitted()?;
        if !awaited.is_reached()? {
            let signal = self.take(submitted, &self.signals)?;
            self.mark(submitted, signal, Some(awaited))?;
        }
        Ok(())
    }

    pub(crate) fn is_idle(&self) -> DriverResult<bool> {
        let end = self.end(&mut *self.submitted()?, false)?;
        // In lists of other libraries, a new barrier is queried only once, so it gets a little time.
        let soon = if self.owned { 0 } else { 1_000_000 };
        end.map_or(Ok(true), |end| end.is_reached_within(soon))
    }

    fn wait_for_end(&self) -> DriverResult<()> {
        let end = self.end(&mut *self.submitted()?, true)?;
        end.map_or(Ok(()), |end| end.wait())
    }

    /// Waits even if it fails, until an attempt succeeds or the device is lost: the caller is about to touch the host
    /// memory of copies, and the driver may only lack memory for the wait.
    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        self.wait_for_end().inspect_err(|_| {
            while !self.is_done() {
                thread::sleep(Duration::from_millis(1));
            }
        })
    }

    /// Waits until nothing in this queue runs any more, with several attempts. Returns `false` if that cannot be
    /// determined.
    pub(crate) fn is_done(&self) -> bool {
        let done = || self.closed.load(Ordering::Acquire) || self.device.is_lost();
        (0..3).any(|_| done() || self.wait_for_end().is_ok())
    }

    /// Waits for the work and destroys the list.
    fn close(self: &Arc<Self>) {
        if !self.is_done() {
            // The list is leaked with all that it needs, since its work may still run. Later frees will try to wait for
            // it again.
            return mem::forget(Arc::clone(self));
        }
        if self.owned {
            // SAFETY: The backend made the list for this queue alone, and its commands are done.
            try_twice(|| unsafe { call!(self.device, zeCommandListDestroy(self.list)) });
        }
        self.closed.store(true, Ordering::Release);
    }
}
