//! Level Zero events: signalled once, then reset before they are reused.
#![allow(unsafe_code)] // calls the driver

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use accelerator_core::backend_kit::{Timestamp, get_mut, lock, try_twice};
use accelerator_core::{DriverError, DriverErrorKind, DriverResult};
use level_zero_sys as sys;
use level_zero_sys::{ze_event_handle_t, ze_event_pool_flag_t as Flag, ze_event_pool_handle_t};

use crate::answer::{self, call};
use crate::device::Device;

/// An unsignalled event, to be signalled by one command. The submitter of that command, and of any command that waits
/// for it, keeps this until its command is done. Then the event is reset and reused.
#[derive(Debug)]
pub(crate) struct Signal {
    pub(crate) event: ze_event_handle_t,
    reached: AtomicBool,
    /// When the host took it for a command; recorded only with timing.
    taken: Option<Instant>,
    signals: Arc<Signals>,
}

// SAFETY: Any thread may query an event and wait for it; only its last owner resets or destroys it.
unsafe impl Send for Signal {}
// SAFETY: As for `Send`.
unsafe impl Sync for Signal {}

impl Signal {
    /// Returns the event, for commands.
    pub(crate) fn native(&self) -> ze_event_handle_t {
        self.event
    }

    pub(crate) fn is_reached(&self) -> DriverResult<bool> {
        // SAFETY: The event is alive.
        self.ask(|device| unsafe { call!(device, zeEventQueryStatus(self.event)) })
    }

    /// Waits on the host, for at most this many nanoseconds. Returns whether the event is reached.
    pub(crate) fn is_reached_within(&self, ns: u64) -> DriverResult<bool> {
        // SAFETY: The event is alive.
        self.ask(|device| unsafe { call!(device, zeEventHostSynchronize(self.event, ns)) })
    }

    /// Waits on the host.
    pub(crate) fn wait(&self) -> DriverResult<()> {
        while !self.is_reached_within(u64::MAX)? {}
        Ok(())
    }

    /// Waits on the host, even if attempts fail, until one succeeds or the device is lost. Returns whether it is
    /// reached.
    pub(crate) fn wait_at_any_cost(&self) -> bool {
        while self.wait().is_err() {
            if self.signals.device.is_lost() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Makes it unsignalled again, for another command.
    ///
    /// # Safety
    /// * No command that was submitted needs it any more.
    pub(crate) unsafe fn reset(&self) -> DriverResult<()> {
        // SAFETY: The event is alive; the caller promises the rest.
        unsafe { call!(self.signals.device, zeEventHostReset(self.event)) }?;
        self.reached.store(false, Ordering::Release);
        Ok(())
    }

    fn ask(&self, asked: impl FnOnce(&Device) -> DriverResult<()>) -> DriverResult<bool> {
        if self.reached.load(Ordering::Acquire) {
            return Ok(true);
        }
        let reached = answer::is_ready(asked(&self.signals.device))?;
        if reached {
            self.reached.store(true, Ordering::Release);
        }
        Ok(reached)
    }

    /// Returns when it was signalled.
    pub(crate) fn timestamp(&self) -> DriverResult<Timestamp> {
        const CALL: &str = "zeEventQueryKernelTimestamp";
        let untimed = || DriverError::refused(DriverErrorKind::InvalidArgument, CALL, "the event has no timing");
        let submitted = self.taken.ok_or_else(untimed)?;
        let (device, mut timestamp) = (&self.signals.device, sys::ze_kernel_timestamp_result_t::default());
        // SAFETY: The event is alive, and the call fills a structure.
        unsafe { call!(device, zeEventQueryKernelTimestamp(self.event, &mut timestamp)) }?;
        Ok(Timestamp { ticks: timestamp.global.kernelEnd, submitted })
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.signals.shelf().free.push(self.event);
    }
}

/// The events of a device, all with timing or all without.
#[derive(Debug)]
pub(crate) struct Signals {
    device: Arc<Device>,
    pub(crate) timing: bool,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    pools: Vec<ze_event_pool_handle_t>,
    /// The number of events made from the last pool.
    made: u32,
    /// Events that no command needs any more. They may be signalled.
    free: Vec<ze_event_handle_t>,
}

// SAFETY: The handles are only names; the lock around them satisfies the requirements of their calls.
unsafe impl Send for Shelf {}

const EVENTS_OF_A_POOL: u32 = 64;

impl Signals {
    pub(crate) fn new(device: &Arc<Device>, timing: bool) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), timing, shelf: Mutex::default() })
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }

    /// Returns an unsignalled event.
    pub(crate) fn take(self: &Arc<Self>) -> DriverResult<Arc<Signal>> {
        let used = self.shelf().free.pop();
        let event = used.map_or_else(|| self.make(), Ok)?;
        // From here on, it returns to the shelf whatever happens.
        let taken = self.timing.then(Instant::now);
        let signal = Signal { event, reached: AtomicBool::new(false), taken, signals: Arc::clone(self) };
        if used.is_some() {
            // SAFETY: Events return to the shelf when no command needs them any more.
            unsafe { signal.reset() }?;
        }
        Ok(Arc::new(signal))
    }

    fn make(&self) -> DriverResult<ze_event_handle_t> {
        let (device, shelf) = (&self.device, &mut *self.shelf());
        let full = shelf.made == EVENTS_OF_A_POOL;
        let pool = match shelf.pools.last() {
            Some(pool) if !full => *pool,
            _ => {
                let pool = self.make_pool()?;
                shelf.pools.push(pool);
                shelf.made = 0;
                pool
            }
        };
        // With this scope, the effects of earlier work are visible to the host, and so everywhere, once the event is
        // signalled.
        let scope = sys::ze_event_scope_flag_t::ZE_EVENT_SCOPE_FLAG_HOST.0;
        let index = shelf.made;
        let description = sys::ze_event_desc_t { index, signal: scope, wait: scope, ..Default::default() };
        let mut event = ptr::null_mut();
        // SAFETY: The pool is alive, the `stype` of the description is set, and the call writes a handle.
        unsafe { call!(device, zeEventCreate(pool, &description, &mut event)) }?;
        shelf.made += 1;
        Ok(event)
    }

    fn make_pool(&self) -> DriverResult<ze_event_pool_handle_t> {
        let timing = if self.timing { Flag::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP.0 } else { 0 };
        let flags = Flag::ZE_EVENT_POOL_FLAG_HOST_VISIBLE.0 | timing;
        let description = sys::ze_event_pool_desc_t { flags, count: EVENTS_OF_A_POOL, ..Default::default() };
        let (device, all, mut pool) = (&self.device, ptr::null_mut(), ptr::null_mut());
        // SAFETY: The context is alive, the `stype` of the description is set, and the call writes a handle.
        unsafe { call!(device, zeEventPoolCreate(device.context(), &description, 0, all, &mut pool)) }?;
        Ok(pool)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let (device, shelf) = (&self.device, get_mut(&mut self.shelf));
        for event in shelf.free.drain(..) {
            // SAFETY: The event was made by `make`. Each signal holds a reference to this, so all events have been
            // returned.
            try_twice(|| unsafe { call!(device, zeEventDestroy(event)) });
        }
        for pool in shelf.pools.drain(..) {
            // SAFETY: The pool was made by `make_pool`, and its events are gone.
            try_twice(|| unsafe { call!(device, zeEventPoolDestroy(pool)) });
        }
    }
}
