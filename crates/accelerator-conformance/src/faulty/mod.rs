//! A driver around a driver: it counts the calls, and makes them fail, come late or wait.

mod budget;
mod driver;
mod failures;
mod gate;
mod host;
mod lanes;
mod quarantine;
mod virtual_memory;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerator_core::{Backend, DeviceProperties, DriverErrorKind, DriverResult};

use self::budget::Budget;
pub use self::driver::FaultyEvent;
use self::failures::Failures;
pub use self::gate::Gate;
use self::gate::Gates;
use self::host::HostMemory;
pub use self::lanes::FaultyStream;
use self::lanes::Lanes;
use self::quarantine::Quarantine;
pub use self::quarantine::{POISON, UseAfterFree};
use crate::calls::{Call, Calls};
use crate::controls::Controls;
use crate::mappings::Mappings;

/// Any backend, with faults on demand. Left alone it does what the backend inside does.
///
/// * Calls are [counted](Controls::calls) and [logged](Self::start_log).
/// * The [n-th call](Self::fail_call), the [next of one kind](Self::fail_next) or [all of them](Self::set_lost) fail.
/// * [Held](Controls::hold) streams give their work to the driver at the release, so that it is truly late, bytes and
///   all; work of other streams that waits for theirs is late too. A host that waits for an event or a stream gets
///   everything up to there done.
/// * A call can be kept waiting inside the driver, at a [`Gate`].
/// * The device can be made [smaller](Controls::set_capacity).
/// * Memory that is given back can be [poisoned and kept](Self::start_quarantine), to find later writes to it.
/// * Host memory that is given back, and device memory that is unmapped, while late work still has to use it [is
///   found](Self::misuses).
/// * A stream can be made to say that it [is captured](Self::set_capturing).
pub struct Faulty<B: Backend> {
    inner: Arc<B>,
    properties: DeviceProperties,
    calls: Calls,
    log: Mutex<Option<Vec<Call>>>,
    failures: Failures,
    gates: Gates,
    budget: Budget<B::Ptr>,
    mappings: Mutex<Mappings<B::Ptr>>,
    host: HostMemory,
    lanes: Lanes<B>,
    quarantine: Quarantine<B>,
}

impl<B: Backend> Faulty<B> {
    /// Around this backend, which may be shared with others.
    pub fn new(inner: impl Into<Arc<B>>) -> Self {
        let inner = inner.into();
        Self {
            properties: inner.properties().clone(),
            inner,
            calls: Calls::default(),
            log: Mutex::new(None),
            failures: Failures::default(),
            gates: Gates::default(),
            budget: Budget::new(None),
            mappings: Mutex::new(Mappings::new()),
            host: HostMemory::new(),
            lanes: Lanes::new(),
            quarantine: Quarantine::new(),
        }
    }

    /// A device with at most this many bytes, in its properties too.
    pub fn with_memory(self, bytes: u64) -> Self {
        let mut properties = self.properties;
        properties.total_memory = properties.total_memory.min(bytes);
        Self { budget: Budget::new(Some(bytes)), properties, ..self }
    }

    /// The backend inside.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Makes the `n`-th call from now fail, 1 being the next. Calls that cannot fail, as `dealloc`, are not counted.
    ///
    /// A `synchronize` that fails has waited all the same, as the trait asks for.
    pub fn fail_call(&self, n: u64, kind: DriverErrorKind) {
        self.failures.fail_call(n, kind);
    }

    /// Makes the next call of this kind fail, once; more often if asked for more often.
    pub fn fail_next(&self, call: Call, kind: DriverErrorKind) {
        self.failures.fail_next(call, kind);
    }

    /// Makes every call fail as those to a lost device do, until it is set back.
    pub fn set_lost(&self, lost: bool) {
        self.failures.set_lost(lost);
    }

    /// Takes back all failures that have not happened yet.
    pub fn clear_failures(&self) {
        self.failures.clear();
    }

    /// Calls that were made to fail so far.
    pub fn injected(&self) -> u64 {
        self.failures.injected()
    }

    /// Keeps the next call of this kind waiting inside the driver until the gate is opened.
    pub fn gate(&self, call: Call) -> Gate {
        self.gates.close(call)
    }

    /// Releases every stream.
    pub fn release_all(&self) {
        self.lanes.release_all(&self.inner);
    }

    /// Starts to write down the calls, afresh.
    pub fn start_log(&self) {
        *self.log() = Some(Vec::new());
    }

