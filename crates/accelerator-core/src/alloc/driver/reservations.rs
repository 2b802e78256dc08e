//! The memory of expandable segments: address space, and the pages mapped there.
#![allow(unsafe_code)] // `VirtualMemory`

use std::num::NonZeroU64;
use std::ops::Range;

use super::{AddressSpace, create_all, destroy};
use crate::alloc::blocks::{Base, PageRange, SegmentId};
use crate::backend::DriverResult;
use crate::virtual_memory::Pages;

/// The reservations of one stream. Locked for as long as the driver maps or unmaps there: only who needs new memory, or gives
/// memory back, waits for that.
#[derive(Debug, Default)]
pub(crate) struct Reservations(Vec<Reservation>);

/// Address space, and the pages mapped there.
#[derive(Debug)]
struct Reservation {
    segment: SegmentId,
    at: Base,
    len: NonZeroU64,
    page: NonZeroU64,
    /// Those that are mapped, by their place.
    pages: Vec<Option<Pages>>,
}

impl Reservations {
    /// Takes address space from the driver for a segment that the arena has not taken in yet: its number comes from
    /// `enter`.
    pub(crate) fn reserve(
        &mut self,
        driver: &dyn AddressSpace,
        len: NonZeroU64,
        page: NonZeroU64,
        enter: impl FnOnce(Base) -> SegmentId,
    ) -> DriverResult<()> {
        let at = driver.reserve(len)?;
        self.0.push(Reservation { segment: enter(at), at, len, page, pages: Vec::new() });
        Ok(())
    }

    /// Gives the address space of a segment back that was removed, since nothing is mapped there.
    pub(crate) fn release(&mut self, driver: &dyn AddressSpace, segment: SegmentId) {
        if let Some(place) = self.0.iter().position(|reservation| reservation.segment == segment) {
            let Reservation { at, len, .. } = self.0.swap_remove(place);
            // SAFETY: It is of one `reserve`, and no longer in the list. Whoever removed the segment has seen that nothing is mapped.
            unsafe { driver.release(at, len) }
        }
    }

    /// Maps the pages of the range: how many bytes, from the first on. With an error that is 0, unless the driver would not
    /// take back what it had mapped before it.
    pub(crate) fn map(&mut self, driver: &dyn AddressSpace, range: PageRange) -> (u64, DriverResult<()>) {
        let (reservation, places) = self.of(range);
        let (pages, result) = reservation.map(driver, places);
        (pages as u64 * reservation.page.get(), result)
    }

    /// Unmaps the pages of the range, from the first on: how many bytes, up to a page that the driver would not unmap.
    pub(crate) fn unmap(&mut self, driver: &dyn AddressSpace, range: PageRange) -> (u64, DriverResult<()>) {
        let (reservation, places) = self.of(range);
        let (pages, result) = reservation.unmap(driver, places);
        (pages as u64 * reservation.page.get(), result)
    }

    /// The reservation of a range, and the places of its pages there.
    fn of(&mut self, range: PageRange) -> (&mut Reservation, Range<usize>) {
        let reservation = self.0.iter_mut().find(|reservation| reservation.segment == range.segment);
        let Some(reservation) = reservation else { unreachable!("segments that expand have reservations") };
        let page = reservation.page.get();
        let (from, to) = (range.offset / page, (range.offset + range.len) / page);
        (reservation, from as usize..to as usize)
    }
}

impl Reservation {
    /// How many of the places have a page now, from the first on.
    fn map(&mut self, driver: &dyn AddressSpace, places: Range<usize>) -> (usize, DriverResult<()>) {
        if self.pages.len() < places.end {
            self.pages.resize_with(places.end, || None);
        }
        let created = match create_all(driver, places.clone().map(|_| self.page)) {
            Ok(created) => created,
            Err(error) => return (0, Err(error)),
        };
        let mut result = Ok(());
        let mut created = created.into_iter();
        let mut mapped = places.start;
        while result.is_ok()
            && let Some(pages) = created.next()
        {
            // SAFETY: The place is one page of the reservation, and nothing is mapped there.
            result = unsafe { driver.map(self.at, self.offset(mapped), &pages) };
            match result {
                Ok(()) => self.pages[mapped] = Some(pages),
                Err(_) => destroy(driver, pages),
            }
            mapped += usize::from(result.is_ok());
        }
        created.for_each(|pages| destroy(driver, pages));
        if result.is_err() {
            while mapped > places.start && self.unmap_page(driver, mapped - 1).is_ok() {
                mapped -= 1;
            }
        }
        (mapped - places.start, result)
    }

    /// How many of the places have no page any more, from the first on.
    fn unmap(&mut self, driver: &dyn AddressSpace, places: Range<usize>) -> (usize, DriverResult<()>) {
        for place in places.clone() {
            if let Err(error) = self.unmap_page(driver, place) {
                return (place - places.start, Err(error));
            }
        }
        (places.len(), Ok(()))
    }

    fn unmap_page(&mut self, driver: &dyn AddressSpace, place: usize) -> DriverResult<()> {
        let Some(pages) = self.pages[place].take() else { return Ok(()) };
        // SAFETY: It is a mapping of its own of one page; whoever unmaps has removed the page from the arena and waited for all work
        // that was submitted before, or has never taken it in.
        match unsafe { driver.unmap(self.at, self.offset(place), pages.len) } {
            Ok(()) => destroy(driver, pages),
            Err(error) => {
                self.pages[place] = Some(pages);
                return Err(error);
            }
        }
        Ok(())
    }

    fn offset(&self, place: usize) -> u64 {
        place as u64 * self.page.get()
    }
}
