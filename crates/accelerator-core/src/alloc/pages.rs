//! The memory of expandable segments: the only calls that reserve address space, and map pages into it.
#![allow(unsafe_code)] // `VirtualMemory`

use std::num::NonZeroU64;
use std::ops::Range;

use super::block::SegmentId;
use super::expandable::PageRange;
use crate::backend::{DevicePtr, DriverResult};
use crate::virtual_memory::{Pages, VirtualMemory};

/// The reservations of one stream. Locked for as long as the driver maps or unmaps there: only who needs new memory, or gives
/// memory back, waits for that.
#[derive(Debug)]
pub(super) struct Reservations<P>(Vec<Reservation<P>>);

/// Address space, and the pages mapped there.
#[derive(Debug)]
struct Reservation<P> {
    segment: SegmentId,
    at: P,
    len: NonZeroU64,
    page: NonZeroU64,
    /// Those that are mapped, by their place.
    pages: Vec<Option<Pages>>,
}

impl<P: DevicePtr> Reservations<P> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes address space from the driver for a segment that is not in the books yet: the number that it has there comes from
    /// `enter`.
    pub(super) fn reserve(
        &mut self,
        memory: &dyn VirtualMemory<P>,
        len: NonZeroU64,
        page: NonZeroU64,
        enter: impl FnOnce(P) -> SegmentId,
    ) -> DriverResult<()> {
        let at = memory.reserve(len)?;
        self.0.push(Reservation { segment: enter(at), at, len, page, pages: Vec::new() });
        Ok(())
    }

    /// Gives address space back that is in no book any more, since nothing is mapped there.
    pub(super) fn release(&mut self, memory: &dyn VirtualMemory<P>, segment: SegmentId) {
        if let Some(place) = self.0.iter().position(|reservation| reservation.segment == segment) {
            let Reservation { at, len, .. } = self.0.swap_remove(place);
            // SAFETY: It is of one `reserve`, and no longer in the list. What is mapped is in the books.
            unsafe { memory.release(at, len) }
        }
    }

    /// Maps the pages of the range: how many bytes, from the first on. With an error that is 0, unless the driver would not
    /// take back what it had mapped before it.
    pub(super) fn map(&mut self, memory: &dyn VirtualMemory<P>, range: PageRange) -> (u64, DriverResult<()>) {
        let (reservation, places) = self.of(range);
        let (pages, result) = reservation.map(memory, places);
        (pages as u64 * reservation.page.get(), result)
    }

    /// Unmaps the pages of the range, from the first on: how many bytes, up to a page that the driver would not unmap.
    pub(super) fn unmap(
        &mut self,
        memory: &dyn VirtualMemory<P>,
        range: PageRange,
    ) -> (u64, DriverResult<()>) {
        let (reservation, places) = self.of(range);
        let (pages, result) = reservation.unmap(memory, places);
        (pages as u64 * reservation.page.get(), result)
    }

    /// The reservation of a range, and the places of its pages there.
    fn of(&mut self, range: PageRange) -> (&mut Reservation<P>, Range<usize>) {
        let reservation = self.0.iter_mut().find(|reservation| reservation.segment == range.segment);
        let Some(reservation) = reservation else { unreachable!("segments that expand have reservations") };
        let page = reservation.page.get();
        let (from, to) = (range.offset / page, (range.offset + range.len) / page);
        (reservation, from as usize..to as usize)
    }
}

impl<P: DevicePtr> Reservation<P> {
    /// How many of the places have a page now, from the first on.
    fn map(&mut self, memory: &dyn VirtualMemory<P>, places: Range<usize>) -> (usize, DriverResult<()>) {
        if self.pages.len() < places.end {
            self.pages.resize_with(places.end, || None);
        }
        // All are created before one is mapped, as in PyTorch: the rule is that memory has run out, and that is told sooner so.
        let mut created = Vec::with_capacity(places.len());
        let mut result = Ok(());
        while result.is_ok() && created.len() < places.len() {
            result = memory.create(self.page).map(|pages| created.push(pages));
        }
        let mut created = created.into_iter();
        let mut mapped = places.start;
        while result.is_ok()
            && let Some(pages) = created.next()
        {
            // SAFETY: The place is one page of the reservation, and nothing is mapped there.
            result = unsafe { memory.map(self.address(mapped), &pages) };
            match result {
                Ok(()) => self.pages[mapped] = Some(pages),
                Err(_) => destroy(memory, pages),
            }
            mapped += usize::from(result.is_ok());
        }
        created.for_each(|pages| destroy(memory, pages));
        if result.is_err() {
            while mapped > places.start && self.unmap_page(memory, mapped - 1).is_ok() {
                mapped -= 1;
            }
        }
        (mapped - places.start, result)
    }

    /// How many of the places have no page any more, from the first on.
    fn unmap(&mut self, memory: &dyn VirtualMemory<P>, places: Range<usize>) -> (usize, DriverResult<()>) {
        for place in places.clone() {
            if let Err(error) = self.unmap_page(memory, place) {
                return (place - places.start, Err(error));
            }
        }
        (places.len(), Ok(()))
    }

    fn unmap_page(&mut self, memory: &dyn VirtualMemory<P>, place: usize) -> DriverResult<()> {
        let Some(pages) = self.pages[place].take() else { return Ok(()) };
        // SAFETY: It is a mapping of its own of one page; whoever unmaps has taken the page out of the books and waited for all
        // work that was submitted before, or has never entered it.
        match unsafe { memory.unmap(self.address(place), pages.len) } {
            Ok(()) => destroy(memory, pages),
            Err(error) => {
                self.pages[place] = Some(pages);
                return Err(error);
            }
        }
        Ok(())
    }

    fn address(&self, place: usize) -> P {
        self.at.offset(place as u64 * self.page.get())
    }
}

fn destroy<P: DevicePtr>(memory: &dyn VirtualMemory<P>, pages: Pages) {
    // SAFETY: They are of one `create`, mapped nowhere, and owned here.
    unsafe { memory.destroy(pages) }
}
