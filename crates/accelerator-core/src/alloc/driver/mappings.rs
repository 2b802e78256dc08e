//! Reserved ranges of addresses, the chunks of memory that are mapped there, and aliases where chunks show once more.
#![allow(unsafe_code)] // `AddressSpace`

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::AddressSpace;
use crate::alloc::blocks::{Base, PageRange, SegmentId};
use crate::types::DriverResult;
use crate::virtual_memory::Pages;

/// What the driver has reserved and mapped for one arena.
#[derive(Default)]
pub(crate) struct Mappings {
    ranges: Vec<Range>,
    /// By the segment in whose range they are mapped, and bytes from its start.
    chunks: BTreeMap<(SegmentId, u64), Pages>,
}

/// The addresses of a segment.
struct Range {
    segment: SegmentId,
    at: Base,
    len: NonZeroU64,
    /// Bytes of a page, where all chunks are pages.
    page: NonZeroU64,
}

impl Mappings {
    /// Keeps addresses that were reserved, and that the arena has taken in as this segment.
    pub(crate) fn keep(&mut self, segment: SegmentId, (at, len): (Base, NonZeroU64), page: NonZeroU64) {
        self.ranges.push(Range { segment, at, len, page });
    }

    /// Gives the addresses of a segment back that was removed, since nothing is mapped there.
    pub(crate) fn release(&mut self, driver: &dyn AddressSpace, segment: SegmentId) {
        if let Some(place) = self.ranges.iter().position(|range| range.segment == segment) {
            let Range { at, len, .. } = self.ranges.swap_remove(place);
            // SAFETY: It is of one `reserve`, and no longer in the list. Whoever removed the segment has seen that nothing is mapped
            // there.
            unsafe { driver.release(at, len) }
        }
    }

    /// Makes chunks of these lengths, one behind the other from an offset in a segment on. How many were made: with an error those
    /// that were mapped before the one that was refused.
    pub(crate) fn make(
        &mut self,
        driver: &dyn AddressSpace,
        (segment, mut offset): (SegmentId, u64),
        lens: &[u64],
    ) -> (usize, DriverResult<()>) {
        let base = self.range(segment).at;
        let mut created = match create_all(driver, lens) {
            Ok(created) => created.into_iter(),
            Err(error) => return (0, Err(error)),
        };
        let mut made = 0;
        let mut result = Ok(());
        while result.is_ok()
            && let Some(pages) = created.next()
        {
            let len = pages.len.get();
            // SAFETY: It lies in the range of the segment, where nothing is mapped.
            result = unsafe { driver.map(base, offset, &pages) };
            match result {
                Ok(()) => drop(self.chunks.insert((segment, offset), pages)),
                Err(_) => destroy(driver, pages),
            }
            made += usize::from(result.is_ok());
            offset += len;
        }
        created.for_each(|pages| destroy(driver, pages));
        (made, result)
    }

    /// Maps the pages of a range: how many bytes, from the first on. With an error that is 0, unless the driver would not take back
    /// what it had mapped before it.
    pub(crate) fn map_pages(
        &mut self,
        driver: &dyn AddressSpace,
        PageRange { segment, offset, len }: PageRange,
    ) -> (u64, DriverResult<()>) {
        let page = self.range(segment).page.get();
        let (made, result) = self.make(driver, (segment, offset), &vec![page; (len / page) as usize]);
        let mut mapped = made as u64 * page;
        if result.is_err() {
            while mapped > 0 && self.unmake(driver, (segment, offset + mapped - page)).is_ok() {
                mapped -= page;
            }
        }
        (mapped, result)
    }

    /// Unmaps the pages of a range, from the first on: how many bytes, up to a page that the driver would not unmap.
    pub(crate) fn unmap_pages(
        &mut self,
        driver: &dyn AddressSpace,
        PageRange { segment, offset, len }: PageRange,
    ) -> (u64, DriverResult<()>) {
        let page = self.range(segment).page.get();
        let mut unmapped = 0;
        while unmapped < len {
            if let Err(error) = self.unmake(driver, (segment, offset + unmapped)) {
                return (unmapped, Err(error));
            }
            unmapped += page;
        }
        (unmapped, Ok(()))
    }

