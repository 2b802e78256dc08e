//! Graphs: command buffers that are submitted as often as they are launched.
#![allow(unsafe_code)] // calls into the driver

use std::fmt;
use std::sync::{Arc, Mutex};

use accelerator_core::backend_kit::{GraphNode, lock};
use accelerator_core::{CaptureMode, DriverResult, ExecutableGraph, Graphs};
use ash::vk;

use crate::device::Device;
use crate::stream::VulkanStream;
use crate::table::Table;
use crate::timeline::{Kept, Point, make_visible};
use crate::vulkan::Vulkan;
use crate::work::Work;

// SAFETY: `Timeline::run` keeps captured work instead of submitting it. A launch is a submission of its stream like any
// other, and barriers within the command buffer keep the captured order.
unsafe impl Graphs<Vulkan> for Vulkan {
    fn begin(&self, stream: &VulkanStream, _mode: CaptureMode) -> DriverResult<()> {
        self.device.check()?;
        self.device.captures.begin(stream.timeline.number)
    }

    fn end(&self, stream: &VulkanStream) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let checked = self.device.check();
        if self.device.is_forked() {
            checked?; // the thread that holds the lock of the captures may not exist
        }
        let nodes = self.device.captures.end(stream.timeline.number)?;
        checked?;
        let recorded = Arc::new(Recorded::new(&self.device, &self.table, nodes)?);
        Ok(Box::new(VulkanGraph { recorded, last: Mutex::new(None) }))
    }

    fn capture_of(&self, stream: &VulkanStream) -> DriverResult<Option<u64>> {
        self.device.check()?;
        Ok(self.device.captures.capture_of(stream.timeline.number))
    }

    fn mark(&self, stream: &VulkanStream) -> DriverResult<Option<u64>> {
        self.device.check()?;
        Ok(self.device.captures.mark(stream.timeline.number))
    }

    fn precede(&self, marks: &[u64], stream: &VulkanStream) -> DriverResult<Vec<bool>> {
        self.device.check()?;
        Ok(self.device.captures.precede(marks, stream.timeline.number))
    }
}

#[derive(Debug)]
struct VulkanGraph {
    /// Launches keep it, too.
    recorded: Arc<Recorded>,
    /// The end of the last launch.
    last: Mutex<Option<Point>>,
}

/// A recorded command buffer, and all that it needs.
struct Recorded {
    device: Arc<Device>,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    /// Keeps pipelines and their descriptor sets.
    nodes: Vec<GraphNode<Work>>,
    /// The fills among the work use it.
    _table: Arc<Table>,
}

impl Recorded {
    fn new(device: &Arc<Device>, table: &Arc<Table>, nodes: Vec<GraphNode<Work>>) -> DriverResult<Self> {
        let description = vk::CommandPoolCreateInfo::default().queue_family_index(device.family.family);
        // SAFETY: The device has queues of this family, on which all streams are.
        let pool = unsafe { device.raw.create_command_pool(&description, None) };
        let pool = device.answer("vkCreateCommandPool", pool)?;
        // From here on, dropping it gives back what it has.
        let (device, table) = (Arc::clone(device), Arc::clone(table));
        let mut recorded = Self { device, pool, commands: vk::CommandBuffer::null(), nodes, _table: table };
        recorded.commands = recorded.device.command_buffer(pool)?;
        recorded.record()?;
        Ok(recorded)
    }

    /// Records the work. Between two barriers, commands run in any order, so work of different streams may overlap.
    fn record(&self) -> DriverResult<()> {
        let (device, commands) = (&self.device, self.commands);
        // Launches may follow each other before the first is done.
        let again = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: Nothing else uses the command buffer and its pool.
        let begun = unsafe { device.raw.begin_command_buffer(commands, &again) };
        device.answer("vkBeginCommandBuffer", begun)?;
        let mut done = 0; // all nodes before this place precede the last barrier
        for (place, node) in self.nodes.iter().enumerate() {
            if node.after.iter().any(|earlier| *earlier >= done) {
                // SAFETY: The command buffer is being recorded.
                unsafe { make_visible(&device.raw, commands) };
                done = place;
            }
            // SAFETY: The command buffer is being recorded. Who launches the graph promises valid memory, and this
            // value keeps the rest.
            unsafe { node.work.record(&device.raw, commands) };
        }
        // SAFETY: The command buffer is being recorded.
        let ended = unsafe { device.raw.end_command_buffer(commands) };
        device.answer("vkEndCommandBuffer", ended)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: Launches keep this value until they are over, and nothing else uses the pool.
        self.device.destroy(|raw| unsafe { raw.destroy_command_pool(self.pool, None) });
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.nodes).finish()
    }
}

// SAFETY: As for `Graphs`. A launch on another stream waits for the one before.
unsafe impl ExecutableGraph<Vulkan> for VulkanGraph {
    unsafe fn launch(&self, stream: &VulkanStream) -> DriverResult<()> {
        let (timeline, recorded) = (&stream.timeline, &self.recorded);
        timeline.refuse_captured("vkQueueSubmit")?;
        let kept: Vec<Kept> = vec![Arc::clone(recorded) as Kept];
        let mut last = lock(&self.last); // until the launch is submitted, so that launches have one order
        // SAFETY: The command buffer is recorded for this family, and the launch keeps it. The caller promises valid
        // memory.
        let point = unsafe { timeline.submit_after(last.as_ref(), &[recorded.commands], kept, |_| {}) }?;
        *last = Some(point);
        Ok(())
    }
}
