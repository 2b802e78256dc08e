//! The logical device: its queues, and the calls that depend on its version.
#![allow(unsafe_code)] // calls into the driver

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{Captures, Health, Pool, Pooled, lock};
use ash::{khr, vk};

use crate::answer;
use crate::library::FORKED;
use crate::offer::Offer;
use crate::queues::{Queues, for_binding};
use crate::work::Work;

/// A logical device. It is destroyed with the last object that uses it.
pub(crate) struct Device {
    pub(crate) raw: ash::Device,
    pub(crate) instance: ash::Instance,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) family: Queues,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) queues: DeviceQueues,
    /// The captures in progress on its streams.
    pub(crate) captures: Captures<Work>,
    calls: Calls,
    /// Timeline semaphores that no stream uses. They are destroyed with the device only: Mesa 22
    /// still touches a semaphore after the work that waited for it is done.
    semaphores: Arc<Pool<Semaphore>>,
    is_ours: bool,
    health: Health,
}

/// Functions that are part of Vulkan 1.2, and of extensions before it.
struct Calls {
    wait_semaphores: vk::PFN_vkWaitSemaphores,
    get_semaphore_counter_value: vk::PFN_vkGetSemaphoreCounterValue,
    /// `None` if buffers have no addresses.
    get_buffer_device_address: Option<vk::PFN_vkGetBufferDeviceAddress>,
}

/// A timeline semaphore, and its value while no stream uses it.
#[derive(Debug)]
pub(crate) struct Semaphore {
    pub(crate) raw: vk::Semaphore,
    pub(crate) value: u64,
}

/// The queues of a device that this crate uses.
pub(crate) struct DeviceQueues {
    pub(crate) streams: Vec<Arc<Queue>>,
    /// The queue that binds memory to sparse buffers, if the device has both.
    pub(crate) binding: Option<Arc<Queue>>,
}

/// A queue of a device. Only one thread at a time may use it.
#[derive(Debug)]
pub(crate) struct Queue {
    raw: vk::Queue,
    lock: Mutex<()>,
}

impl Device {
    /// Makes a logical device with these queues.
    pub(crate) fn create(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        offer: &Offer,
        family: Queues,
    ) -> DriverResult<Arc<Self>> {
        let binding = for_binding(&offer.families, &family).filter(|_| offer.has_sparse_buffers);
        let binds_beside = binding == Some((family.family, family.count));
        let priorities = vec![1.0; family.count as usize + usize::from(binds_beside)];
        let of = |family| vk::DeviceQueueCreateInfo::default().queue_family_index(family);
        let mut queues = vec![of(family.family).queue_priorities(&priorities)];
        if let Some((other, _)) = binding.filter(|(other, _)| *other != family.family) {
            queues.push(of(other).queue_priorities(&[1.0]));
        }
        let mut extensions = Vec::new();
        // A device that has this extension must be made with it.
        if offer.has_extension(khr::portability_subset::NAME) {
            extensions.push(khr::portability_subset::NAME.as_ptr());
        }
        if !offer.has_version(vk::API_VERSION_1_2) {
            extensions.push(khr::timeline_semaphore::NAME.as_ptr());
            if offer.has_addresses {
                extensions.push(khr::buffer_device_address::NAME.as_ptr());
            }
        }
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut addresses = vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(true);
        let features = vk::PhysicalDeviceFeatures::default()
            .sparse_binding(offer.has_sparse_buffers)
            .sparse_residency_buffer(offer.has_sparse_buffers)
            .sparse_residency_aliased(offer.has_aliases);
        let mut description = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .enabled_features(&features)
            .push_next(&mut timeline);
        if offer.has_addresses {
            description = description.push_next(&mut addresses);
        }
        // SAFETY: The device is one of the instance, has these queues, extensions and features, and everything that
        // the description points to is alive.
        let raw = unsafe { instance.create_device(physical, &description, None) };
        let raw = answer::of("vkCreateDevice", raw)?;
        // SAFETY: The device was made with these queues.
        let queue = |family, number| Queue::new(unsafe { raw.get_device_queue(family, number) });
        let streams: Vec<_> = (0..family.count).map(|number| queue(family.family, number)).collect();
        let binding = binding.map(|(other, number)| match streams.get(number as usize) {
            Some(shared) if other == family.family => Arc::clone(shared),
            _ => queue(other, number),
        });
        Ok(Self::new(instance, raw, physical, offer, family, DeviceQueues { streams, binding }, true))
    }

    /// Wraps a logical device, with timeline semaphores and, if the offer says so, buffer device addresses. It is
    /// destroyed with this value if it is ours.
    pub(crate) fn new(
        instance: &ash::Instance,
        raw: ash::Device,
        physical: vk::PhysicalDevice,
        offer: &Offer,
        family: Queues,
        queues: DeviceQueues,
        is_ours: bool,
    ) -> Arc<Self> {
        let calls = Calls::of(instance, &raw, offer);
        let (instance, limits) = (instance.clone(), offer.properties.limits);
        let health = Health::new("vkCreateDevice", FORKED);
        let (captures, semaphores) = (Captures::new(), Pool::new(usize::MAX));
        Arc::new(Self { raw, instance, physical, family, limits, queues, captures, calls, semaphores, is_ours, health })
    }

    /// Converts the result of a call, and remembers if the device is lost.
    pub(crate) fn answer<T>(&self, call: &'static str, result: Result<T, vk::Result>) -> DriverResult<T> {
        self.health.run(|| answer::of(call, result))
    }

    /// Fails if the device is lost, or was opened before a fork.
    pub(crate) fn check(&self) -> DriverResult<()> {
        self.health.check()
    }

