//! Wrappers around the driver's functions for tests: results are returned, codes become errors.
#![allow(dead_code, reason = "each test file uses only a part")]
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use cuda_sim::{Access, Location, Out, Properties};

pub(crate) type Handle = usize;
pub(crate) type Outcome<T = ()> = Result<T, i32>;

pub(crate) const NOT_READY: i32 = 600;
pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
/// The memory of each of the two simulated devices.
pub(crate) const MEMORY: u64 = 1 << 30;
pub(crate) const NON_BLOCKING: u32 = 1;
pub(crate) const NO_TIMING: u32 = 2;
pub(crate) const MIB: usize = 1 << 20;

/// Exclusive access to the driver. The tests of a program share its state.
pub(crate) struct Exclusive {
    _lock: MutexGuard<'static, ()>,
    violations: u64,
}

impl Exclusive {
    /// Takes the driver with device 0 current and no failures planned or left over.
    pub(crate) fn new() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        static START: Once = Once::new();
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        START.call_once(|| {
            // SAFETY: the driver has not read its environment, and the other threads of this program wait for
            // the lock.
            unsafe { std::env::set_var("CUDA_SIM_DEVICES", "2") };
            // SAFETY: as above.
            unsafe { std::env::set_var("CUDA_SIM_MEMORY", "1G") };
            // SAFETY: as above. The machine may hide its own devices.
            unsafe { std::env::remove_var("CUDA_VISIBLE_DEVICES") };
            init().unwrap();
        });
        cuda_sim::cuda_sim_clear_faults();
        cuda_sim::cuda_sim_reset_sticky();
        cuda_sim::cuda_sim_seed(0);
        use_device(0);
        Self { _lock: lock, violations: cuda_sim::cuda_sim_violations() }
    }

    /// Returns the number of violations during this test.
    pub(crate) fn violations(&self) -> u64 {
        cuda_sim::cuda_sim_violations() - self.violations
    }
}

/// Makes a device's context current. The context stays alive until the program ends.
pub(crate) fn use_device(device: i32) -> Handle {
    let context = retain(device).unwrap();
    set_current(context).unwrap();
    context
}

/// Runs a call that writes its result to an out-parameter.
fn result<T>(call: impl FnOnce(Out<'_, T>) -> i32) -> Outcome<T> {
    let mut place = MaybeUninit::zeroed();
    match call(Some(&mut place)) {
        // SAFETY: a call that succeeds has written it. Otherwise it would be zero, which is valid for the numbers that
        // tests request.
        0 => Ok(unsafe { place.assume_init() }),
        code => Err(code),
    }
}

fn done(code: i32) -> Outcome {
    if code == 0 { Ok(()) } else { Err(code) }
}

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) = $function:ident;)*) => {$(
        pub(crate) fn $name($($argument: $type),*) -> Outcome {
            // SAFETY: addresses that tests pass point to memory that they own, or are not dereferenced.
            done(unsafe { cuda_sim::$function($($argument),*) })
        }
    )*};
}

macro_rules! makers {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $function:ident;)*) => {$(
        pub(crate) fn $name($($argument: $type),*) -> Outcome<$result> {
            // SAFETY: as above.
            result(|out| unsafe { cuda_sim::$function(out $(, $argument)*) })
        }
    )*};
}

calls! {
    fn set_current(context: Handle) = cuCtxSetCurrent;
    fn release(device: i32) = cuDevicePrimaryCtxRelease_v2;
    fn synchronize() = cuCtxSynchronize;
    fn enable_peer(context: Handle, flags: u32) = cuCtxEnablePeerAccess;
    fn disable_peer(context: Handle) = cuCtxDisablePeerAccess;
    fn free(address: u64) = cuMemFree_v2;
    fn free_async(address: u64, stream: Handle) = cuMemFreeAsync;
    fn free_pinned(address: u64) = cuMemFreeHost;
    fn copy_async(target: u64, source: u64, bytes: usize, stream: Handle) = cuMemcpyAsync;
    fn copy_peer(target: u64, on: Handle, source: u64, of: Handle, bytes: usize, stream: Handle) = cuMemcpyPeerAsync;
    fn copy_on_device(target: u64, source: u64, bytes: usize, stream: Handle) = cuMemcpyDtoDAsync_v2;
    fn fill(address: u64, value: u8, bytes: usize, stream: Handle) = cuMemsetD8Async;
    fn fill_now(address: u64, value: u8, bytes: usize) = cuMemsetD8_v2;
    fn destroy_stream(stream: Handle) = cuStreamDestroy_v2;
    fn synchronize_stream(stream: Handle) = cuStreamSynchronize;
    fn query_stream(stream: Handle) = cuStreamQuery;
    fn wait_event(stream: Handle, event: Handle, flags: u32) = cuStreamWaitEvent;
    fn begin_capture(stream: Handle, mode: u32) = cuStreamBeginCapture_v2;
    fn destroy_graph(graph: Handle) = cuGraphDestroy;
    fn destroy_executable(executable: Handle) = cuGraphExecDestroy;
    fn launch_graph(executable: Handle, stream: Handle) = cuGraphLaunch;
    fn upload_graph(executable: Handle, stream: Handle) = cuGraphUpload;
    fn destroy_event(event: Handle) = cuEventDestroy_v2;
    fn record(event: Handle, stream: Handle) = cuEventRecord;
    fn query_event(event: Handle) = cuEventQuery;
    fn synchronize_event(event: Handle) = cuEventSynchronize;
    fn unload(module: Handle) = cuModuleUnload;
    fn free_addresses(address: u64, bytes: usize) = cuMemAddressFree;
    fn release_physical(handle: u64) = cuMemRelease;
    fn map(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) = cuMemMap;
    fn unmap(address: u64, bytes: usize) = cuMemUnmap;
}

