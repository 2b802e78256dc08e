//! A driver around a driver, which counts calls and makes them fail, run late or wait.

mod budget;
mod driver;
mod entrance;
mod failing_calls;
mod failures;
mod gate;
mod graphs;
mod host;
mod interprocess;
mod lanes;
mod quarantine;
mod virtual_memory;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use accelerator_core::{Backend, DeviceProperties, DriverErrorKind, DriverResult};

use self::budget::Budget;
pub use self::driver::FaultyEvent;
use self::entrance::Entrance;
pub use self::failing_calls::{Failing, FailingCalls};
pub use self::gate::Gate;
use self::host::HostMemory;
use self::interprocess::Imports;
pub use self::lanes::FaultyStream;
use self::lanes::Lanes;
use self::quarantine::Quarantine;
pub use self::quarantine::{POISON, UseAfterFree};
use crate::calls::{Call, Calls};
use crate::controls::Controls;
use crate::mappings::Mappings;

/// Any backend, with faults on demand. Without any, it behaves like the inner backend.
///
/// * Calls are [counted](Controls::calls) and [logged](Self::start_log).
/// * The [n-th call](Self::fail_call), the [next of one kind](Self::fail_next) or [all of them](Self::set_lost) can
///   fail.
/// * [Held](Controls::hold) streams submit their work to the driver at the release. So it really is late, including its
///   effect on memory; work of other streams that waits for it is late too. When the host waits for an event or a
///   stream, everything up to that point is done. Work that is captured goes to the driver at once, since it runs with
///   the launch of its graph.
/// * A call can be blocked inside the driver, at a [`Gate`].
/// * The device can be made [smaller](Controls::set_capacity).
/// * Freed memory can be [poisoned and kept](Self::start_quarantine), to detect later writes to it.
/// * Freeing host memory and unmapping device memory that late work still has to use [is detected](Self::misuses).
/// * A stream can claim that it is [being captured](Self::set_capturing).
pub struct Faulty<B: Backend> {
    inner: Arc<B>,
    properties: DeviceProperties,
    entrance: Arc<Entrance>,
    budget: Budget<B::Ptr>,
    mappings: Mutex<Mappings<B::Ptr>>,
    imports: Imports<B::Ptr>,
    host: HostMemory,
    lanes: Arc<Lanes<B>>,
    quarantine: Quarantine<B>,
}

impl<B: Backend> Faulty<B> {
    /// Wraps this backend, which may be shared with others.
    pub fn new(inner: impl Into<Arc<B>>) -> Self {
        let inner = inner.into();
        Self {
            properties: inner.properties().clone(),
            inner,
            entrance: Arc::default(),
            budget: Budget::new(None),
            mappings: Mutex::new(Mappings::new()),
            imports: Imports::new(),
            host: HostMemory::new(),
            lanes: Arc::new(Lanes::new()),
            quarantine: Quarantine::new(),
        }
    }

    /// Limits the device to this many bytes, in its properties too.
    pub fn with_memory(self, bytes: u64) -> Self {
        let mut properties = self.properties;
        properties.total_memory = properties.total_memory.min(bytes);
        Self { budget: Budget::new(Some(bytes)), properties, ..self }
    }

    /// Makes the calls fail that this plan names, which other faulty drivers may share.
    pub fn with_failing(self, calls: Arc<FailingCalls>) -> Self {
        self.entrance.failures.share(calls);
        self
    }

    /// Returns the inner backend.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Makes the `n`-th call from now fail; 1 is the next one. Calls that cannot fail, such as `dealloc`, are not
    /// counted.
    ///
    /// A failing `synchronize` still waits, as the trait requires.
    pub fn fail_call(&self, n: u64, kind: DriverErrorKind) {
        self.entrance.failures.fail_call(n, kind);
    }

    /// Makes the next call of this kind fail, once. Each further request makes one more call fail.
    pub fn fail_next(&self, call: Call, kind: DriverErrorKind) {
        self.entrance.failures.fail_next(call, kind);
    }

    /// Makes every call fail as calls to a lost device do, until this is switched off.
    pub fn set_lost(&self, lost: bool) {
        self.entrance.failures.set_lost(lost);
    }

    /// Cancels all failures that have not happened yet.
    pub fn clear_failures(&self) {
        self.entrance.failures.clear();
    }

    /// Returns the number of calls that were made to fail so far.
    pub fn injected(&self) -> u64 {
        self.entrance.failures.injected()
    }

    /// Blocks the next call of this kind inside the driver until the gate is opened.
    pub fn gate(&self, call: Call) -> Gate {
        self.entrance.gates.close(call)
    }

