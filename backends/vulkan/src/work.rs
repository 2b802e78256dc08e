//! Work of streams: it is submitted, or captured and put into a graph.
#![allow(unsafe_code)] // records commands

use std::sync::Arc;

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::Pooled;
use ash::vk;

use crate::pipeline::Pipeline;
use crate::timeline::{Kept, Timeline};

/// Commands and their arguments, which can be recorded any number of times.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// From one place in a buffer to another.
    Copy {
        from: (vk::Buffer, u64),
        to: (vk::Buffer, u64),
        len: u64,
    },
    Fill(Fill),
    Launch(Arc<Launch>),
}

/// A fill of any length, at any place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) buffer: vk::Buffer,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) value: u8,
    /// Where the value stands 4 times.
    pub(crate) copies: (vk::Buffer, u64),
}

/// A kernel and its arguments.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) set: Option<Pooled<vk::DescriptorSet>>,
    pub(crate) constants: Vec<u8>,
    pub(crate) groups: [u32; 3],
}

impl Timeline {
    /// Refuses a call that cannot be captured, if the stream captures.
    pub(crate) fn refuse_captured(&self, call: &'static str) -> DriverResult<()> {
        self.device.check()?;
        self.device.captures.refuse_captured(self.number, call)
    }

    /// Gives up the capture that the stream began, if it did.
    pub(crate) fn abandon_capture(&self) {
        // After a fork, the thread that holds the lock of the captures may not exist.
        if !self.device.is_forked() {
            self.device.captures.abandon(self.number);
        }
    }

    /// Captures work if the stream captures, and submits it otherwise.
    ///
    /// # Safety
    /// * The requirements of [`Work::record`]; captured work is done when its graph is launched.
    pub(crate) unsafe fn run(self: &Arc<Self>, work: Work) -> DriverResult<()> {
        self.device.check()?;
        if self.device.captures.record(self.number, || work.clone()) {
            return Ok(());
        }
        // SAFETY: The command buffer is being recorded; the caller promises the rest.
        let record = |commands| unsafe { work.record(&self.device.raw, commands) };
        // SAFETY: The caller promises valid work, and the submission keeps what it needs.
        unsafe { self.submit(work.kept(), record) }.map(drop)
    }
}

impl Work {
    /// Records the commands.
    ///
    /// # Safety
    /// * The command buffer is being recorded.
    /// * The memory is valid for the commands until they are done, and what a launch needs is alive until then.
    pub(crate) unsafe fn record(&self, raw: &ash::Device, commands: vk::CommandBuffer) {
        match self {
            Self::Copy { from: (from, src_offset), to: (to, dst_offset), len } => {
                let region = vk::BufferCopy { src_offset: *src_offset, dst_offset: *dst_offset, size: *len };
                // SAFETY: The caller promises two valid ranges.
                unsafe { raw.cmd_copy_buffer(commands, *from, *to, &[region]) };
            }
            // SAFETY: The caller promises the same.
            Self::Fill(fill) => unsafe { fill.record(raw, commands) },
            // SAFETY: As above.
            Self::Launch(launch) => unsafe { launch.record(raw, commands) },
        }
    }

    /// What must live until the work is done.
    fn kept(&self) -> Vec<Kept> {
        match self {
            Self::Copy { .. } | Self::Fill(_) => Vec::new(),
            Self::Launch(launch) => vec![Arc::clone(launch) as Kept],
        }
    }
}

impl Fill {
    /// # Safety
    /// * As for [`Work::record`].
    unsafe fn record(self, raw: &ash::Device, commands: vk::CommandBuffer) {
        let Self { buffer, at, len, value, copies: (table, from) } = self;
        // Fills have to start and end at multiples of 4 bytes, copies need not. The bytes before and after those are
        // copied from a table.
        let before = (at.next_multiple_of(4) - at).min(len);
        let after = (len - before) % 4;
        let middle = len - before - after;
        if middle > 0 {
            let word = u32::from_ne_bytes([value; 4]);
            // SAFETY: The command buffer is being recorded; the range is valid and aligned.
            unsafe { raw.cmd_fill_buffer(commands, buffer, at + before, middle, word) };
        }
        for (dst_offset, size) in [(at, before), (at + len - after, after)].into_iter().filter(|(_, size)| *size > 0) {
            let region = vk::BufferCopy { src_offset: from, dst_offset, size };
            // SAFETY: The command buffer is being recorded, and the table is alive.
            unsafe { raw.cmd_copy_buffer(commands, table, buffer, &[region]) };
        }
    }
}

impl Launch {
    /// # Safety
    /// * As for [`Work::record`].
    unsafe fn record(&self, raw: &ash::Device, commands: vk::CommandBuffer) {
        let Self { pipeline, set, constants, groups } = self;
        let (commands_of, layout) = (vk::PipelineBindPoint::COMPUTE, pipeline.layout);
        // SAFETY: The command buffer is being recorded; the caller keeps the pipeline.
        unsafe { raw.cmd_bind_pipeline(commands, commands_of, pipeline.raw) };
        if let Some(set) = set {
            // SAFETY: As above; the set has this layout.
            unsafe { raw.cmd_bind_descriptor_sets(commands, commands_of, layout, 0, &[**set], &[]) };
        }
        if !constants.is_empty() {
            // SAFETY: As above; the layout has as many bytes.
            unsafe { raw.cmd_push_constants(commands, layout, vk::ShaderStageFlags::COMPUTE, 0, constants) };
        }
        // SAFETY: As above; the device allows so many groups.
        unsafe { raw.cmd_dispatch(commands, groups[0], groups[1], groups[2]) };
    }
}
