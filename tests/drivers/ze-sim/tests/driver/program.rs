//! A compact Level Zero program for trials. Calls return what they create, and failures are errors.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use level_zero_sys::*;

pub(crate) type Outcome<T = ()> = Result<T, ze_result_t>;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const FOR_EVER: u64 = u64::MAX;
pub(crate) const NOT_READY: ze_result_t = ze_result_t::ZE_RESULT_NOT_READY;
pub(crate) const LOST: ze_result_t = ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST;

pub(crate) const HOST_VISIBLE: u32 = ze_event_pool_flag_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE.0;
pub(crate) const TIMESTAMPS: u32 = ze_event_pool_flag_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP.0;
pub(crate) const IN_ORDER: u32 = ze_command_queue_flag_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER.0;

pub(crate) type List = ze_command_list_handle_t;
pub(crate) type Event = ze_event_handle_t;

/// Converts the result of a call.
pub(crate) fn done(result: ze_result_t) -> Outcome {
    if result == ze_result_t::ZE_RESULT_SUCCESS { Ok(()) } else { Err(result) }
}

/// Converts the result of a call that creates an object.
pub(crate) fn made<T>(call: impl FnOnce(*mut T) -> ze_result_t) -> Outcome<T> {
    let mut place = MaybeUninit::zeroed();
    done(call(place.as_mut_ptr()))?;
    // SAFETY: a call that succeeds has written it.
    Ok(unsafe { place.assume_init() })
}