makers! {
    fn device_count() -> i32 = cuDeviceGetCount;
    fn retain(device: i32) -> Handle = cuDevicePrimaryCtxRetain;
    fn alloc(bytes: usize) -> u64 = cuMemAlloc_v2;
    fn alloc_async(bytes: usize, stream: Handle) -> u64 = cuMemAllocAsync;
    fn alloc_pinned(bytes: usize, flags: u32) -> u64 = cuMemHostAlloc;
    fn host_flags(address: u64) -> u32 = cuMemHostGetFlags;
    fn device_pointer(address: u64, flags: u32) -> u64 = cuMemHostGetDevicePointer_v2;
    fn stream(flags: u32) -> Handle = cuStreamCreate;
    fn event(flags: u32) -> Handle = cuEventCreate;
    fn elapsed(start: Handle, end: Handle) -> f32 = cuEventElapsedTime;
    fn instantiate(graph: Handle, flags: u64) -> Handle = cuGraphInstantiateWithFlags;
    fn reserve(bytes: usize, alignment: usize, wish: u64, flags: u64) -> u64 = cuMemAddressReserve;
    fn attribute(number: i32, device: i32) -> i32 = cuDeviceGetAttribute;
}

pub(crate) fn init() -> Outcome {
    // SAFETY: no pointers.
    done(unsafe { cuda_sim::cuInit(0) })
}

/// Returns the free and the total memory.
pub(crate) fn memory() -> (usize, usize) {
    let mut total = MaybeUninit::zeroed();
    // SAFETY: both places are valid.
    let free = result(|free| unsafe { cuda_sim::cuMemGetInfo_v2(free, Some(&mut total)) }).unwrap();
    // SAFETY: the call above has written it.
    (free, unsafe { total.assume_init() })
}

/// Copies bytes to an address in the legacy default stream.
pub(crate) fn upload(target: u64, bytes: &[u8]) -> Outcome {
    // SAFETY: the source is a slice of that many bytes.
    done(unsafe { cuda_sim::cuMemcpyHtoD_v2(target, bytes.as_ptr() as u64, bytes.len()) })
}

/// Returns the bytes at an address, copied in the legacy default stream.
pub(crate) fn download(source: u64, bytes: usize) -> Outcome<Vec<u8>> {
    let mut place = vec![0; bytes];
    // SAFETY: the target has room for that many bytes.
    done(unsafe { cuda_sim::cuMemcpyDtoH_v2(place.as_mut_ptr() as u64, source, bytes) })?;
    Ok(place)
}

/// Reads a byte of pinned memory that the test owns.
pub(crate) fn pinned_byte(address: u64) -> u8 {
    // SAFETY: the test has allocated the address and not freed it.
    unsafe { (address as *const u8).read_volatile() }
}

pub(crate) fn set_pinned_byte(address: u64, value: u8) {
    // SAFETY: as above.
    unsafe { (address as *mut u8).write_volatile(value) };
}

pub(crate) fn launch_host_function(stream: Handle, function: unsafe extern "C" fn(*mut c_void), data: u64) -> Outcome {
    // SAFETY: the test keeps alive what the function uses.
    done(unsafe { cuda_sim::cuLaunchHostFunc(stream, Some(function), data as *mut c_void) })
}

pub(crate) fn end_capture(stream: Handle) -> Outcome<Handle> {
    // SAFETY: the place is valid.
    result(|graph| unsafe { cuda_sim::cuStreamEndCapture(stream, graph) })
}