    /// Whether no work runs any more, since the device is lost or was opened before a fork.
    pub(crate) fn is_over(&self) -> bool {
        self.health.check().is_err()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.health.is_forked()
    }

    /// Destroys objects of the device, unless it was opened before a fork.
    pub(crate) fn destroy(&self, destroy: impl FnOnce(&ash::Device)) {
        if !self.health.is_forked() {
            destroy(&self.raw);
        }
    }

    /// Allocates a command buffer from a pool, which no other thread uses meanwhile.
    pub(crate) fn command_buffer(&self, pool: vk::CommandPool) -> DriverResult<vk::CommandBuffer> {
        let description = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: The pool is alive, and only this thread uses it.
        let made = unsafe { self.raw.allocate_command_buffers(&description) };
        Ok(self.answer("vkAllocateCommandBuffers", made)?[0])
    }

    /// Returns a timeline semaphore that nothing uses.
    pub(crate) fn semaphore(&self) -> DriverResult<Pooled<Semaphore>> {
        self.check()?;
        self.semaphores.take(|| self.new_semaphore())
    }

    fn new_semaphore(&self) -> DriverResult<Semaphore> {
        let mut counting = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let description = vk::SemaphoreCreateInfo::default().push_next(&mut counting);
        // SAFETY: The device has timeline semaphores.
        let made = unsafe { self.raw.create_semaphore(&description, None) };
        self.answer("vkCreateSemaphore", made).map(|raw| Semaphore { raw, value: 0 })
    }

    /// Waits until the counter of a timeline semaphore has this value, however often the driver refuses to wait.
    /// Returns how it refused first.
    pub(crate) fn wait_semaphore(&self, semaphore: vk::Semaphore, value: u64) -> DriverResult<()> {
        let waited = self.ask_to_wait(semaphore, value);
        if waited.is_err() {
            // Work that may still run must not touch memory that the caller is about to use.
            while !self.has_reached(semaphore, value) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        waited
    }

    fn has_reached(&self, semaphore: vk::Semaphore, value: u64) -> bool {
        self.is_over() || self.semaphore_value(semaphore).is_ok_and(|now| now >= value)
    }

    fn ask_to_wait(&self, semaphore: vk::Semaphore, value: u64) -> DriverResult<()> {
        let (semaphores, values) = ([semaphore], [value]);
        let wait = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: The function is the device's, and both lists have one entry.
        let waited = unsafe { (self.calls.wait_semaphores)(self.raw.handle(), &wait, u64::MAX) };
        self.answer("vkWaitSemaphores", waited.result())
    }

    /// Returns the value of the counter of a timeline semaphore.
    pub(crate) fn semaphore_value(&self, semaphore: vk::Semaphore) -> DriverResult<u64> {
        let mut value = 0;
        // SAFETY: The function is the device's; it writes a number.
        let asked = unsafe { (self.calls.get_semaphore_counter_value)(self.raw.handle(), semaphore, &mut value) };
        self.answer("vkGetSemaphoreCounterValue", asked.result()).map(|()| value)
    }

    /// Whether buffers have device addresses.
    pub(crate) fn has_addresses(&self) -> bool {
        self.calls.get_buffer_device_address.is_some()
    }

    /// Returns the device address of a buffer with memory, if buffers have addresses.
    pub(crate) fn address(&self, buffer: vk::Buffer) -> Option<vk::DeviceAddress> {
        let get = self.calls.get_buffer_device_address?;
        let description = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: The function is the device's, and the buffer was made with this usage.
        Some(unsafe { get(self.raw.handle(), &description) })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for queue in &self.queues.streams {
            self.destroy(|raw| {
                // SAFETY: Only this thread uses the queue.
                let _ = queue.with(|queue| unsafe { raw.queue_wait_idle(queue) });
            });
        }
        for semaphore in self.semaphores.drain() {
            // SAFETY: The queues are idle.
            self.destroy(|raw| unsafe { raw.destroy_semaphore(semaphore.raw, None) });
        }
        if self.is_ours {
            // SAFETY: Whatever was made with the device keeps it alive, so all of it has been destroyed.
            self.destroy(|raw| unsafe { raw.destroy_device(None) });
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.raw.handle()).finish()
    }
}

impl Calls {
    fn of(instance: &ash::Instance, device: &ash::Device, offer: &Offer) -> Self {
        if offer.has_version(vk::API_VERSION_1_2) {
            let calls = device.fp_v1_2();
            return Self {
                wait_semaphores: calls.wait_semaphores,
                get_semaphore_counter_value: calls.get_semaphore_counter_value,
                get_buffer_device_address: offer.has_addresses.then_some(calls.get_buffer_device_address),
            };
        }
        let timeline = khr::timeline_semaphore::Device::new(instance, device);
        let addresses = offer.has_addresses.then(|| khr::buffer_device_address::Device::new(instance, device));
        Self {
            wait_semaphores: timeline.fp().wait_semaphores_khr,
            get_semaphore_counter_value: timeline.fp().get_semaphore_counter_value_khr,
            get_buffer_device_address: addresses.map(|calls| calls.fp().get_buffer_device_address_khr),
        }
    }
}

impl Queue {
    pub(crate) fn new(raw: vk::Queue) -> Arc<Self> {
        Arc::new(Self { raw, lock: Mutex::default() })
    }

    /// Uses the queue, one thread at a time.
    pub(crate) fn with<T>(&self, f: impl FnOnce(vk::Queue) -> T) -> T {
        let _only_user = lock(&self.lock);
        f(self.raw)
    }

    pub(crate) fn raw(&self) -> vk::Queue {
        self.raw
    }
}
