//! The devices, their settings, and PyTorch's streams on them.
#![allow(unsafe_code)] // exported functions

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use accelerator_core::backend_kit::lock;
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Error, Result, Stream, StreamId};

use crate::boundary::status;
use crate::driver::{self, Driver};

pub(crate) type Device = &'static Accelerator<Driver>;

/// The number of devices that PyTorch has numbers for.
const MOST: usize = 64;
static OPENED: [OnceLock<Device>; MOST] = [const { OnceLock::new() }; MOST];
/// The settings of devices that are opened from now on; `None` for those of the environment.
static CONFIG: Mutex<Option<AllocatorConfig>> = Mutex::new(None);

/// Sets some settings, as in `PYTORCH_ALLOC_CONF`, on all devices.
///
/// # Safety
/// `settings` is a text that ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_configure(settings: *const c_char) -> c_int {
    // SAFETY: The caller's promise.
    let settings = unsafe { CStr::from_ptr(settings) };
    status(|| {
        let mut config = lock(&CONFIG);
        let before = config.map_or_else(AllocatorConfig::from_environment, Ok)?;
        let updated = before.updated(&settings.to_string_lossy())?;
        *config = Some(updated);
        opened().for_each(|device| device.allocator().set_config(updated));
        Ok(())
    })
}

/// Returns the devices that are open.
pub(crate) fn opened() -> impl Iterator<Item = Device> {
    OPENED.iter().filter_map(|device| device.get().copied())
}

/// Returns the device with this number, which is opened at the first call.
///
/// # Errors
/// [`Error::InvalidDevice`], [`Error::Driver`], an error in the environment's settings.
#[inline(always)]
pub(crate) fn device(index: c_int) -> Result<Device> {
    match usize::try_from(index).ok().and_then(|index| OPENED.get(index)?.get()) {
        Some(device) => Ok(device),
        None => open(index),
    }
}

#[cold]
fn open(index: c_int) -> Result<Device> {
    let config = lock(&CONFIG);
    let kind = Driver::KIND;
    let invalid = || Error::InvalidDevice { kind, index: index.into(), count: Accelerator::<Driver>::count() };
    let (ordinal, place) = u32::try_from(index).ok().zip(OPENED.get(index as usize)).ok_or_else(invalid)?;
    if let Some(device) = place.get() {
        return Ok(device);
    }
    let config = config.map_or_else(AllocatorConfig::from_environment, Ok)?;
    let number = accelerator_core::Device { kind, index: ordinal };
    let backend = Driver::open(ordinal).map_err(|source| Error::Driver { device: number, source })?;
    let device = Accelerator::new(backend, ordinal, config)?;
    Ok(place.get_or_init(|| device))
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
#[inline(always)]
pub(crate) fn stream(device: Device, handle: *mut c_void) -> Stream<Driver> {
    match LAST.get() {
        Some((index, address, stream)) if (index, address) == (device.device().index, handle.addr()) => stream,
        _ => find(device, handle),
    }
}

#[inline(never)]
fn find(device: Device, handle: *mut c_void) -> Stream<Driver> {
    let key = (device.device().index, handle.addr());
    let known = STREAMS.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|map| map.get(&key).copied());
    let stream = known.unwrap_or_else(|| {
        let mut map = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
        *map.get_or_insert_default().entry(key).or_insert_with(|| driver::adopt(device, handle))
    });
    LAST.set(Some((key.0, key.1, stream)));
    stream
}

/// Returns PyTorch's handle of a stream.
pub(crate) fn handle(device: Device, stream: StreamId) -> usize {
    device.stream_by_id(stream).filter(|stream| *stream != device.default_stream()).map_or(0, driver::handle)
}
