//! The devices, their settings, and PyTorch's streams on them.
#![allow(unsafe_code)] // exported functions

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Error, Recording, Result, Stream, StreamId};

use crate::boundary::status;
use crate::driver::{self, Driver};

pub(crate) type Device = &'static Accelerator<Driver>;

/// The number of devices that PyTorch has numbers for.
const MOST: usize = 64;
static OPENED: [OnceLock<Device>; MOST] = [const { OnceLock::new() }; MOST];
static OPTIONS: Mutex<Options> =
    Mutex::new(Options { config: None, recording: None, free_memory: None, peers: Vec::new() });

/// What applies to all devices, also to those that are opened later. Opening a device takes memory of it, so only a
/// request for its memory does that.
struct Options {
    /// `None` before the start.
    config: Option<AllocatorConfig>,
    recording: Option<Recording>,
    free_memory: Option<FreeMemory>,
    /// The devices whose kernels access the memory of another one, each with that one.
    peers: Vec<(c_int, c_int)>,
}

/// Frees memory that PyTorch can spare. Returns whether it freed any.
type FreeMemory = extern "C" fn() -> bool;

/// Sets the settings before the first request: these, as in `PYTORCH_ALLOC_CONF`, or without any those of the
/// environment. `free_memory` is called when a request finds no free block.
///
/// # Safety
/// `settings` is null or a text that ends in a zero byte. `free_memory` may be called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_start(settings: *const c_char, free_memory: FreeMemory) -> c_int {
    // SAFETY: The caller's promise.
    let settings = (!settings.is_null()).then(|| unsafe { CStr::from_ptr(settings) });
    status(|| {
        let mut options = lock(&OPTIONS);
        let config = match settings {
            Some(settings) => AllocatorConfig::default().updated(&settings.to_string_lossy()),
            None => AllocatorConfig::from_environment(),
        };
        let config = config?;
        options.config = Some(config);
        // Other libraries may have opened devices, and an uninstallation leaves them open.
        opened().for_each(|device| device.allocator().set_config(config));
        if options.free_memory.replace(free_memory).is_none() {
            opened().for_each(|device| call_when_short(device, free_memory));
        }
        drop(options);
        if cfg!(feature = "host") {
            device(0)?; // which takes no memory, but reads variables of the environment
        }
        Ok(())
    })
}

/// Changes some settings of all devices.
///
/// # Safety
/// `settings` is a text that ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_configure(settings: *const c_char) -> c_int {
    // SAFETY: The caller's promise.
    let settings = unsafe { CStr::from_ptr(settings) };
    status(|| change_config(|config| config.updated(&settings.to_string_lossy())))
}

/// Sets whether freed memory is kept for later requests. PyTorch: `enable`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_set_caching(caching: bool) -> c_int {
    status(|| change_config(|config| Ok(AllocatorConfig { caching, ..config })))
}

fn change_config(change: impl FnOnce(AllocatorConfig) -> Result<AllocatorConfig>) -> Result<()> {
    let mut options = lock(&OPTIONS);
    let config = change(options.config.map_or_else(AllocatorConfig::from_environment, Ok)?)?;
    options.config = Some(config);
    opened().for_each(|device| device.allocator().set_config(config));
    Ok(())
}

/// Returns the settings.
pub(crate) fn config() -> AllocatorConfig {
    lock(&OPTIONS).config.unwrap_or_default()
}

/// Records the histories of all devices from now on, or none. With `clear`, discards what is recorded so far.
pub(crate) fn record(recording: Option<Recording>, clear: bool) {
    let mut options = lock(&OPTIONS);
    options.recording = recording;
    for device in opened() {
        if clear {
            device.allocator().record_history(None);
        }
        device.allocator().record_history(recording);
    }
}

/// Returns the devices that are open.
pub(crate) fn opened() -> impl Iterator<Item = Device> {
    OPENED.iter().filter_map(|device| device.get().copied())
}

/// Returns the device with this number, if it is open.
#[inline(always)]
pub(crate) fn if_open(index: c_int) -> Option<Device> {
    usize::try_from(index).ok().and_then(|index| OPENED.get(index)?.get()).copied()
}

/// Returns the device with this number, which is opened at the first call.
///
/// # Errors
/// [`Error::InvalidDevice`], [`Error::Driver`], an error in the environment's settings.
#[inline(always)]
pub(crate) fn device(index: c_int) -> Result<Device> {
    if_open(index).map_or_else(|| open(index), Ok)
}