/// Calls a function that every version of the loader has.
macro_rules! ze {
    ($program:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let function = $program.ze.$function().unwrap();
        // SAFETY: trials pass handles that they created, or addresses that the driver does not dereference.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use ze;

/// Returns everything that a two-step call enumerates.
fn all<T: Clone>(place: T, call: impl Fn(*mut u32, *mut T) -> ze_result_t) -> Outcome<Vec<T>> {
    let mut count = 0;
    done(call(&raw mut count, ptr::null_mut()))?;
    let mut places = vec![place; count as usize];
    done(call(&raw mut count, places.as_mut_ptr()))?;
    Ok(places)
}

pub(crate) struct Program {
    pub(crate) ze: LevelZero,
    pub(crate) driver: ze_driver_handle_t,
    pub(crate) devices: Vec<ze_device_handle_t>,
    pub(crate) context: ze_context_handle_t,
}

impl Program {
    /// Starts the driver and creates one context with all devices.
    pub(crate) fn start() -> Self {
        Self::try_start().unwrap()
    }

    pub(crate) fn try_start() -> Outcome<Self> {
        let ze = LevelZero::load().unwrap();
        let mut program = Self { ze, driver: ptr::null_mut(), devices: Vec::new(), context: ptr::null_mut() };
        done(ze!(program, zeInit(0)))?;
        let drivers = all(ptr::null_mut(), |count, drivers| ze!(program, zeDriverGet(count, drivers)))?;
        assert_eq!(drivers.len(), 1);
        program.driver = drivers[0];
        program.devices =
            all(ptr::null_mut(), |count, devices| ze!(program, zeDeviceGet(program.driver, count, devices)))?;
        program.context = program.context()?;
        Ok(program)
    }

    pub(crate) fn context(&self) -> Outcome<ze_context_handle_t> {
        let desc = ze_context_desc_t::default();
        made(|context| ze!(self, zeContextCreate(self.driver, &raw const desc, context)))
    }

    pub(crate) fn destroy_context(&self, context: ze_context_handle_t) -> Outcome {
        done(ze!(self, zeContextDestroy(context)))
    }

    /// Creates an immediate list of the first device.
    pub(crate) fn list(&self, flags: u32) -> List {
        self.list_on(0, flags, 0).unwrap()
    }

    pub(crate) fn list_on(&self, device: usize, flags: u32, ordinal: u32) -> Outcome<List> {
        let mode = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        let desc = ze_command_queue_desc_t { flags, mode, ordinal, ..Default::default() };
        let device = self.devices[device];
        made(|list| ze!(self, zeCommandListCreateImmediate(self.context, device, &raw const desc, list)))
    }

    pub(crate) fn destroy_list(&self, list: List) -> Outcome {
        done(ze!(self, zeCommandListDestroy(list)))
    }

    /// Allocates memory of the first device.
    pub(crate) fn device_memory(&self, bytes: usize) -> Outcome<u64> {
        self.device_memory_with(&Default::default(), bytes, 0, 0)
    }

    pub(crate) fn device_memory_with(
        &self,
        desc: &ze_device_mem_alloc_desc_t,
        bytes: usize,
        alignment: usize,
        device: usize,
    ) -> Outcome<u64> {
        let device = self.devices[device];
        let address: *mut c_void =
            made(|address| ze!(self, zeMemAllocDevice(self.context, desc, bytes, alignment, device, address)))?;
        Ok(address as u64)
    }

    pub(crate) fn host_memory(&self, bytes: usize, alignment: usize) -> Outcome<u64> {
        let desc = ze_host_mem_alloc_desc_t::default();
        let address: *mut c_void =
            made(|address| ze!(self, zeMemAllocHost(self.context, &raw const desc, bytes, alignment, address)))?;
        Ok(address as u64)
    }

    pub(crate) fn shared_memory(&self, bytes: usize) -> Outcome<u64> {
        let (device_desc, host_desc) = Default::default();
        let (device_desc, host_desc) = (&raw const device_desc, &raw const host_desc);
        let device = self.devices[0];
        let address: *mut c_void = made(|address| {
            ze!(self, zeMemAllocShared(self.context, device_desc, host_desc, bytes, 0, device, address))
        })?;
        Ok(address as u64)
    }

    pub(crate) fn free(&self, address: u64) -> Outcome {
        done(ze!(self, zeMemFree(self.context, address as *mut c_void)))
    }

    pub(crate) fn pool(&self, flags: u32, count: u32) -> ze_event_pool_handle_t {
        let desc = ze_event_pool_desc_t { flags, count, ..Default::default() };
        let none = ptr::null_mut();
        made(|pool| ze!(self, zeEventPoolCreate(self.context, &raw const desc, 0, none, pool))).unwrap()
    }

    pub(crate) fn destroy_pool(&self, pool: ze_event_pool_handle_t) -> Outcome {
        done(ze!(self, zeEventPoolDestroy(pool)))
    }

    pub(crate) fn event(&self, pool: ze_event_pool_handle_t, index: u32) -> Outcome<Event> {
        let desc = ze_event_desc_t { index, ..Default::default() };
        made(|event| ze!(self, zeEventCreate(pool, &raw const desc, event)))
    }

    pub(crate) fn destroy_event(&self, event: Event) -> Outcome {
        done(ze!(self, zeEventDestroy(event)))
    }

    pub(crate) fn query(&self, event: Event) -> Outcome {
        done(ze!(self, zeEventQueryStatus(event)))
    }

    pub(crate) fn wait_for(&self, event: Event, timeout: u64) -> Outcome {
        done(ze!(self, zeEventHostSynchronize(event, timeout)))
    }

    pub(crate) fn reset(&self, event: Event) -> Outcome {
        done(ze!(self, zeEventHostReset(event)))
    }

    pub(crate) fn host_signal(&self, event: Event) -> Outcome {
        done(ze!(self, zeEventHostSignal(event)))
    }

    /// Copies between any two addresses.
    pub(crate) fn copy(&self, list: List, to: u64, from: u64, bytes: usize) -> Outcome {
        self.copy_with(list, to, from, bytes, ptr::null_mut(), &mut [])
    }

    pub(crate) fn copy_with(
        &self,
        list: List,
        to: u64,
        from: u64,
        bytes: usize,
        signals: Event,
        waits: &mut [Event],
    ) -> Outcome {
        let (to, from) = (to as *mut c_void, from as *const c_void);
        let (count, waits) = counted(waits);
        done(ze!(self, zeCommandListAppendMemoryCopy(list, to, from, bytes, signals, count, waits)))
    }

    pub(crate) fn fill(&self, list: List, to: u64, value: u8, bytes: usize) -> Outcome {
        self.fill_with(list, to, &[value], bytes, ptr::null_mut(), &mut [])
    }

    pub(crate) fn fill_with(
        &self,
        list: List,
        to: u64,
        pattern: &[u8],
        bytes: usize,
        signals: Event,
        waits: &mut [Event],
    ) -> Outcome {
        let (to, pattern, size) = (to as *mut c_void, pattern.as_ptr().cast(), pattern.len());
        let (count, waits) = counted(waits);
        done(ze!(self, zeCommandListAppendMemoryFill(list, to, pattern, size, bytes, signals, count, waits)))
    }

    pub(crate) fn barrier(&self, list: List, signals: Event, waits: &mut [Event]) -> Outcome {
        let (count, waits) = counted(waits);
        done(ze!(self, zeCommandListAppendBarrier(list, signals, count, waits)))
    }

    pub(crate) fn signal(&self, list: List, event: Event) -> Outcome {
        done(ze!(self, zeCommandListAppendSignalEvent(list, event)))
    }

    pub(crate) fn wait_in(&self, list: List, waits: &mut [Event]) -> Outcome {
        let (count, waits) = counted(waits);
        done(ze!(self, zeCommandListAppendWaitOnEvents(list, count, waits)))
    }

    pub(crate) fn reset_in(&self, list: List, event: Event) -> Outcome {
        done(ze!(self, zeCommandListAppendEventReset(list, event)))
    }

    /// Waits for all work of a list, in a way that every loader supports.
    pub(crate) fn finish(&self, list: List) -> Outcome {
        let pool = self.pool(HOST_VISIBLE, 1);
        let end = self.event(pool, 0)?;
        self.barrier(list, end, &mut [])?;
        let outcome = self.wait_for(end, FOR_EVER);
        if outcome == Err(LOST) {
            return outcome;
        }
        outcome?;
        // The barrier was the last command, but the list is idle only once it has noticed that.
        self.destroy_event(end)?;
        self.destroy_pool(pool)
    }

    /// Returns the bytes at an address.
    pub(crate) fn read(&self, list: List, from: u64, bytes: usize) -> Vec<u8> {
        let mut place = vec![0; bytes];
        self.barrier(list, ptr::null_mut(), &mut []).unwrap();
        self.copy(list, place.as_mut_ptr() as u64, from, bytes).unwrap();
        self.finish(list).unwrap();
        place
    }
}

/// Converts a slice to a C array.
fn counted(events: &mut [Event]) -> (u32, *mut Event) {
    match events {
        [] => (0, ptr::null_mut()),
        _ => (events.len() as u32, events.as_mut_ptr()),
    }
}
