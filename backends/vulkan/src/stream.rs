//! Streams.
#![allow(unsafe_code)] // work of other libraries

use std::sync::Arc;

use accelerator_core::DriverResult;
use ash::vk;

use crate::timeline::{Kept, Timeline};

/// Work in the order of submission, on a queue that it may share with other streams.
///
/// When it is dropped, it waits for its work. A capture that it began is given up.
#[derive(Debug)]
pub struct VulkanStream {
    pub(crate) timeline: Arc<Timeline>,
}

/// The native handles of a stream. They are valid as long as the stream lives.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NativeStream {
    /// The queue. Only [`VulkanStream::with_queue`] may use it, since Vulkan allows one thread at a time.
    pub queue: vk::Queue,
    /// The family of the queue, for which command pools are made.
    pub family: u32,
    /// A timeline semaphore, for work on other queues to wait for. The stream alone signals it.
    pub semaphore: vk::Semaphore,
    /// The value that the semaphore has when all work submitted so far is done.
    pub value: u64,
}

impl VulkanStream {
    /// Returns the handles, and the number of submissions so far.
    pub fn native(&self) -> NativeStream {
        NativeStream {
            queue: self.timeline.queue.raw(),
            family: self.timeline.device.family.family,
            semaphore: self.timeline.semaphore(),
            value: self.timeline.now().value(),
        }
    }

    /// Submits command buffers of the program, after the stream's earlier work and before its later work. They need no
    /// barriers at their beginning and end. `kept` is dropped some time after they are done. Vulkan: `vkQueueSubmit`.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) while the stream captures, since a graph
    /// cannot contain them; errors of the driver. Nothing is submitted then.
    ///
    /// # Safety
    /// * The command buffers are recorded for the stream's queue family. They and all that they use stay valid until
    ///   they are done.
    pub unsafe fn submit(
        &self,
        command_buffers: &[vk::CommandBuffer],
        kept: impl Send + Sync + 'static,
    ) -> DriverResult<()> {
        self.timeline.refuse_captured("vkQueueSubmit")?;
        let kept: Vec<Kept> = vec![Arc::new(kept)];
        // SAFETY: The caller promises the same.
        unsafe { self.timeline.submit_after(None, command_buffers, kept, |_| {}) }.map(drop)
    }

    /// Calls `f` with the queue, which no other thread uses meanwhile. Whatever it submits is work of the stream. `f`
    /// must not use streams of this device.
    ///
    /// # Errors
    /// [`InvalidArgument`](accelerator_core::DriverErrorKind::InvalidArgument) while the stream captures; `f` is not
    /// called then. Errors of the driver. If submitting fails after `f` was called, the work of `f` is not seen.
    ///
    /// # Safety
    /// * What `f` submits is valid.
    pub unsafe fn with_queue<T>(&self, f: impl FnOnce(vk::Queue) -> T) -> DriverResult<T> {
        self.timeline.refuse_captured("vkQueueSubmit")?;
        self.timeline.share(f)
    }
}

impl Drop for VulkanStream {
    fn drop(&mut self) {
        self.timeline.abandon_capture();
        // Fails only if the device is lost, which ends all work.
        let _ = self.timeline.finish();
    }
}