    /// Gives the chunk at an offset in a segment back to the driver.
    pub(crate) fn unmake(
        &mut self,
        driver: &dyn AddressSpace,
        place @ (segment, offset): (SegmentId, u64),
    ) -> DriverResult<()> {
        let Some(pages) = self.chunks.remove(&place) else { unreachable!("what is given back was made") };
        // SAFETY: It is one whole mapping. Whoever gives it back has taken all of it from the arena, or has never taken it in; has
        // waited for all work that was submitted before; and has taken it away from all aliases.
        match unsafe { driver.unmap(self.range(segment).at, offset, pages.len) } {
            Ok(()) => destroy(driver, pages),
            Err(error) => {
                self.chunks.insert(place, pages);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Maps chunks once more, one behind the other at new addresses: these, and how many show there. With an error none does, and
    /// the addresses are gone, unless the driver would not unmap one.
    pub(crate) fn map_alias(
        &mut self,
        driver: &dyn AddressSpace,
        chunks: &[(SegmentId, u64)],
    ) -> (Option<(Base, NonZeroU64)>, usize, DriverResult<()>) {
        let pages: Option<Vec<&Pages>> = chunks.iter().map(|chunk| self.chunks.get(chunk)).collect();
        let Some(pages) = pages else { unreachable!("the chunks were found") };
        let len: u64 = pages.iter().map(|pages| pages.len.get()).sum();
        let len = NonZeroU64::new(len).unwrap_or(NonZeroU64::MIN);
        let at = match driver.reserve(len) {
            Ok(at) => at,
            Err(error) => return (None, 0, Err(error)),
        };
        let mut mapped = Vec::with_capacity(chunks.len());
        let mut offset = 0;
        for pages in pages {
            // SAFETY: The range is the next one of the new addresses. The memory shows at two places from now on; the arena
            // gives each byte of it out at one of them at a time.
            if let Err(error) = unsafe { driver.map(at, offset, pages) } {
                while let Some((offset, len)) = mapped.last()
                    // SAFETY: One whole mapping, that nobody was given.
                    && unsafe { driver.unmap(at, *offset, *len) }.is_ok()
                {
                    mapped.pop();
                }
                if mapped.is_empty() {
                    // SAFETY: As they were reserved, with nothing mapped there.
                    unsafe { driver.release(at, len) };
                    return (None, 0, Err(error));
                }
                return (Some((at, len)), mapped.len(), Err(error));
            }
            mapped.push((offset, pages.len));
            offset += pages.len.get();
        }
        (Some((at, len)), mapped.len(), Ok(()))
    }

    /// Takes a chunk away from a place in an alias.
    pub(crate) fn unmap_piece(
        &mut self,
        driver: &dyn AddressSpace,
        (alias, offset): (SegmentId, u64),
        len: u64,
    ) -> DriverResult<()> {
        let Some(len) = NonZeroU64::new(len) else { return Ok(()) };
        // SAFETY: A piece of an alias is one whole mapping. Whoever takes it away has seen that all work is over that used it, and
        // that no block has it.
        unsafe { driver.unmap(self.range(alias).at, offset, len) }
    }

    fn range(&self, segment: SegmentId) -> &Range {
        let range = self.ranges.iter().find(|range| range.segment == segment);
        let Some(range) = range else { unreachable!("segments of virtual memory have addresses") };
        range
    }
}

/// Takes memory of these lengths, all of it before any is mapped: the rule is that memory has run out, and that is known sooner
/// so. With an error, none.
fn create_all(driver: &dyn AddressSpace, lens: &[u64]) -> DriverResult<Vec<Pages>> {
    let mut created = Vec::with_capacity(lens.len());
    for len in lens.iter().copied().filter_map(NonZeroU64::new) {
        match driver.create(len) {
            Ok(pages) => created.push(pages),
            Err(error) => {
                created.into_iter().for_each(|pages| destroy(driver, pages));
                return Err(error);
            }
        }
    }
    Ok(created)
}

fn destroy(driver: &dyn AddressSpace, pages: Pages) {
    // SAFETY: They are of one `create`, mapped nowhere, and owned here.
    unsafe { driver.destroy(pages) }
}
