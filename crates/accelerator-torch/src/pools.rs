//! Private pools, and requests that go to them: for CUDA graphs, and for `torch.cuda.MemPool`.
#![allow(unsafe_code)] // exported functions

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{
    Accelerator, DevicePtr, Error, MemPoolId, MemPoolRequests, MemPoolRoute, PoolCheckpoint, Result, StreamId,
};

use crate::boundary::{or, status};
use crate::devices::{self, Device, device, opened};
use crate::memory::{Memory, context, forget, known_by_address};

/// PyTorch's `MempoolId_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolNumber {
    graph: u64,
    user: u64,
}

impl PoolNumber {
    /// No private pool.
    pub(crate) const NONE: Self = Self { graph: 0, user: 0 };

    pub(crate) fn of(id: MemPoolId) -> Self {
        let (graph, user) = id.numbers();
        Self { graph, user }
    }

    pub(crate) fn id(self) -> MemPoolId {
        MemPoolId::new(self.graph, self.user)
    }
}

/// Adds a use of a pool. PyTorch: `createOrIncrefPool`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_retain(index: c_int, pool: PoolNumber) -> c_int {
    status(|| retain(device(index)?, pool.id()))
}

fn retain(device: Device, pool: MemPoolId) -> Result<()> {
    device.allocator().retain_pool(pool)?;
    keep(device, pool)
}

/// Keeps a pool's free memory. A graph may use any pool of PyTorch's, which keeps the free memory of all of them.
pub(crate) fn keep(device: Device, pool: MemPoolId) -> Result<()> {
    device.allocator().keep_pool_for_graphs(pool)
}

/// Releases a use of a pool. PyTorch: `releasePool`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_release(index: c_int, pool: PoolNumber) -> c_int {
    status(|| device(index)?.allocator().release_pool(pool.id()))
}

/// Returns the number of uses of a pool. PyTorch: `getPoolUseCount`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_uses(index: c_int, pool: PoolNumber) -> c_int {
    or(0, || {
        let Some(device) = devices::if_open(index) else { return 0 };
        // A route counts as a use here, and not in PyTorch.
        let has_route = lock(&ROUTES).as_ref().is_some_and(|routes| routes.contains_key(&(index, pool.id())));
        device.allocator().pool_uses(pool.id()) as c_int - c_int::from(has_route)
    })
}

/// Returns whether a graph or a pool of PyTorch's uses a pool of this device.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pools_in_use(index: c_int) -> bool {
    or(true, || {
        let Some(device) = devices::if_open(index) else { return false };
        device.allocator().pools().into_keys().any(|pool| device.allocator().pool_uses(pool) > 0)
    })
}

/// PyTorch: `setUseOnOOM`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_use_on_oom(index: c_int, pool: PoolNumber, use_on_oom: bool) -> c_int {
    status(|| device(index)?.allocator().set_pool_use_on_oom(pool.id(), use_on_oom))
}

/// PyTorch: `setNoSplit`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_no_split(index: c_int, pool: PoolNumber) -> c_int {
    status(|| device(index)?.allocator().set_pool_no_split(pool.id()))
}

/// Returns whether a request for work on a stream goes to the pool.
type Filter = extern "C" fn(*mut c_void, *mut c_void) -> bool;
type Release = extern "C" fn(*mut c_void);

/// A function of C++, with its state.
struct Function {
    call: Filter,
    release: Release,
    state: *mut c_void,
    /// Read during a call. The end of the route writes, so it waits for the calls underway: what they refer to may be
    /// gone afterwards.
    ended: RwLock<bool>,
}

// SAFETY: PyTorch calls such functions from any thread itself.
unsafe impl Send for Function {}
// SAFETY: As for `Send`.
unsafe impl Sync for Function {}

impl Function {
    fn is_for(&self, stream: *mut c_void) -> bool {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        !*ended && (self.call)(self.state, stream)
    }

    fn end(&self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        (self.release)(self.state);
    }
}

/// The route to each pool of each device, with its function.
type Routes = HashMap<(c_int, MemPoolId), (MemPoolRoute, Arc<Function>)>;

/// The routes that have not ended. PyTorch ends them by the pool.
static ROUTES: Mutex<Option<Routes>> = Mutex::new(None);

