//! Events of Level Zero: signalled once, and then reset before they are used again.
#![allow(unsafe_code)] // calls the driver

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use accelerator_core::DriverResult;
use level_zero_sys as sys;
use level_zero_sys::{ze_event_handle_t, ze_event_pool_flag_t as Flag, ze_event_pool_handle_t};

use crate::answer::{self, call};
use crate::device::{Device, give_back};

/// An event that is not signalled, to be signalled by one command. Whoever submits that command, or one that waits
/// for it, holds this until the command is done: then it is reset and used again.
#[derive(Debug)]
pub(crate) struct Signal {
    pub(crate) event: ze_event_handle_t,
    reached: AtomicBool,
    /// When the host took it for a command; only with timing.
    pub(crate) taken: Option<Instant>,
    signals: Arc<Signals>,
}

// SAFETY: Every thread may ask about an event and wait for it; it is reset and destroyed by its last holder only.
unsafe impl Send for Signal {}
// SAFETY: As for `Send`.
unsafe impl Sync for Signal {}

impl Signal {
    /// The event, for commands.
    pub(crate) fn native(&self) -> ze_event_handle_t {
        self.event
    }

    pub(crate) fn is_reached(&self) -> DriverResult<bool> {
        // SAFETY: The event lives.
        self.ask(|device| unsafe { call!(device, zeEventQueryStatus(self.event)) })
    }

    /// Waits on the host, for so many nanoseconds at most. Whether it is reached.
    pub(crate) fn is_reached_within(&self, ns: u64) -> DriverResult<bool> {
        // SAFETY: The event lives.
        self.ask(|device| unsafe { call!(device, zeEventHostSynchronize(self.event, ns)) })
    }

    /// Waits on the host.
    pub(crate) fn wait(&self) -> DriverResult<()> {
        while !self.is_reached_within(u64::MAX)? {}
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

    /// When it was signalled, in ticks of the device's clock.
    pub(crate) fn ticks(&self) -> DriverResult<u64> {
        let (device, mut timestamp) = (&self.signals.device, sys::ze_kernel_timestamp_result_t::default());
        // SAFETY: The event lives, and the call fills a structure.
        unsafe { call!(device, zeEventQueryKernelTimestamp(self.event, &mut timestamp)) }?;
        Ok(timestamp.global.kernelEnd)
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
    /// How many events of the last pool were made.
    made: u32,
    /// Events that no command needs any more; they may be signalled.
    free: Vec<ze_event_handle_t>,
}

// SAFETY: The handles are names; the lock around them is what their calls ask for.
unsafe impl Send for Shelf {}

const EVENTS_OF_A_POOL: u32 = 64;

impl Signals {
    pub(crate) fn new(device: &Arc<Device>, timing: bool) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), timing, shelf: Mutex::default() })
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event that is not signalled.
    pub(crate) fn take(self: &Arc<Self>) -> DriverResult<Arc<Signal>> {
        let used = self.shelf().free.pop();
        let event = used.map_or_else(|| self.make(), Ok)?;
        // From here on it goes back to the shelf, whatever happens.
        let taken = self.timing.then(Instant::now);
        let signal = Signal { event, reached: AtomicBool::new(false), taken, signals: Arc::clone(self) };
        if used.is_some() {
            // SAFETY: The event lives, and no command is left that needs it.
            unsafe { call!(self.device, zeEventHostReset(event)) }?;
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
        // What was done before is seen on the host, and so everywhere, once the event is.
        let scope = sys::ze_event_scope_flag_t::ZE_EVENT_SCOPE_FLAG_HOST.0;
        let index = shelf.made;
        let description = sys::ze_event_desc_t { index, signal: scope, wait: scope, ..Default::default() };
        let mut event = ptr::null_mut();
        // SAFETY: The pool lives, the description says its type, and the call writes a handle.
        unsafe { call!(device, zeEventCreate(pool, &description, &mut event)) }?;
        shelf.made += 1;
        Ok(event)
    }

    fn make_pool(&self) -> DriverResult<ze_event_pool_handle_t> {
        let timing = if self.timing { Flag::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP.0 } else { 0 };
        let flags = Flag::ZE_EVENT_POOL_FLAG_HOST_VISIBLE.0 | timing;
        let description = sys::ze_event_pool_desc_t { flags, count: EVENTS_OF_A_POOL, ..Default::default() };
        let (device, all, mut pool) = (&self.device, ptr::null_mut(), ptr::null_mut());
        // SAFETY: The context lives, the description says its type, and the call writes a handle.
        unsafe { call!(device, zeEventPoolCreate(device.context(), &description, 0, all, &mut pool)) }?;
        Ok(pool)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let (device, shelf) = (&self.device, self.shelf.get_mut().unwrap_or_else(PoisonError::into_inner));
        for event in shelf.free.drain(..) {
            // SAFETY: Made by `make`; each signal holds this, so that all events are back.
            give_back(|| unsafe { call!(device, zeEventDestroy(event)) });
        }
        for pool in shelf.pools.drain(..) {
            // SAFETY: Made by `make_pool`, and its events are gone.
            give_back(|| unsafe { call!(device, zeEventPoolDestroy(pool)) });
        }
    }
}
