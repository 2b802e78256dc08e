//! A logical device whose driver calls are counted and made to fail, between the backend and the real driver.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use accelerator_core::DriverResult;
use accelerator_vulkan::ash::{self, vk};
use accelerator_vulkan::{NativeDevice, Vulkan};
use libtest_mimic::Failed;

/// A logical device for [`Vulkan::from_native`]. Only one exists at a time.
pub(crate) struct Spied {
    real: ash::Device,
    native: NativeDevice,
    _only: MutexGuard<'static, ()>,
}

/// What the calls do, and what they did.
#[derive(Default)]
struct Spy {
    /// The real device while the spy is there.
    real: Option<ash::Device>,
    /// The number of calls that may fail.
    calls: u64,
    fails: Option<(u64, vk::Result)>,
    failed: Option<&'static str>,
    /// Whether the device was lost, so that all calls fail.
    lost: bool,
    /// The number of semaphores that submissions waited for.
    waits: u64,
    /// The objects that were made and not destroyed, by kind.
    live: BTreeMap<&'static str, i64>,
}

static SPY: Mutex<Option<Spy>> = Mutex::new(None);
static ONLY: Mutex<()> = Mutex::new(());

impl Spied {
    /// Makes a logical device of the first physical device.
    pub(crate) fn new() -> Result<Self, Failed> {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = Vulkan::with_capacity(0, None)?;
        let native = ours.native();
        // Sparse buffers, if the device has them, need addresses.
        let is_sparse = native.has_sparse_buffers;
        // SAFETY: The handles are valid as long as the backend lives.
        let offered = unsafe { native.instance.get_physical_device_features(native.physical) };
        let features = vk::PhysicalDeviceFeatures {
            sparse_binding: is_sparse.into(),
            sparse_residency_buffer: is_sparse.into(),
            sparse_residency_aliased: if is_sparse { offered.sparse_residency_aliased } else { 0 },
            ..Default::default()
        };
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(native.family).queue_priorities(&priorities)];
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut addresses = vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(is_sparse);
        let description = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_features(&features)
            .push_next(&mut addresses)
            .push_next(&mut timeline);
        // SAFETY: The device has this queue and these features, since the backend used them.
        let real = unsafe { native.instance.create_device(native.physical, &description, None) }?;
        let of_driver = |name: &CStr| -> *const c_void {
            // SAFETY: The instance and the device are alive.
            let found = unsafe { native.instance.get_device_proc_addr(real.handle(), name.as_ptr()) };
            found.map_or(std::ptr::null(), |function| function as *const c_void)
        };
        // SAFETY: Each function has the type of that name, and passes calls on to the driver's.
        let device = unsafe { ash::Device::load_with(|name| spied(name, of_driver(name)), real.handle()) };
        // SAFETY: The device was made with this queue.
        let queue = unsafe { real.get_device_queue(native.family, 0) };
        let native = NativeDevice { device, queues: vec![queue], has_buffer_addresses: is_sparse, ..native };
        *spy() = Some(Spy { real: Some(real.clone()), ..Spy::default() });
        Ok(Self { real, native, _only: only })
    }

    pub(crate) fn open(&self, capacity: u64) -> DriverResult<Vulkan> {
        // SAFETY: The handles are valid and belong together, and the spied device outlives the backend.
        unsafe { Vulkan::from_native(self.native.clone(), Some(capacity)) }
    }

    /// Makes the call with this number fail, counted from 1 and from now. If it loses the device, all later ones fail.
    pub(crate) fn fail(&self, number: u64, result: vk::Result) {
        let mut spy = spy();
        let spy = spy.as_mut().unwrap();
        (spy.calls, spy.fails, spy.failed, spy.lost) = (0, Some((number, result)), None, false);
    }

    /// Returns the call that failed.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        spy().as_ref().unwrap().failed
    }

    /// Returns the kinds of objects that were made and not destroyed, and how many.
    pub(crate) fn left(&self) -> Vec<(&'static str, i64)> {
        let spy = spy();
        spy.as_ref()
            .unwrap()
            .live
            .iter()
            .filter(|(_, count)| **count != 0)
            .map(|(kind, count)| (*kind, *count))
            .collect()
    }

    /// Returns the number of semaphores that submissions have waited for.
    pub(crate) fn waits(&self) -> u64 {
        spy().as_ref().unwrap().waits
    }

    pub(crate) fn live(&self, kind: &str) -> i64 {
        spy().as_ref().unwrap().live.get(kind).copied().unwrap_or(0)
    }
}

impl Drop for Spied {
    fn drop(&mut self) {
        *spy() = None;
        // SAFETY: The backends that used the device were dropped.
        unsafe { self.real.destroy_device(None) };
    }
}

fn spy() -> MutexGuard<'static, Option<Spy>> {
    SPY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call, and returns the error that it has to return.
fn refusal(name: &'static str) -> Option<vk::Result> {
    let mut spy = spy();
    let spy = spy.as_mut()?;
    spy.calls += 1;
    if spy.lost {
        return Some(vk::Result::ERROR_DEVICE_LOST);
    }
    let (_, result) = spy.fails.filter(|(number, _)| *number == spy.calls)?;
    spy.failed = Some(name);
    if result == vk::Result::ERROR_DEVICE_LOST {
        spy.lost = true;
        // A lost device does no more work, so let the real one finish its own.
        // SAFETY: The device is alive, and no other thread uses its queue.
        let _ = spy.real.as_ref().map(|real| unsafe { real.device_wait_idle() });
    }
    Some(result)
}

