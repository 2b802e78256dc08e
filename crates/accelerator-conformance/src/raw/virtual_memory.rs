//! Address space and memory, managed separately.
#![allow(unsafe_code)] // the backend's own methods

use std::num::NonZeroU64;

use accelerator_core::{Backend, Pages, Place, VirtualMemory};

use super::memory::goes_back;
use super::rig::{Rig, Span, length};
use crate::calls::Call;
use crate::outcome::{Failure, Outcome};
use crate::progress;

/// The calls of a driver's virtual memory, all for one page or for places that are counted in pages. After a failure,
/// what is mapped stays mapped.
pub(super) struct Mapper<'a, B: Backend> {
    rig: &'a Rig<'a, B>,
    memory: &'a dyn VirtualMemory<B::Ptr>,
    page: NonZeroU64,
}

impl<'a, B: Backend> Mapper<'a, B> {
    /// Returns `None` if the driver has no virtual memory.
    pub(super) fn of(rig: &'a Rig<'a, B>) -> Option<Self> {
        let memory = rig.backend.virtual_memory()?;
        Some(Self { rig, memory, page: memory.granularity() })
    }

    /// Reserves room for so many pages.
    pub(super) fn reserve(&self, pages: u64) -> Result<Span<B::Ptr>, Failure> {
        let len = self.page.saturating_mul(length(pages));
        let start = self.rig.call(Call::Reserve, || self.memory.reserve(len))?;
        Ok(Span { place: Place::Device(start), len: len.get() })
    }

    pub(super) fn release(&self, reserved: Span<B::Ptr>) {
        let _inside = progress::inside(Call::Release);
        // SAFETY: It comes from `reserve`, and the cases unmap what they mapped there before they release it, once.
        unsafe { self.memory.release(reserved.device(), length(reserved.len)) };
    }

    pub(super) fn create(&self) -> Result<Pages, Failure> {
        self.rig.call(Call::Create, || self.memory.create(self.page))
    }

    pub(super) fn destroy(&self, pages: Pages) {
        let _inside = progress::inside(Call::Destroy);
        // SAFETY: The cases unmap pages before they destroy them.
        unsafe { self.memory.destroy(pages) };
    }

    /// Maps a page into a reservation.
    pub(super) fn map(&self, reserved: Span<B::Ptr>, place: u64, pages: &Pages) -> Result<Span<B::Ptr>, Failure> {
        let page = reserved.part(place * self.page.get(), self.page.get());
        // SAFETY: The place is in a reservation, and the cases map nothing over something else.
        self.rig.call(Call::Map, || unsafe { self.memory.map(page.device(), pages) })?;
        Ok(page)
    }

    pub(super) fn unmap(&self, reserved: Span<B::Ptr>, place: u64) -> Outcome {
        let page = reserved.part(place * self.page.get(), self.page.get());
        // SAFETY: It is one whole mapping, and the cases wait for the work that uses it.
        self.rig.call(Call::Unmap, || unsafe { self.memory.unmap(page.device(), self.page) })
    }
}

/// The places in a reservation at which pages are mapped, counted in pages, with gaps and not in order.
const PLACES: [u64; 4] = [5, 0, 1, 3];
const RESERVED: u64 = 8;

pub(super) fn mapped_memory_is_memory<B: Backend>(rig: &Rig<B>) -> Outcome {
    let Some(mapper) = Mapper::of(rig) else {
        return Err("`virtual_memory` is not offered any more".into());
    };
    let Mapper { memory, page, .. } = mapper;
    let stream = rig.stream()?;
    rig.step(&"`create`, `reserve` and `map` accept all multiples of `granularity`");
    if !page.get().is_multiple_of(512) {
        return Err(format!("`granularity` is {page}, not a multiple of 512").into());
    }
    let reserved = mapper.reserve(RESERVED)?;
    let mut pages = Vec::new();
    for (number, place) in PLACES.into_iter().enumerate() {
        let page = mapper.create()?;
        let span = mapper.map(reserved, place, &page)?;
        rig.fill(span, number as u8 + 1, &stream)?;
        pages.push((place, page, span));
    }
    rig.step(&"`map` puts memory at the address it is given, and each has bytes of its own");
    for (number, (_, _, span)) in pages.iter().enumerate() {
        rig.holds(*span, number as u8 + 1, &stream, "`map` put memory at another address")?;
    }
    rig.step(&"`unmap` removes a mapping, after which `map` puts other memory there");
    let other = mapper.create()?;
    let (place, page, _) = pages.remove(0);
    mapper.unmap(reserved, place)?;
    let span = mapper.map(reserved, place, &other)?;
    rig.fill(span, 9, &stream)?;
    let elsewhere = mapper.map(reserved, 7, &page)?;
    rig.fill(elsewhere, 8, &stream)?;
    rig.holds(span, 9, &stream, "`unmap` left a mapping: memory mapped there later shares bytes with it")?;
    rig.holds(elsewhere, 8, &stream, "`unmap` left a mapping: its memory shares bytes with what came after it")?;
    for ((_, _, span), value) in pages.iter().zip(2..) {
        rig.holds(*span, value, &stream, "`unmap` changed the bytes of another mapping")?;
    }
    if memory.maps_twice() {
        rig.step(&"`maps_twice` says that `map` accepts memory that is mapped already");
        let alias = mapper.map(reserved, 6, &other)?;
        rig.fill(alias, 10, &stream)?;
        let sentence = "`maps_twice` says yes, but a write at one address is not seen at the other";
        rig.holds(span, 10, &stream, sentence)?;
        rig.fill(span, 11, &stream)?;
        rig.holds(alias, 11, &stream, sentence)?;
        mapper.unmap(reserved, 6)?;
        rig.holds(span, 11, &stream, "`unmap` of one address took the memory from the other")?;
    }
    for (place, page) in pages.into_iter().map(|(place, page, _)| (place, page)).chain([(place, other), (7, page)]) {
        mapper.unmap(reserved, place)?;
        mapper.destroy(page);
    }
    mapper.release(reserved);
    destroyed_memory_goes_back(rig, memory)
}

fn destroyed_memory_goes_back<B: Backend>(rig: &Rig<B>, memory: &dyn VirtualMemory<B::Ptr>) -> Outcome {
    rig.step(&"`destroy` gives memory back to the device");
    let (page, total) = (memory.granularity(), rig.backend.properties().total_memory);
    let len = NonZeroU64::new((total / 4).next_multiple_of(page.get())).unwrap_or(page);
    goes_back(["create", "destroy"], len.get(), 10, || {
        // SAFETY: It is mapped nowhere.
        memory.create(len).map(|pages| unsafe { memory.destroy(pages) })
    })
}
