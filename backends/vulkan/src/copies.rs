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
    /// Submits a copy. One from or to pageable memory goes through pinned memory. If it is from pageable memory, that
    /// is read before this returns; if it is to pageable memory, this waits until the copy is done.
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
                let region = vk::BufferCopy { src_offset: start, dst_offset: at, size: len };
                // SAFETY: The caller promises two valid ranges that do not overlap.
                unsafe { self.submit_region(from, to, region, Vec::new(), stream) }.map(drop)
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
            let region = vk::BufferCopy { src_offset: 0, dst_offset: at + part.start, size };
            // SAFETY: Both ranges are valid, and the submission keeps the block.
            *last_use = Some(unsafe { self.submit_region(block.buffer(), to, region, kept(block), stream) }?);
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
            let region = vk::BufferCopy { src_offset: start + part.start, dst_offset: 0, size: part.end - part.start };
            // SAFETY: Both ranges are valid, and the submission keeps the block.
            let point = unsafe { self.submit_region(from, block.buffer(), region, kept(block), stream) }?;
            coming[turn] = Some((point, part));
        }
        let left = blocks.iter().zip(coming);
        left.filter_map(|(block, earlier)| Some((block, earlier?)))
            .try_for_each(|(block, earlier)| land(block, earlier))
    }

    /// Submits a fill.
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
        let ((buffer, at), len) = (dst.native(), len.get());
        // Fills have to start and end at multiples of 4 bytes, copies need not. The bytes before and after those are
        // copied from a table.
        let before = (at.next_multiple_of(4) - at).min(len);
        let after = (len - before) % 4;
        let middle = len - before - after;
        let from = self.table.place(value);
        let ends = [(at, before), (at + len - after, after)].map(|(at, size)| vk::BufferCopy {
            src_offset: from,
            dst_offset: at,
            size,
        });
        let ends: Vec<_> = ends.into_iter().filter(|region| region.size > 0).collect();
        let (raw, word) = (&self.device.raw, u32::from_ne_bytes([value; 4]));
        let fill = |commands| {
            if middle > 0 {
                // SAFETY: The command buffer is being recorded; the range is valid and aligned.
                unsafe { raw.cmd_fill_buffer(commands, buffer, at + before, middle, word) };
            }
            if !ends.is_empty() {
                // SAFETY: The command buffer is being recorded, and the table lives until all work is done.
                unsafe { raw.cmd_copy_buffer(commands, self.table.buffer(), buffer, &ends) };
            }
        };
        // SAFETY: The caller promises a range that is valid for writes.
        unsafe { stream.timeline.submit(Vec::new(), fill) }.map(drop)
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

    /// # Safety
    /// * The region is valid in both buffers.
    unsafe fn submit_region(
        &self,
        from: vk::Buffer,
        to: vk::Buffer,
        region: vk::BufferCopy,
        kept: Vec<Kept>,
        stream: &VulkanStream,
    ) -> DriverResult<Point> {
        let copy = |commands| {
            // SAFETY: The command buffer is being recorded; the caller promises a valid region.
            unsafe { self.device.raw.cmd_copy_buffer(commands, from, to, &[region]) };
        };
        // SAFETY: The caller promises a valid region.
        unsafe { stream.timeline.submit(kept, copy) }
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

fn kept(block: &Arc<Pooled<Block>>) -> Vec<Kept> {
    vec![Box::new(Arc::clone(block))]
}

/// Divides a length into parts that fit into a block.
fn parts(len: u64) -> impl Iterator<Item = (usize, Range<u64>)> {
    (0..len).step_by(LARGE as usize).map(move |start| start..len.min(start + LARGE)).enumerate()
}