    /// The calls since the log was started, in order; the log ends.
    pub fn take_log(&self) -> Vec<Call> {
        self.log().take().unwrap_or_default()
    }

    /// Driver allocations that live, and memory without an address of its own.
    pub fn live_allocations(&self) -> usize {
        self.budget.live().len() + self.mappings().all_created().len()
    }

    /// Reservations of address space that live.
    pub fn live_reservations(&self) -> usize {
        self.mappings().all_reserved().len()
    }

    /// Bytes of the driver allocations that live.
    pub fn used(&self) -> u64 {
        self.budget.used()
    }

    /// Allocations of host memory that live.
    pub fn live_host_allocations(&self) -> usize {
        self.host.budget().live().len()
    }

    /// Bytes of the host memory that lives.
    pub fn host_used(&self) -> u64 {
        self.host.budget().used()
    }

    /// Changes how many bytes of host memory there are to hand out: at first, as many as the driver inside has.
    pub fn set_host_capacity(&self, capacity: u64) {
        self.host.budget().set_capacity(capacity);
    }

    /// Calls that give back or map what is not there, which go no further; and calls that give back host memory, or unmap
    /// memory, that work still has to use.
    pub fn misuses(&self) -> u64 {
        self.budget.misuses() + self.host.budget().misuses()
    }

    /// Makes the stream say that its work is being captured, or no longer. Its work is done all the same.
    pub fn set_capturing(&self, stream: &FaultyStream<B>, capturing: bool) {
        stream.capturing.store(capturing, Ordering::SeqCst);
    }

    /// From now on memory that is given back is filled with [`POISON`] and kept; that of the host, too.
    pub fn start_quarantine(&self) {
        self.quarantine.start();
        self.host.start_quarantine();
    }

    /// Memory in quarantine that was written to.
    ///
    /// # Errors
    /// What the driver inside says.
    pub fn check_quarantine(&self) -> DriverResult<Vec<UseAfterFree>> {
        let mut found = self.host.check_quarantine();
        if let Some(stream) = self.lanes.natives().first() {
            found.append(&mut self.quarantine.check(&self.inner, stream)?);
        }
        Ok(found)
    }

    /// Ends the quarantine: what it kept goes back to the driver.
    pub fn end_quarantine(&self) {
        self.quarantine.end(&self.inner);
        self.host.end_quarantine(&*self.inner);
    }

    /// Gives every driver allocation back, those of host memory and of address space too, whoever holds them.
    ///
    /// # Safety
    /// * Nothing that was allocated here is used afterwards, and no memory is given back, allocated or mapped afterwards.
    #[allow(unsafe_code)] // passes the promise on to `Backend::dealloc`
    pub unsafe fn reclaim(&self) {
        self.release_all();
        for stream in self.lanes.natives() {
            // What cannot be waited for does no further work.
            let _ = self.inner.synchronize(&stream);
        }
        self.end_quarantine();
        for (ptr, len) in self.budget.live() {
            if self.budget.remove(ptr, len) {
                self.budget.refund(len);
                // SAFETY: A live allocation of the backend inside, no longer listed; the caller promises the rest.
                unsafe { self.inner.dealloc(ptr, len) };
            }
        }
        // SAFETY: All work was waited for; the caller promises the rest.
        unsafe { self.reclaim_virtual_memory() };
        // SAFETY: As above.
        unsafe { self.host.reclaim(&*self.inner) };
    }

    fn log(&self) -> MutexGuard<'_, Option<Vec<Call>>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Controls for Faulty<B> {
    const BASE: u64 = 0;

    fn hold(&self, stream: &FaultyStream<B>) {
        self.lanes.hold(stream);
    }

    fn release(&self, stream: &FaultyStream<B>) {
        self.lanes.release(&self.inner, stream);
    }

    fn settle(&self) {
        for stream in self.lanes.natives() {
            // What fails is told by the call that the user makes of the stream.
            let _ = self.inner.synchronize(&stream);
        }
    }

    fn set_capacity(&self, capacity: u64) {
        self.budget.set_capacity(capacity);
    }

    fn fail_allocs(&self, count: u64) {
        self.failures.fail_allocs(count);
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }
}

impl<B: Backend> fmt::Debug for Faulty<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { properties, budget, .. } = self;
        write!(f, "Faulty {{ around: {:?}, {budget:?} }}", properties.name)
    }
}