    /// Releases every stream.
    pub fn release_all(&self) {
        self.lanes.release_all(&self.inner);
    }

    /// Starts a new log of calls.
    pub fn start_log(&self) {
        *self.entrance.log() = Some(Vec::new());
    }

    /// Returns the calls since the log was started, in order, and ends the log.
    pub fn take_log(&self) -> Vec<Call> {
        self.entrance.log().take().unwrap_or_default()
    }

    /// Returns the number of live driver allocations, including memory without its own address, and imports.
    pub fn live_allocations(&self) -> usize {
        self.budget.live().len() + self.imports.open() + self.mappings().all_created().len()
    }

    /// Returns the number of live reservations of address space.
    pub fn live_reservations(&self) -> usize {
        self.mappings().all_reserved().len()
    }

    /// Returns the number of bytes in live driver allocations.
    pub fn used(&self) -> u64 {
        self.budget.used()
    }

    /// Returns the number of live allocations of host memory.
    pub fn live_host_allocations(&self) -> usize {
        self.host.budget().live().len()
    }

    /// Returns the number of bytes in live host memory.
    pub fn host_used(&self) -> u64 {
        self.host.budget().used()
    }

    /// Limits the bytes of host memory that can be allocated. Initially only the inner driver limits them.
    pub fn set_host_capacity(&self, capacity: u64) {
        self.host.budget().set_capacity(capacity);
    }

    /// Returns the number of misuses: calls that free or map something that does not exist, which are not passed on,
    /// and calls that free host memory or unmap memory that work still has to use.
    pub fn misuses(&self) -> u64 {
        self.budget.misuses() + self.host.budget().misuses()
    }

    /// Makes the stream claim that its work is being captured, or no longer so. The work itself runs as before.
    pub fn set_capturing(&self, stream: &FaultyStream<B>, capturing: bool) {
        stream.capturing.store(capturing, Ordering::SeqCst);
    }

    /// From now on fills freed memory with [`POISON`] and keeps it, including host memory.
    pub fn start_quarantine(&self) {
        self.quarantine.start();
        self.host.start_quarantine();
    }

    /// Returns where memory in quarantine was written to.
    ///
    /// # Errors
    /// Errors of the inner driver.
    pub fn check_quarantine(&self) -> DriverResult<Vec<UseAfterFree>> {
        let mut found = self.host.check_quarantine();
        if let Some(stream) = self.lanes.natives().first() {
            found.append(&mut self.quarantine.check(&self.inner, stream)?);
        }
        Ok(found)
    }

    /// Ends the quarantine: the memory that it kept goes back to the driver.
    pub fn end_quarantine(&self) {
        self.quarantine.end(&self.inner);
        self.host.end_quarantine(&*self.inner);
    }

    /// Frees every driver allocation, including host memory and address space, whoever owns it.
    ///
    /// # Safety
    /// * Nothing that was allocated here is used afterwards, and no memory is freed, allocated or mapped afterwards.
    #[allow(unsafe_code)] // passes the promise on to `Backend::dealloc`
    pub unsafe fn reclaim(&self) {
        self.release_all();
        for stream in self.lanes.natives() {
            // A stream that cannot be waited for does no further work.
            let _ = self.inner.synchronize(&stream);
        }
        self.end_quarantine();
        for (ptr, len) in self.budget.live() {
            if self.budget.remove(ptr, len) {
                self.budget.refund(len);
                // SAFETY: It is a live allocation of the inner backend, no longer listed; the caller promises the rest.
                unsafe { self.inner.dealloc(ptr, len) };
            }
        }
        // SAFETY: All work has been waited for; the caller promises the rest.
        unsafe { self.reclaim_virtual_memory() };
        // SAFETY: As above.
        unsafe { self.host.reclaim(&*self.inner) };
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
        // A failure is reported by the user's own call on the stream.
        let _ = self.lanes.settle(&self.inner);
    }

    /// An empty node of the graph, which a graph has only after other work.
    fn launch(&self, stream: &FaultyStream<B>) -> DriverResult<()> {
        self.inner.graphs().map_or(Ok(()), |graphs| graphs.mark(stream.inner()).map(drop))
    }

    fn set_capacity(&self, capacity: u64) {
        self.budget.set_capacity(capacity);
    }

    fn fail_allocs(&self, count: u64) {
        self.entrance.failures.fail_allocs(count);
    }

    fn calls(&self) -> &Calls {
        &self.entrance.calls
    }
}

impl<B: Backend> fmt::Debug for Faulty<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { properties, budget, .. } = self;
        write!(f, "Faulty {{ around: {:?}, {budget:?} }}", properties.name)
    }
}
