//! Copies and fills.
#![allow(unsafe_code)] // calls into the driver

use std::num::NonZeroU64;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use accelerator_core::backend_kit::Pooled;
use accelerator_core::{DriverError, DriverResult, Place};
use ash::vk;

use crate::answer;
use crate::memory::VulkanPtr;
use crate::staging::{Block, LARGE};
use crate::stream::VulkanStream;
use crate::timeline::{Kept, Point};
use crate::vulkan::Vulkan;
use crate::work::{Fill, Work};

/// One end of a copy.
enum End {
    /// In a buffer, at this offset.
    Buffer(vk::Buffer, u64),
    /// In host memory that the device does not see.
    ///
    /// No work that is pending ever touches such memory: copies to it return when they are done, and copies from it
    /// read it at once. So what a stream has to do earlier cannot change what a copy reads here.
    Pageable(NonNull<u8>),
}

impl Vulkan {
    /// Submits or captures a copy. One from or to pageable memory goes through pinned memory, and cannot be captured.
    /// If it is from pageable memory, that is read before this returns; if it is to pageable memory, this waits until
    /// the copy is done.
    ///
    /// # Safety
    /// * As for [`Backend::copy`](accelerator_core::Backend::copy).
    pub(crate) unsafe fn submit_copy(
        &self,
        dst: Place<VulkanPtr>,
        src: Place<VulkanPtr>,
        len: NonZeroU64,
        stream: &VulkanStream,
    ) -> DriverResult<()> {
        let len = len.get();
        if let (Place::Device(to), Place::Device(from)) = (dst, src)
            && to.overlaps(from, len)
        {
            return Err(answer::refused("vkCmdCopyBuffer", "the ranges of a copy overlap"));
        }
        match (self.end(dst, len)?, self.end(src, len)?) {
            (End::Buffer(to, at), End::Buffer(from, start)) => {
                let copy = Work::Copy { from: (from, start), to: (to, at), len };
                // SAFETY: The caller promises two valid ranges that do not overlap.
                unsafe { stream.timeline.run(copy) }
            }
            // Staging memory and the program's may have other contents or owners when a graph is launched.
            _ if self.device.captures.is_capturing(stream.timeline.number) => {
                let why = "a graph cannot copy from or to pageable host memory: use pinned memory";
                Err(answer::refused("vkCmdCopyBuffer", why))
            }
            (End::Buffer(to, at), End::Pageable(from)) => {
                // SAFETY: The caller promises the same.
                unsafe { self.upload(to, at, from, len, stream) }
            }
            (End::Pageable(to), End::Buffer(from, start)) => {
                // SAFETY: The caller promises the same.
                unsafe { self.download(to, from, start, len, stream) }
            }
            (End::Pageable(to), End::Pageable(from)) => {
                stream.timeline.finish()?;
                // SAFETY: The caller promises two valid ranges that do not overlap; earlier work is done.
                unsafe { from.copy_to_nonoverlapping(to, len as usize) };
                Ok(())
            }
        }
    }

    /// # Safety
    /// * Both ranges are valid, `to` for writes.
    unsafe fn upload(
        &self,
        to: vk::Buffer,
        at: u64,
        from: NonNull<u8>,
        len: u64,
        stream: &VulkanStream,
    ) -> DriverResult<()> {
        let blocks = self.blocks(len, stream)?;
        let mut used = [const { None::<Point> }; 2];
        for (turn, part) in parts(len) {
            let block = &blocks[turn % blocks.len()];
            let last_use = &mut used[turn % blocks.len()];
            last_use.take().map_or(Ok(()), |point| point.wait())?;
            // SAFETY: The part is inside the caller's range.
            let source = unsafe { from.add(part.start as usize) };
            let size = part.end - part.start;
            // SAFETY: The block is at least as long as a part, and the device no longer reads it.
            unsafe { source.copy_to_nonoverlapping(block.start(), size as usize) };
            let copy = Work::Copy { from: (block.buffer(), 0), to: (to, at + part.start), len: size };
            // SAFETY: Both ranges are valid.
            *last_use = Some(unsafe { self.submit_part(&copy, block, stream) }?);
        }
        Ok(())
    }