/// Sends the requests for which a function returns true to a pool. PyTorch: `beginAllocateToPool`.
///
/// # Safety
/// `call` may be called with `state` and a stream from any thread, until [`accelerator_torch_pool_end`] returns.
/// `release` is called with `state` once, at any time after that, from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_begin(
    index: c_int,
    pool: PoolNumber,
    call: Filter,
    release: Release,
    state: *mut c_void,
) -> c_int {
    let function = Arc::new(Function { call, release, state, ended: RwLock::new(false) });
    status(|| {
        let (device, pool) = (device(index)?, pool.id());
        let mut routes = lock(&ROUTES);
        let routes = routes.get_or_insert_default();
        if routes.contains_key(&(index, pool)) {
            return Err(pool_error(device, pool, "gets requests already: end that before it begins again"));
        }
        retain(device, pool)?; // PyTorch releases this use by `releasePool`
        let filter = Arc::clone(&function);
        let is_for = move |stream: StreamId| {
            filter.is_for(std::ptr::with_exposed_provenance_mut(devices::handle(device, stream)))
        };
        let requests = MemPoolRequests::Where(Box::new(is_for));
        let route = device.allocator().begin_allocate_to_pool(pool, requests)?;
        routes.insert((index, pool), (route, function));
        Ok(())
    })
}

/// Ends the route to a pool. Its function is not called any more after that. PyTorch calls this when a capture has
/// ended, too. PyTorch: `endAllocateToPool`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_end(index: c_int, pool: PoolNumber) -> c_int {
    status(|| {
        let (device, pool) = (device(index)?, pool.id());
        let ended = lock(&ROUTES).as_mut().and_then(|routes| routes.remove(&(index, pool)));
        let Some((route, function)) = ended else {
            return Err(pool_error(device, pool, "gets no requests that could end"));
        };
        device.allocator().end_allocate_to_pool(route);
        function.end();
        // A capture may have had streams of several devices.
        opened().for_each(Accelerator::external_capture_ended);
        Ok(())
    })
}

fn pool_error(device: Device, pool: MemPoolId, problem: &'static str) -> Error {
    Error::MemPool { device: device.device(), pool, name: device.allocator().pool_name(pool), problem }
}

/// A list of addresses, each with the context of its memory or 0.
type Visit = extern "C" fn(*mut c_void, u64, u64);

/// Shows the allocations of a pool. PyTorch: `checkPoolLiveAllocations`.
///
/// # Safety
/// `visit` may be called with `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_allocations(
    index: c_int,
    pool: PoolNumber,
    visit: Visit,
    state: *mut c_void,
) -> c_int {
    status(|| {
        for ptr in device(index)?.allocator().pool_allocations(pool.id()) {
            visit(state, ptr.trace_address(), 0);
        }
        Ok(())
    })
}

/// Notes the state of a pool's memory. PyTorch: `getCheckpointState`. It is to be dropped with
/// [`accelerator_torch_checkpoint_drop`].
///
/// # Safety
/// `checkpoint` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_checkpoint(
    index: c_int,
    pool: PoolNumber,
    checkpoint: *mut *mut c_void,
) -> c_int {
    status(|| {
        let made = device(index)?.allocator().checkpoint_pool(pool.id())?;
        // SAFETY: The caller's promise.
        unsafe { checkpoint.write(Box::into_raw(Box::new(made)).cast()) };
        Ok(())
    })
}

/// Drops a checkpoint.
///
/// # Safety
/// It came from [`accelerator_torch_checkpoint`] and has not been dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_checkpoint_drop(checkpoint: *mut c_void) {
    // SAFETY: The caller's promise.
    or((), || drop(unsafe { Box::from_raw(checkpoint.cast::<PoolCheckpoint>()) }));
}

/// Sets a pool's memory back to a checkpoint. Shows the allocations that are gone, with the context 0, and then those
/// that are there now, with their contexts. An allocation may be among both: it stays, and whoever knows it by its
/// address still does. So the contexts are the addresses. PyTorch: `setCheckpointPoolState`.
///
/// # Safety
/// The checkpoint has not been dropped, and `visit` may be called with `state`. Nobody uses the contexts of the pool's
/// earlier allocations any more, except those that are addresses, and these only for allocations that stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_checkpoint_restore(
    index: c_int,
    checkpoint: *const c_void,
    visit: Visit,
    state: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: The caller's promise.
        let checkpoint = unsafe { &*checkpoint.cast::<PoolCheckpoint>() };
        let allocator = device(index)?.allocator();
        // SAFETY: The caller's promise.
        let restored = unsafe { allocator.restore_pool_by_key(checkpoint) }?;
        // The contexts of before are void, also those that are known by the address.
        for ptr in restored.freed {
            forget(ptr.trace_address());
            visit(state, ptr.trace_address(), 0);
        }
        for (ptr, key) in restored.allocated {
            let address = ptr.trace_address();
            let known = key.map(|key| known_by_address(Memory { address, context: context(index, key) }));
            visit(state, address, known.unwrap_or_default());
        }
        Ok(())
    })
}

/// Gives cached memory back to the driver: all that is free outside of private pools, or the memory of one pool that is
/// not in use. PyTorch: `emptyCache`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_empty_cache(pool: PoolNumber) -> c_int {
    status(|| {
        opened().try_for_each(|device| match pool.id() {
            id if id.is_default() => device.allocator().empty_cache(),
            id => device.allocator().empty_pool_cache(id),
        })
    })
}