fn count_waits(count: u32, batches: *const vk::SubmitInfo<'static>) {
    // SAFETY: The backend passes as many batches.
    let batches = unsafe { std::slice::from_raw_parts(batches, count as usize) };
    if let Some(spy) = spy().as_mut() {
        spy.waits += batches.iter().map(|batch| u64::from(batch.wait_semaphore_count)).sum::<u64>();
    }
}

fn count(kind: &'static str, change: i64) {
    if let Some(spy) = spy().as_mut() {
        *spy.live.entry(kind).or_default() += change;
    }
}

/// Defines functions with the types of Vulkan's that call the driver, and `spied`, which finds them by name.
macro_rules! spied {
    (
        call { $( $call:ident($($argument:ident: $type:ty),*) $(after $look:expr)?; )* }
        make { $( $make:ident, $destroy:ident; )* }
    ) => {
        mod calls {
            use super::*;

            $(
                #[allow(non_snake_case)]
                pub(super) mod $call {
                    use super::*;

                    pub(crate) static REAL: AtomicUsize = AtomicUsize::new(0);

                    pub(crate) extern "system" fn spied($($argument: $type),*) -> vk::Result {
                        if let Some(result) = refusal(stringify!($call)) {
                            return result;
                        }
                        $($look;)?
                        type Function = extern "system" fn($($type),*) -> vk::Result;
                        // SAFETY: The driver's function has this type.
                        let real = unsafe { mem::transmute::<usize, Function>(REAL.load(Ordering::Relaxed)) };
                        real($($argument),*)
                    }
                }
            )*

            $(
                #[allow(non_snake_case)]
                pub(super) mod $make {
                    use super::*;

                    pub(crate) static REAL: AtomicUsize = AtomicUsize::new(0);

                    pub(crate) extern "system" fn spied(
                        device: vk::Device,
                        what: *const c_void,
                        how: *const c_void,
                        made: *mut u64,
                    ) -> vk::Result {
                        if let Some(result) = refusal(stringify!($make)) {
                            return result;
                        }
                        type Function =
                            extern "system" fn(vk::Device, *const c_void, *const c_void, *mut u64) -> vk::Result;
                        // SAFETY: The driver's function has this type.
                        let real = unsafe { mem::transmute::<usize, Function>(REAL.load(Ordering::Relaxed)) };
                        let result = real(device, what, how, made);
                        if result == vk::Result::SUCCESS {
                            count(stringify!($make), 1);
                        }
                        result
                    }
                }

                #[allow(non_snake_case)]
                pub(super) mod $destroy {
                    use super::*;

                    pub(crate) static REAL: AtomicUsize = AtomicUsize::new(0);

                    pub(crate) extern "system" fn spied(device: vk::Device, object: u64, how: *const c_void) {
                        if object != 0 {
                            count(stringify!($make), -1);
                        }
                        type Function = extern "system" fn(vk::Device, u64, *const c_void);
                        // SAFETY: The driver's function has this type.
                        let real = unsafe { mem::transmute::<usize, Function>(REAL.load(Ordering::Relaxed)) };
                        real(device, object, how);
                    }
                }
            )*
        }

        /// Returns our function of this name, which calls the driver's, or the driver's if we have none.
        fn spied(name: &CStr, real: *const c_void) -> *const c_void {
            match name.to_str().unwrap() {
                $(
                    stringify!($call) => {
                        calls::$call::REAL.store(real.expose_provenance(), Ordering::Relaxed);
                        calls::$call::spied as *const c_void
                    }
                )*
                $(
                    stringify!($make) => {
                        calls::$make::REAL.store(real.expose_provenance(), Ordering::Relaxed);
                        calls::$make::spied as *const c_void
                    }
                    stringify!($destroy) => {
                        calls::$destroy::REAL.store(real.expose_provenance(), Ordering::Relaxed);
                        calls::$destroy::spied as *const c_void
                    }
                )*
                _ => real,
            }
        }
    };
}

spied! {
    call {
    vkQueueSubmit(queue: vk::Queue, number: u32, batches: *const vk::SubmitInfo<'static>, fence: u64)
        after count_waits(number, batches);
    vkQueueBindSparse(queue: vk::Queue, count: u32, batches: *const c_void, fence: u64);
    vkWaitSemaphores(device: vk::Device, wait: *const c_void, timeout: u64);
    vkGetSemaphoreCounterValue(device: vk::Device, semaphore: u64, value: *mut u64);
    vkBindBufferMemory(device: vk::Device, buffer: u64, memory: u64, offset: u64);
    vkMapMemory(device: vk::Device, memory: u64, offset: u64, size: u64, flags: u32, start: *mut c_void);
    vkAllocateCommandBuffers(device: vk::Device, what: *const c_void, made: *mut c_void);
    vkAllocateDescriptorSets(device: vk::Device, what: *const c_void, made: *mut c_void);
    vkBeginCommandBuffer(commands: vk::CommandBuffer, how: *const c_void);
    vkEndCommandBuffer(commands: vk::CommandBuffer);
    vkGetQueryPoolResults(
        device: vk::Device, pool: u64, first: u32, count: u32, size: usize, data: *mut c_void, stride: u64, flags: u32
    );
    }
    make {
    vkAllocateMemory, vkFreeMemory;
    vkCreateBuffer, vkDestroyBuffer;
    vkCreateCommandPool, vkDestroyCommandPool;
    vkCreateDescriptorPool, vkDestroyDescriptorPool;
    vkCreateDescriptorSetLayout, vkDestroyDescriptorSetLayout;
    vkCreatePipelineLayout, vkDestroyPipelineLayout;
    vkCreateQueryPool, vkDestroyQueryPool;
    vkCreateSemaphore, vkDestroySemaphore;
    vkCreateShaderModule, vkDestroyShaderModule;
    }
}