/// What a capture has so far: its number, its graph, and the nodes that the stream's next one depends on.
pub(crate) fn capture_info(stream: Handle) -> Outcome<Option<(u64, Handle, Vec<Handle>)>> {
    let (mut id, mut graph, mut nodes) = (MaybeUninit::zeroed(), MaybeUninit::zeroed(), MaybeUninit::zeroed());
    let (mut edges, mut count) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    let places = (Some(&mut id), Some(&mut graph), Some(&mut nodes), Some(&mut edges), Some(&mut count));
    // SAFETY: the places are valid.
    let status = result(|status| unsafe {
        cuda_sim::cuStreamGetCaptureInfo_v3(stream, status, places.0, places.1, places.2, places.3, places.4)
    })?;
    macro_rules! written {
        ($place:ident) => {
            // SAFETY: the call has written it, or it is zero.
            unsafe { $place.assume_init() }
        };
    }
    if status != 1 {
        assert_eq!((written!(id), written!(graph), written!(count)), (0, 0, 0), "only the status is written");
        return Ok(None);
    }
    let (id, graph, nodes, edges, count) =
        (written!(id), written!(graph), written!(nodes), written!(edges), written!(count));
    // SAFETY: the driver keeps that many elements there until the next call.
    let nodes: &[Handle] = unsafe { std::slice::from_raw_parts(nodes, count) };
    // SAFETY: as above.
    let edges: &[[u8; 8]] = unsafe { std::slice::from_raw_parts(edges, count) };
    assert!(edges.iter().all(|edge| *edge == [0; 8]));
    Ok(Some((id, graph, nodes.to_vec())))
}

pub(crate) fn add_empty_node(graph: Handle, dependencies: &[Handle]) -> Outcome<Handle> {
    // SAFETY: the slice has that many elements.
    result(|node| unsafe { cuda_sim::cuGraphAddEmptyNode(node, graph, dependencies.as_ptr(), dependencies.len()) })
}

/// Returns the edges of a graph in arrays that have room for this many, and how many there are.
pub(crate) fn edges(graph: Handle, room: usize) -> Outcome<(usize, Vec<(Handle, Handle)>)> {
    let (mut from, mut to, mut count) = (vec![1; room], vec![1; room], room);
    // SAFETY: the arrays have room for that many.
    done(unsafe { cuda_sim::cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), Some(&mut count)) })?;
    Ok((count, from.into_iter().zip(to).collect()))
}

/// `CUstreamCaptureStatus`
pub(crate) fn capture_status(stream: Handle) -> Outcome<u32> {
    // SAFETY: the place is valid.
    result(|status| unsafe { cuda_sim::cuStreamIsCapturing(stream, status) })
}

/// Sets the calling thread's mode and returns the previous one.
pub(crate) fn exchange_capture_mode(mode: u32) -> u32 {
    let mut mode = mode;
    // SAFETY: the place is valid.
    done(unsafe { cuda_sim::cuThreadExchangeStreamCaptureMode(Some(&mut mode)) }).unwrap();
    mode
}

fn on_device(device: i32) -> Location {
    Location { kind: 1, id: device }
}

pub(crate) fn create_physical(bytes: usize, device: i32) -> Outcome<u64> {
    let properties = Properties { kind: 1, handle_types: 0, location: on_device(device), windows: 0, flags: [0; 8] };
    // SAFETY: the properties are valid.
    result(|handle| unsafe { cuda_sim::cuMemCreate(handle, bytes, Some(&properties), 0) })
}

pub(crate) fn set_access(address: u64, bytes: usize, device: i32, flags: u32) -> Outcome {
    let access = [Access { location: on_device(device), flags }];
    // SAFETY: `access` has one element.
    done(unsafe { cuda_sim::cuMemSetAccess(address, bytes, access.as_ptr(), 1) })
}

/// Returns a kernel of a module that has all kernels known to the driver.
pub(crate) fn function(name: &str) -> Outcome<Handle> {
    let text = c".version 8.0\n.entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) {}\n\
                 .entry scale(.param .u32 n, .param .f32 a, .param .u64 x) {}\n.entry spin() {}\n.entry other() {}";
    // SAFETY: the text ends with a zero.
    let module = result(|module| unsafe { cuda_sim::cuModuleLoadData(module, text.as_ptr()) })?;
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    result(|function| unsafe { cuda_sim::cuModuleGetFunction(function, module, name.as_ptr()) })
}

/// Launches a kernel with 256 threads per block.
pub(crate) fn launch(function: Handle, blocks: u32, stream: Handle, arguments: &[&[u8]]) -> Outcome {
    let places: Vec<*const u8> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    let (places, none) = (places.as_ptr(), std::ptr::null());
    // SAFETY: the test passes each argument in the kernel's width.
    done(unsafe { cuda_sim::cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, places, none) })
}

pub(crate) fn fail(name: &str, nth: u64, code: i32) {
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    unsafe { cuda_sim::cuda_sim_fail(name.as_ptr(), nth, code) };
}

pub(crate) fn calls_of(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    unsafe { cuda_sim::cuda_sim_calls_of(name.as_ptr()) }
}

pub(crate) fn violation_text() -> String {
    // SAFETY: the length is 0.
    let bytes = unsafe { cuda_sim::cuda_sim_violation_text(std::ptr::null_mut(), 0) };
    let mut text = vec![0u8; bytes];
    // SAFETY: there is room for all of it.
    unsafe { cuda_sim::cuda_sim_violation_text(text.as_mut_ptr().cast(), bytes) };
    assert_eq!(text.pop(), Some(0));
    String::from_utf8(text).unwrap()
}
