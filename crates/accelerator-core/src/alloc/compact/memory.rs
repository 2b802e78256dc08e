//! The memory of the policy: the only calls that reserve addresses for it, make chunks and map them.
#![allow(unsafe_code)] // `VirtualMemory`

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use super::owners::Owner;
use crate::alloc::block::SegmentId;
use crate::backend::{Backend, DevicePtr, DriverResult};
use crate::virtual_memory::{Pages, VirtualMemory};

/// Chunks and addresses. Locked for as long as the driver maps or unmaps: only who needs new memory, or gives memory back, waits
/// for that.
pub(in crate::alloc) struct Memory<B: Backend> {
    homes: Vec<Space<B::Ptr, SegmentId>>,
    strips: Vec<Space<B::Ptr, u64>>,
    /// By position.
    chunks: BTreeMap<u64, Chunk<B::Ptr>>,
    /// The ends of epochs, the oldest first.
    pub(super) marks: VecDeque<Mark<B::Event>>,
}

/// The end of an owner's epoch.
pub(super) struct Mark<E> {
    pub(super) owner: Owner,
    pub(super) epoch: u32,
    pub(super) event: E,
}

/// Addresses, by what they are in the books.
struct Space<P, K> {
    key: K,
    at: P,
    len: NonZeroU64,
}

struct Chunk<P> {
    pages: Pages,
    at: P,
}

impl<B: Backend> Default for Memory<B> {
    fn default() -> Self {
        let (homes, strips, chunks, marks) = Default::default();
        Self { homes, strips, chunks, marks }
    }
}

impl<B: Backend> Memory<B> {
    /// Takes addresses for a home, whose number in the books comes from `enter`.
    pub(super) fn reserve_home(
        &mut self,
        memory: &dyn VirtualMemory<B::Ptr>,
        len: NonZeroU64,
        enter: impl FnOnce(B::Ptr) -> SegmentId,
    ) -> DriverResult<()> {
        let at = memory.reserve(len)?;
        self.homes.push(Space { key: enter(at), at, len });
        Ok(())
    }

    /// Gives the addresses of a home back that is in no book any more, since it has no chunks.
    pub(super) fn release_home(&mut self, memory: &dyn VirtualMemory<B::Ptr>, home: SegmentId) {
        if let Some(Space { at, len, .. }) = taken_out(&mut self.homes, home) {
            // SAFETY: It is of one `reserve`, and no longer in the list. All chunks that there are have homes in the books.
            unsafe { memory.release(at, len) }
        }
    }

    /// Makes chunks of these lengths, one behind the other from this place in a home on. How many were made: with an error none,
    /// or those that were mapped before the one that was refused.
    pub(super) fn make(
        &mut self,
        memory: &dyn VirtualMemory<B::Ptr>,
        (home, mut offset, mut position): (SegmentId, u64, u64),
        lens: &[u64],
    ) -> (usize, DriverResult<()>) {
        let Some(space) = self.homes.iter().find(|space| space.key == home) else {
            unreachable!("homes have addresses")
        };
        // All are created before one is mapped: the rule is that memory has run out, and that is told sooner so.
        let mut created = Vec::with_capacity(lens.len());
        for len in lens.iter().copied().filter_map(NonZeroU64::new) {
            match memory.create(len) {
                Ok(pages) => created.push(pages),
                Err(error) => {
                    created.into_iter().for_each(|pages| destroy(memory, pages));
                    return (0, Err(error));
                }
            }
        }
        let mut created = created.into_iter();
        let mut made = 0;
        let mut result = Ok(());
        while result.is_ok()
            && let Some(pages) = created.next()
        {
            let (at, len) = (space.at.offset(offset), pages.len.get());
            // SAFETY: It lies in the home's addresses, behind all that is mapped there.
            result = unsafe { memory.map(at, &pages) };
            match result {
                Ok(()) => drop(self.chunks.insert(position, Chunk { pages, at })),
                Err(_) => destroy(memory, pages),
            }
            made += usize::from(result.is_ok());
            offset += len;
            position = position.wrapping_add(len);
        }
        created.for_each(|pages| destroy(memory, pages));
        (made, result)
    }