    /// # Safety
    /// * Both ranges are valid, `to` for writes.
    unsafe fn download(
        &self,
        to: NonNull<u8>,
        from: vk::Buffer,
        start: u64,
        len: u64,
        stream: &VulkanStream,
    ) -> DriverResult<()> {
        let blocks = self.blocks(len, stream)?;
        let land = |block: &Block, (point, part): (Point, Range<u64>)| -> DriverResult<()> {
            point.wait()?;
            // SAFETY: The part is inside the caller's range.
            let target = unsafe { to.add(part.start as usize) };
            // SAFETY: The device has written the part to the block, and does not use it now.
            unsafe { block.start().copy_to_nonoverlapping(target, (part.end - part.start) as usize) };
            Ok(())
        };
        let mut coming = [const { None::<(Point, Range<u64>)> }; 2];
        for (turn, part) in parts(len) {
            let turn = turn % blocks.len();
            let block = &blocks[turn];
            coming[turn].take().map_or(Ok(()), |earlier| land(block, earlier))?;
            let len = part.end - part.start;
            let copy = Work::Copy { from: (from, start + part.start), to: (block.buffer(), 0), len };
            // SAFETY: Both ranges are valid.
            let point = unsafe { self.submit_part(&copy, block, stream) }?;
            coming[turn] = Some((point, part));
        }
        let left = blocks.iter().zip(coming);
        left.filter_map(|(block, earlier)| Some((block, earlier?)))
            .try_for_each(|(block, earlier)| land(block, earlier))
    }

    /// Submits or captures a fill.
    ///
    /// # Safety
    /// * As for [`Backend::fill`](accelerator_core::Backend::fill).
    pub(crate) unsafe fn submit_fill(
        &self,
        dst: VulkanPtr,
        value: u8,
        len: NonZeroU64,
        stream: &VulkanStream,
    ) -> DriverResult<()> {
        let (buffer, at) = dst.native();
        let copies = (self.table.buffer(), self.table.place(value));
        let fill = Fill { buffer, at, len: len.get(), value, copies };
        // SAFETY: The caller promises a range that is valid for writes. The table lives until all work is done.
        unsafe { stream.timeline.run(Work::Fill(fill)) }
    }

    fn end(&self, place: Place<VulkanPtr>, len: u64) -> DriverResult<End> {
        let (buffer, offset) = match place {
            Place::Device(ptr) => ptr.native(),
            Place::Host(start) => match self.pinned.find(start, len) {
                Some(pinned) => pinned,
                None => return Ok(End::Pageable(start)),
            },
            _ => return Err(DriverError::unknown_place("vkCmdCopyBuffer")),
        };
        Ok(End::Buffer(buffer, offset))
    }

    /// Submits a part of a copy, which keeps its block.
    ///
    /// # Safety
    /// * Both ranges are valid.
    unsafe fn submit_part(
        &self,
        copy: &Work,
        block: &Arc<Pooled<Block>>,
        stream: &VulkanStream,
    ) -> DriverResult<Point> {
        let kept = vec![Arc::clone(block) as Kept];
        // SAFETY: The command buffer is being recorded; the caller promises two valid ranges.
        let record = |commands| unsafe { copy.record(&self.device.raw, commands) };
        // SAFETY: As above.
        unsafe { stream.timeline.submit(kept, record) }
    }

    /// Takes blocks for a copy: a second one lets the host and the device work at the same time.
    fn blocks(&self, len: u64, stream: &VulkanStream) -> DriverResult<Vec<Arc<Pooled<Block>>>> {
        if self.staging.is_busy() {
            stream.timeline.finish()?; // gives back the blocks of earlier copies
        }
        let count = if len > LARGE { 2 } else { 1 };
        (0..count).map(|_| self.staging.block(len).map(Arc::new)).collect()
    }
}

/// Divides a length into parts that fit into a block.
fn parts(len: u64) -> impl Iterator<Item = (usize, Range<u64>)> {
    (0..len).step_by(LARGE as usize).map(move |start| start..len.min(start + LARGE)).enumerate()
}
