//! Reserved address ranges, the chunks of memory mapped there, and the alias ranges at which chunks are mapped a second
//! time.
#![allow(unsafe_code)] // `AddressSpace`

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use super::AddressSpace;
use crate::alloc::blocks::{Base, PageRange, SegmentId};
use crate::share::{Export, Piece};
use crate::sync::InUse;
use crate::types::DriverResult;
use crate::virtual_memory::Pages;

/// Everything that the driver has reserved and mapped for one arena.
#[derive(Default)]
pub(crate) struct Mappings {
    ranges: Vec<AddressRange>,
    /// Keyed by the segment in whose range they are mapped, and the byte offset from its start.
    chunks: BTreeMap<(SegmentId, u64), Pages>,
    /// The lengths of pages that went back to the driver while their memory is paused, by the same key.
    asleep: BTreeMap<(SegmentId, u64), NonZeroU64>,
    /// The chunks that are exported, by the same key, so that each is exported only once.
    exported: InUse<(SegmentId, u64), Export>,
}

/// The address range of a segment.
struct AddressRange {
    segment: SegmentId,
    at: Base,
    len: NonZeroU64,
    /// The page size, if all chunks are pages.
    page: NonZeroU64,
}

/// Mappings, and the driver to change them with.
pub(crate) struct MappingsMut<'a> {
    driver: &'a dyn AddressSpace,
    mappings: &'a mut Mappings,
}

impl Mappings {
    pub(crate) fn with<'a>(&'a mut self, driver: &'a dyn AddressSpace) -> MappingsMut<'a> {
        MappingsMut { driver, mappings: self }
    }

    /// Stores an address range that was reserved, and that the arena added as this segment.
    pub(crate) fn keep(&mut self, segment: SegmentId, (at, len): (Base, NonZeroU64), page: NonZeroU64) {
        self.ranges.push(AddressRange { segment, at, len, page });
    }

    /// Returns the segments that have addresses here.
    pub(crate) fn segments(&self) -> Vec<SegmentId> {
        self.ranges.iter().map(|range| range.segment).collect()
    }

    /// Returns the page size of a segment.
    pub(crate) fn page(&self, segment: SegmentId) -> NonZeroU64 {
        self.range(segment).page
    }

    /// Returns the number of bytes that are asleep.
    pub(crate) fn asleep(&self) -> u64 {
        self.asleep.values().map(|len| len.get()).sum()
    }

    /// Returns the runs of adjacent pages, asleep or not, each with the start of its reservation, the offset from
    /// there, and the length.
    pub(crate) fn page_runs(&self) -> Vec<(Base, u64, u64)> {
        let mapped = self.chunks.iter().map(|(place, pages)| (*place, pages.len.get()));
        let mut all: Vec<_> = mapped.chain(self.asleep.iter().map(|(place, len)| (*place, len.get()))).collect();
        all.sort_unstable();
        let mut runs: Vec<(SegmentId, u64, u64)> = Vec::new();
        for ((segment, offset), len) in all {
            match runs.last_mut().filter(|run| run.0 == segment && run.1 + run.2 == offset) {
                Some(run) => run.2 += len,
                None => runs.push((segment, offset, len)),
            }
        }
        runs.into_iter().map(|(segment, offset, len)| (self.range(segment).at, offset, len)).collect()
    }

    /// Returns whether a segment has addresses here.
    pub(crate) fn has(&self, segment: SegmentId) -> bool {
        self.ranges.iter().any(|range| range.segment == segment)
    }

    /// Returns the chunks that contain these bytes of a segment, and the offset of the bytes in the first one.
    pub(crate) fn chunks_of(&self, segment: SegmentId, bytes: Range<u64>) -> (Vec<(SegmentId, u64)>, u64) {
        let first = self.chunks.range(..=(segment, bytes.start)).next_back();
        let start = first.map_or(bytes.start, |((_, offset), _)| *offset);
        let chunks = self.chunks.range((segment, start)..(segment, bytes.end));
        (chunks.map(|(place, _)| *place).collect(), bytes.start - start)
    }

    fn range(&self, segment: SegmentId) -> &AddressRange {
        let range = self.ranges.iter().find(|range| range.segment == segment);
        range.unwrap_or_else(|| unreachable!("virtual memory segments have a range"))
    }
}