#[cold]
fn open(index: c_int) -> Result<Device> {
    let options = lock(&OPTIONS);
    let kind = Driver::KIND;
    let invalid = || Error::InvalidDevice { kind, index: index.into(), count: Accelerator::<Driver>::count() };
    let (ordinal, place) = u32::try_from(index).ok().zip(OPENED.get(index as usize)).ok_or_else(invalid)?;
    if let Some(device) = place.get() {
        return Ok(device);
    }
    let config = options.config.map_or_else(AllocatorConfig::from_environment, Ok)?;
    let number = accelerator_core::Device { kind, index: ordinal };
    Driver::probe().map_err(|why| Error::no_accelerator(kind, &why))?;
    let backend = driver::open(ordinal).map_err(|source| Error::Driver { device: number, source })?;
    let device = Accelerator::new(backend, ordinal, config)?;
    if let Some(free_memory) = options.free_memory {
        call_when_short(device, free_memory);
    }
    device.allocator().record_history(options.recording);
    let device = place.get_or_init(|| device);
    let peers = options.peers.iter().filter(|(one, other)| [*one, *other].contains(&index));
    peers.copied().try_for_each(enable_peers)?;
    Ok(device)
}

/// Calls a function when a request finds no free block.
fn call_when_short(device: Device, free_memory: FreeMemory) {
    device.allocator().add_free_memory_callback(move || free_memory());
}

/// Streams by device and handle.
type Streams = HashMap<(u32, usize), Stream<Driver>>;

/// PyTorch's streams that were used so far. They live as long as the process.
static STREAMS: RwLock<Option<Streams>> = RwLock::new(None);

thread_local! {
    /// The stream that this thread looked up last, with its device and handle.
    static LAST: Cell<Option<(u32, usize, Stream<Driver>)>> = const { Cell::new(None) };
}

/// Returns PyTorch's stream with this handle.
///
/// # Errors
/// [`Error::Driver`] if it is not a stream of this device, or another one on each thread.
#[inline(always)]
pub(crate) fn stream(device: Device, handle: *mut c_void) -> Result<Stream<Driver>> {
    match LAST.get() {
        Some((index, address, stream)) if (index, address) == (device.device().index, handle.addr()) => Ok(stream),
        _ => find(device, handle),
    }
}

#[inline(never)]
fn find(device: Device, handle: *mut c_void) -> Result<Stream<Driver>> {
    let key = (device.device().index, handle.addr());
    let known = STREAMS.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|map| map.get(&key).copied());
    let stream = match known {
        Some(stream) => stream,
        None => {
            // Its events would fail, and each later request tries them again.
            driver::check(device, handle).map_err(|source| Error::Driver { device: device.device(), source })?;
            let mut map = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
            *map.get_or_insert_default().entry(key).or_insert_with(|| driver::adopt(device, handle))
        }
    };
    LAST.set(Some((key.0, key.1, stream)));
    Ok(stream)
}

/// Returns PyTorch's streams of a device that were used so far.
pub(crate) fn streams(device: Device) -> Vec<Stream<Driver>> {
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    let of_device = streams.iter().flatten().filter(|((index, _), _)| *index == device.device().index);
    of_device.map(|(_, stream)| *stream).collect()
}

/// Lets kernels of a device access the memory of another one. PyTorch: `enablePeerAccess`.
#[unsafe(no_mangle)]
pub extern "C" fn accelerator_torch_enable_peer_access(index: c_int, peer: c_int) -> c_int {
    status(|| {
        let mut options = lock(&OPTIONS);
        if !options.peers.contains(&(index, peer)) {
            options.peers.push((index, peer));
        }
        drop(options);
        enable_peers((index, peer))
    })
}

/// Lets a device access another one, if both are open. Memory of a device that is not does not exist.
fn enable_peers((index, peer): (c_int, c_int)) -> Result<()> {
    let Some((device, peer)) = if_open(index).zip(if_open(peer)) else { return Ok(()) };
    driver::enable_peer_access(device, peer).map_err(|source| Error::Driver { device: device.device(), source })
}

/// Returns PyTorch's handle of a stream.
pub(crate) fn handle(device: Device, stream: StreamId) -> usize {
    device.stream_by_id(stream).filter(|stream| *stream != device.default_stream()).map_or(0, driver::handle)
}
