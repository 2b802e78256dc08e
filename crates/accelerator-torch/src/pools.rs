//! Private pools, and requests that go to them: for CUDA graphs, and for `torch.cuda.MemPool`.
#![allow(unsafe_code)] // exported functions

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use accelerator_core::backend_kit::lock;
use accelerator_core::{DevicePtr, MemPoolId, MemPoolRequests, MemPoolRoute, PoolCheckpoint, StreamId};

use crate::boundary::{or, status};
use crate::devices::{self, device, opened};
use crate::memory::context_at;

/// PyTorch's `MempoolId_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolNumber {
    graph: u64,
    user: u64,
}

impl PoolNumber {
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
    status(|| device(index)?.allocator().retain_pool(pool.id()))
}

/// Takes back a use of a pool. PyTorch: `releasePool`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_release(index: c_int, pool: PoolNumber) -> c_int {
    status(|| device(index)?.allocator().release_pool(pool.id()))
}

/// Returns the number of uses of a pool. PyTorch: `getPoolUseCount`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_uses(index: c_int, pool: PoolNumber) -> c_int {
    or(0, || {
        let Ok(device) = device(index) else { return 0 };
        // A route counts as a use here, and not in PyTorch.
        let routes = lock(&ROUTES).as_ref().and_then(|routes| routes.get(&(index, pool.id()))).map_or(0, Vec::len);
        device.allocator().pool_uses(pool.id()) as c_int - routes as c_int
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
type Drop = extern "C" fn(*mut c_void);

/// A function of C++, with its state.
struct Function {
    call: Filter,
    drop: Drop,
    state: *mut c_void,
}

// SAFETY: PyTorch calls such functions from any thread itself.
unsafe impl Send for Function {}
// SAFETY: As for `Send`.
unsafe impl Sync for Function {}

impl Function {
    fn is_for(&self, stream: *mut c_void) -> bool {
        (self.call)(self.state, stream)
    }
}

impl std::ops::Drop for Function {
    fn drop(&mut self) {
        (self.drop)(self.state);
    }
}

/// The routes to each pool of each device, the oldest first.
type Routes = HashMap<(c_int, MemPoolId), Vec<MemPoolRoute>>;

/// The routes that have not ended. PyTorch ends them by the pool.
static ROUTES: Mutex<Option<Routes>> = Mutex::new(None);

/// Sends the requests for which a function returns true to a pool. PyTorch: `beginAllocateToPool`.
///
/// # Safety
/// `call` may be called with `state` and a stream from any thread, until `drop` is called with `state`, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pool_begin(
    index: c_int,
    pool: PoolNumber,
    call: Filter,
    drop: Drop,
    state: *mut c_void,
) -> c_int {
    let function = Function { call, drop, state };
    status(|| {
        let device = device(index)?;
        let is_for = move |stream: StreamId| {
            function.is_for(std::ptr::with_exposed_provenance_mut(devices::handle(device, stream)))
        };
        let allocator = device.allocator();
        let route = allocator.begin_allocate_to_pool(pool.id(), MemPoolRequests::Where(Box::new(is_for)))?;
        lock(&ROUTES).get_or_insert_default().entry((index, pool.id())).or_default().push(route);
        // PyTorch takes this use back by `releasePool`.
        allocator.retain_pool(pool.id())
    })
}

/// Ends the oldest route to a pool. PyTorch: `endAllocateToPool`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_pool_end(index: c_int, pool: PoolNumber) -> c_int {
    status(|| {
        let device = device(index)?;
        let route = {
            let mut routes = lock(&ROUTES);
            let routes = routes.as_mut().and_then(|routes| routes.get_mut(&(index, pool.id())));
            routes.filter(|routes| !routes.is_empty()).map(|routes| routes.remove(0))
        };
        if let Some(route) = route {
            device.allocator().end_allocate_to_pool(route);
        }
        Ok(())
    })
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
/// that are there now, with their contexts. PyTorch: `setCheckpointPoolState`.
///
/// # Safety
/// The checkpoint has not been dropped, and `visit` may be called with `state`. Nobody uses the contexts of the pool's
/// earlier allocations any more.
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
        restored.freed.iter().for_each(|ptr| visit(state, ptr.trace_address(), 0));
        for address in restored.allocated.into_iter().map(DevicePtr::trace_address) {
            visit(state, address, context_at(address).unwrap_or(0));
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