impl MappingsMut<'_> {
    /// Returns the number of bytes of a range of pages that are asleep.
    pub(crate) fn asleep_in(&self, range: PageRange) -> u64 {
        let places = (range.segment, range.offset)..(range.segment, range.end());
        self.mappings.asleep.range(places).map(|(_, len)| len.get()).sum()
    }

    /// Exports chunks to other processes.
    pub(crate) fn export(&mut self, chunks: &[(SegmentId, u64)]) -> DriverResult<Vec<Piece>> {
        let Mappings { chunks: all, exported, .. } = &mut *self.mappings;
        exported.forget_unused();
        let piece = |place: &(SegmentId, u64)| {
            let Some(pages) = all.get(place) else { unreachable!("existing chunks are exported") };
            // SAFETY: These pages exist as long as they are listed. What is exported goes to processes that import it.
            let export = || Ok(Arc::new(Export::from(unsafe { self.driver.export(pages) }?)));
            let export = exported.get_or_make(*place, export)?;
            Ok(Piece { len: pages.len.get(), export })
        };
        chunks.iter().map(piece).collect()
    }

    /// Gives the addresses of a removed segment back to the driver. Nothing may be mapped there.
    pub(crate) fn release(&mut self, segment: SegmentId) {
        if let Some(place) = self.mappings.ranges.iter().position(|range| range.segment == segment) {
            let AddressRange { at, len, .. } = self.mappings.ranges.swap_remove(place);
            // SAFETY: The range comes from one `reserve`, and is no longer in the list. The code that removed the
            // segment has checked that nothing is mapped there.
            unsafe { self.driver.release(at, len) }
        }
    }

    /// Makes chunks of these lengths and maps them one after another, starting at an offset in a segment. Returns how
    /// many were made. If there is an error, they are the chunks mapped before the one that the driver refused.
    pub(crate) fn make(&mut self, (segment, mut offset): (SegmentId, u64), lens: &[u64]) -> (usize, DriverResult<()>) {
        let base = self.mappings.range(segment).at;
        let mut created = match self.create_all(lens) {
            Ok(created) => created.into_iter(),
            Err(error) => return (0, Err(error)),
        };
        let mut made = 0;
        let mut result = Ok(());
        while result.is_ok()
            && let Some(pages) = created.next()
        {
            let len = pages.len.get();
            // SAFETY: The chunk is within the segment's range, at an address where nothing is mapped.
            result = unsafe { self.driver.map(base, offset, &pages) };
            match result {
                Ok(()) => drop(self.mappings.chunks.insert((segment, offset), pages)),
                Err(_) => self.destroy(pages),
            }
            made += usize::from(result.is_ok());
            offset += len;
        }
        created.for_each(|pages| self.destroy(pages));
        (made, result)
    }

    /// Maps the pages of a range. Returns the number of bytes mapped, from the first page on. If there is an error,
    /// that number is 0, unless the driver refuses to unmap what it had already mapped.
    pub(crate) fn map_pages(&mut self, PageRange { segment, offset, len }: PageRange) -> (u64, DriverResult<()>) {
        let page = self.mappings.range(segment).page.get();
        let (made, result) = self.make((segment, offset), &vec![page; (len / page) as usize]);
        let mut mapped = made as u64 * page;
        if result.is_err() {
            while mapped > 0 && self.unmake((segment, offset + mapped - page)).is_ok() {
                mapped -= page;
            }
        }
        (mapped, result)
    }

    /// Unmaps the pages of a range. Returns the number of bytes unmapped, up to the first page that the driver refuses.
    pub(crate) fn unmap_pages(&mut self, PageRange { segment, offset, len }: PageRange) -> (u64, DriverResult<()>) {
        let page = self.mappings.range(segment).page.get();
        let mut unmapped = 0;
        while unmapped < len {
            if let Err(error) = self.unmake((segment, offset + unmapped)) {
                return (unmapped, Err(error));
            }
            unmapped += page;
        }
        (unmapped, Ok(()))
    }

    /// Unmaps all pages, gives them back to the driver, and notes where they were. Returns the number of bytes, up to
    /// the first page that the driver refuses.
    pub(crate) fn put_to_sleep(&mut self) -> (u64, DriverResult<()>) {
        let mut bytes = 0;
        while let Some((place, len)) = self.mappings.chunks.iter().next().map(|(place, pages)| (*place, pages.len)) {
            if let Err(error) = self.unmake(place) {
                return (bytes, Err(error));
            }
            self.mappings.asleep.insert(place, len);
            bytes += len.get();
        }
        (bytes, Ok(()))
    }

    /// Maps new pages where pages were put to sleep. Returns the number of bytes, up to the first page that the driver
    /// refuses.
    pub(crate) fn wake(&mut self) -> (u64, DriverResult<()>) {
        let mut bytes = 0;
        while let Some((place, len)) = self.mappings.asleep.pop_first() {
            let (made, result) = self.make(place, &[len.get()]);
            if made == 0 {
                self.mappings.asleep.insert(place, len);
                return (bytes, result);
            }
            bytes += len.get();
        }
        (bytes, Ok(()))
    }

    /// Unmaps the chunk at an offset in a segment and gives it back to the driver. One that is asleep is only
    /// forgotten.
    pub(crate) fn unmake(&mut self, place @ (segment, offset): (SegmentId, u64)) -> DriverResult<()> {
        if self.mappings.asleep.remove(&place).is_some() {
            return Ok(());
        }
        let Some(pages) = self.mappings.chunks.remove(&place) else { unreachable!("only existing chunks go back") };
        // SAFETY: The chunk is one whole mapping. The caller has removed all of it from the arena, or has never added
        // it; has waited for all work submitted before; and has unmapped it from all alias ranges.
        let unmapped = unsafe { self.driver.unmap(self.mappings.range(segment).at, offset, pages.len) };
        match unmapped {
            Ok(()) => self.destroy(pages),
            Err(_) => drop(self.mappings.chunks.insert(place, pages)),
        }
        unmapped
    }

    /// Maps chunks a second time, one after another in a new address range. Returns the range, and how many chunks are
    /// mapped there. If there is an error, no chunks are mapped and the range has been released, unless the driver
    /// refuses to unmap a chunk.
    pub(crate) fn map_alias(
        &mut self,
        chunks: &[(SegmentId, u64)],
    ) -> (Option<(Base, NonZeroU64)>, usize, DriverResult<()>) {
        let pages: Option<Vec<&Pages>> = chunks.iter().map(|chunk| self.mappings.chunks.get(chunk)).collect();
        let Some(pages) = pages else { unreachable!("an alias maps existing chunks") };
        let len: u64 = pages.iter().map(|pages| pages.len.get()).sum();
        let len = NonZeroU64::new(len).unwrap_or(NonZeroU64::MIN);
        let at = match self.driver.reserve(len) {
            Ok(at) => at,
            Err(error) => return (None, 0, Err(error)),
        };
        let mut mapped = Vec::with_capacity(chunks.len());
        let mut offset = 0;
        let result = pages.into_iter().try_for_each(|pages| {
            // SAFETY: The addresses follow the previous chunk in the new range. The memory is now mapped at two
            // addresses; the arena gives out each of its bytes at only one of them at a time.
            unsafe { self.driver.map(at, offset, pages) }?;
            mapped.push((offset, pages.len));
            offset += pages.len.get();
            Ok(())
        });
        while result.is_err()
            && let Some((offset, len)) = mapped.last()
            // SAFETY: This is one whole mapping, which was never given out.
            && unsafe { self.driver.unmap(at, *offset, *len) }.is_ok()
        {
            mapped.pop();
        }
        if result.is_err() && mapped.is_empty() {
            // SAFETY: The range is as it was reserved, with nothing mapped there.
            unsafe { self.driver.release(at, len) };
            return (None, 0, result);
        }
        (Some((at, len)), mapped.len(), result)
    }

    /// Unmaps a chunk from one place in an alias range.
    pub(crate) fn unmap_piece(&mut self, (alias, offset): (SegmentId, u64), len: u64) -> DriverResult<()> {
        let Some(len) = NonZeroU64::new(len) else { return Ok(()) };
        // SAFETY: A piece of an alias range is one whole mapping. The caller has checked that all work that used it is
        // complete, and that no block contains it.
        unsafe { self.driver.unmap(self.mappings.range(alias).at, offset, len) }
    }

    /// Creates chunks of these lengths, all of them before any is mapped: the usual error is that memory has run out,
    /// and this order detects it sooner. If there is an error, none remain.
    fn create_all(&self, lens: &[u64]) -> DriverResult<Vec<Pages>> {
        let mut created = Vec::with_capacity(lens.len());
        for len in lens.iter().copied().filter_map(NonZeroU64::new) {
            match self.driver.create(len) {
                Ok(pages) => created.push(pages),
                Err(error) => {
                    created.into_iter().for_each(|pages| self.destroy(pages));
                    return Err(error);
                }
            }
        }
        Ok(created)
    }

    fn destroy(&self, pages: Pages) {
        // SAFETY: The pages come from one `create`, are mapped nowhere, and are owned here.
        unsafe { self.driver.destroy(pages) }
    }
}

#[cfg(test)]
mod tests;