    /// Maps chunks once more, one behind the other at new addresses: these, and how many show there. With an error none does, and
    /// the addresses are gone, unless the driver would not unmap one.
    pub(super) fn stitch(
        &mut self,
        memory: &dyn VirtualMemory<B::Ptr>,
        chunks: &[(u64, u64)],
    ) -> (Option<B::Ptr>, usize, DriverResult<()>) {
        let at = match memory.reserve(len_of(chunks)) {
            Ok(at) => at,
            Err(error) => return (None, 0, Err(error)),
        };
        let mut mapped = Vec::with_capacity(chunks.len());
        let mut offset = 0;
        for (chunk, len) in chunks {
            let Some(Chunk { pages, .. }) = self.chunks.get(chunk) else {
                unreachable!("the chunk was found")
            };
            // SAFETY: The range is the next one of the new addresses. The memory shows at two places from now on; the books hand
            // each byte of it out at one of them at a time.
            if let Err(error) = unsafe { memory.map(at.offset(offset), pages) } {
                while let Some((offset, len)) = mapped.last()
                    // SAFETY: One whole mapping, that nobody was given.
                    && unsafe { memory.unmap(at.offset(*offset), *len) }.is_ok()
                {
                    mapped.pop();
                }
                if mapped.is_empty() {
                    // SAFETY: As they were reserved, with nothing mapped there.
                    unsafe { memory.release(at, len_of(chunks)) };
                    return (None, 0, Err(error));
                }
                return (Some(at), mapped.len(), Err(error));
            }
            mapped.push((offset, pages.len));
            offset += len;
        }
        (Some(at), mapped.len(), Ok(()))
    }

    /// Keeps the addresses of a strip that is in the books now.
    pub(super) fn keep_strip(&mut self, start: u64, at: B::Ptr, len: u64) {
        let len = NonZeroU64::new(len).unwrap_or(NonZeroU64::MIN);
        self.strips.push(Space { key: start, at, len });
    }

    /// Takes a chunk away from a place in a strip.
    pub(super) fn unmap_piece(
        &mut self,
        memory: &dyn VirtualMemory<B::Ptr>,
        strip: u64,
        offset: u64,
        len: u64,
    ) -> DriverResult<()> {
        let space = self.strips.iter().find(|space| space.key == strip);
        let (Some(space), Some(len)) = (space, NonZeroU64::new(len)) else { return Ok(()) };
        // SAFETY: A piece of a strip is one whole mapping; whoever takes it away has seen that all work is over that used it, and
        // that no block has it.
        unsafe { memory.unmap(space.at.offset(offset), len) }
    }

    /// Gives the addresses of a strip back that is in no book any more, since nothing is mapped there.
    pub(super) fn release_strip(&mut self, memory: &dyn VirtualMemory<B::Ptr>, start: u64) {
        if let Some(Space { at, len, .. }) = taken_out(&mut self.strips, start) {
            // SAFETY: It is of one `reserve`, and no longer in the list.
            unsafe { memory.release(at, len) }
        }
    }

    /// Gives a chunk back to the driver.
    pub(super) fn destroy_chunk(
        &mut self,
        memory: &dyn VirtualMemory<B::Ptr>,
        position: u64,
    ) -> DriverResult<()> {
        let Some(Chunk { pages, at }) = self.chunks.remove(&position) else { return Ok(()) };
        // SAFETY: It is one whole mapping; whoever gives it back has claimed all of it in the books, seen that all work is over
        // that used it, and taken it away from all strips.
        match unsafe { memory.unmap(at, pages.len) } {
            Ok(()) => destroy(memory, pages),
            Err(error) => {
                self.chunks.insert(position, Chunk { pages, at });
                return Err(error);
            }
        }
        Ok(())
    }
}

fn taken_out<P, K: PartialEq>(spaces: &mut Vec<Space<P, K>>, key: K) -> Option<Space<P, K>> {
    let place = spaces.iter().position(|space| space.key == key)?;
    Some(spaces.swap_remove(place))
}

fn len_of(chunks: &[(u64, u64)]) -> NonZeroU64 {
    NonZeroU64::new(chunks.iter().map(|(_, len)| len).sum()).unwrap_or(NonZeroU64::MIN)
}

fn destroy<P: DevicePtr>(memory: &dyn VirtualMemory<P>, pages: Pages) {
    // SAFETY: They are of one `create`, mapped nowhere, and owned here.
    unsafe { memory.destroy(pages) }
}
