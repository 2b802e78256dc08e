//! Chunks of memory in reserved ranges, and aliases where they show once more.
#![allow(unsafe_code)] // `AddressSpace`

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::{AddressSpace, create_all, destroy};
use crate::alloc::blocks::{Base, SegmentId};
use crate::backend::DriverResult;
use crate::virtual_memory::Pages;

/// Ranges, chunks and aliases of a device.
#[derive(Default)]
pub(crate) struct Chunks {
    ranges: Vec<Space<SegmentId>>,
    aliases: Vec<Space<u64>>,
    /// By position.
    chunks: BTreeMap<u64, Chunk>,
}

/// Addresses, by what they are in the arena.
struct Space<K> {
    key: K,
    at: Base,
    len: NonZeroU64,
}

struct Chunk {
    pages: Pages,
    /// The start of its range, and bytes from there on.
    at: (Base, u64),
}

/// Where chunks are to be made.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) segment: SegmentId,
    /// Bytes from the start of the segment.
    pub(crate) offset: u64,
    pub(crate) position: u64,
}

impl Chunks {
    /// Takes addresses for a range, whose number comes from `enter`.
    pub(crate) fn reserve_range(
        &mut self,
        driver: &dyn AddressSpace,
        len: NonZeroU64,
        enter: impl FnOnce(Base) -> SegmentId,
    ) -> DriverResult<()> {
        let at = driver.reserve(len)?;
        self.ranges.push(Space { key: enter(at), at, len });
        Ok(())
    }

    /// Gives the addresses of a range back that was removed, since it has no chunks.
    pub(crate) fn release_range(&mut self, driver: &dyn AddressSpace, range: SegmentId) {
        if let Some(Space { at, len, .. }) = taken_out(&mut self.ranges, range) {
            // SAFETY: It is of one `reserve`, and no longer in the list. Whoever removed the range has seen that it has no chunks.
            unsafe { driver.release(at, len) }
        }
    }

    /// Makes chunks of these lengths, one behind the other from this place in a range on. How many were made: with an error none,
    /// or those that were mapped before the one that was refused.
    pub(crate) fn make(
        &mut self,
        driver: &dyn AddressSpace,
        site: Site,
        lens: &[u64],
    ) -> (usize, DriverResult<()>) {
        let Some(space) = self.ranges.iter().find(|space| space.key == site.segment) else {
            unreachable!("ranges have addresses")
        };
        let (base, mut offset, mut position) = (space.at, site.offset, site.position);
        let created = match create_all(driver, lens.iter().copied().filter_map(NonZeroU64::new)) {
            Ok(created) => created,
            Err(error) => return (0, Err(error)),
        };
        let mut created = created.into_iter();
        let mut made = 0;
        let mut result = Ok(());
        while result.is_ok()
            && let Some(pages) = created.next()
        {
            let len = pages.len.get();
            // SAFETY: It lies in the range's addresses, behind all that is mapped there.
            result = unsafe { driver.map(base, offset, &pages) };
            match result {
                Ok(()) => drop(self.chunks.insert(position, Chunk { pages, at: (base, offset) })),
                Err(_) => destroy(driver, pages),
            }
            made += usize::from(result.is_ok());
            offset += len;
            position = position.wrapping_add(len);
        }
        created.for_each(|pages| destroy(driver, pages));
        (made, result)
    }

    /// Maps chunks once more, one behind the other at new addresses: these, and how many show there. With an error none does, and
    /// the addresses are gone, unless the driver would not unmap one.
    pub(crate) fn map_alias(
        &mut self,
        driver: &dyn AddressSpace,
        chunks: &[(u64, u64)],
    ) -> (Option<Base>, usize, DriverResult<()>) {
        let at = match driver.reserve(len_of(chunks)) {
            Ok(at) => at,
            Err(error) => return (None, 0, Err(error)),
        };
        let mut mapped = Vec::with_capacity(chunks.len());
        let mut offset = 0;
        for (chunk, len) in chunks {
            let Some(Chunk { pages, .. }) = self.chunks.get(chunk) else {
                unreachable!("the chunk was found")
            };
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
                    unsafe { driver.release(at, len_of(chunks)) };
                    return (None, 0, Err(error));
                }
                return (Some(at), mapped.len(), Err(error));
            }
            mapped.push((offset, pages.len));
            offset += len;
        }
        (Some(at), mapped.len(), Ok(()))
    }

    /// Keeps the addresses of an alias that the arena has taken in.
    pub(crate) fn keep_alias(&mut self, start: u64, at: Base, len: u64) {
        let len = NonZeroU64::new(len).unwrap_or(NonZeroU64::MIN);
        self.aliases.push(Space { key: start, at, len });
    }

    /// Takes a chunk away from a place in an alias.
    pub(crate) fn unmap_piece(
        &mut self,
        driver: &dyn AddressSpace,
        alias: u64,
        offset: u64,
        len: u64,
    ) -> DriverResult<()> {
        let space = self.aliases.iter().find(|space| space.key == alias);
        let (Some(space), Some(len)) = (space, NonZeroU64::new(len)) else { return Ok(()) };
        // SAFETY: A piece of an alias is one whole mapping; whoever takes it away has seen that all work is over that used it, and
        // that no block has it.
        unsafe { driver.unmap(space.at, offset, len) }
    }

    /// Gives the addresses of an alias back that was removed, since nothing is mapped there.
    pub(crate) fn release_alias(&mut self, driver: &dyn AddressSpace, start: u64) {
        if let Some(Space { at, len, .. }) = taken_out(&mut self.aliases, start) {
            // SAFETY: It is of one `reserve`, and no longer in the list.
            unsafe { driver.release(at, len) }
        }
    }

    /// Gives a chunk back to the driver.
    pub(crate) fn destroy_chunk(&mut self, driver: &dyn AddressSpace, position: u64) -> DriverResult<()> {
        let Some(Chunk { pages, at }) = self.chunks.remove(&position) else { return Ok(()) };
        // SAFETY: It is one whole mapping; whoever gives it back has claimed all of it, seen that all work is over
        // that used it, and taken it away from all aliases.
        match unsafe { driver.unmap(at.0, at.1, pages.len) } {
            Ok(()) => destroy(driver, pages),
            Err(error) => {
                self.chunks.insert(position, Chunk { pages, at });
                return Err(error);
            }
        }
        Ok(())
    }
}

fn taken_out<K: PartialEq>(spaces: &mut Vec<Space<K>>, key: K) -> Option<Space<K>> {
    let place = spaces.iter().position(|space| space.key == key)?;
    Some(spaces.swap_remove(place))
}

fn len_of(chunks: &[(u64, u64)]) -> NonZeroU64 {
    NonZeroU64::new(chunks.iter().map(|(_, len)| len).sum()).unwrap_or(NonZeroU64::MIN)
}
