//! The state of virtual memory: what is reserved, created and mapped.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use accelerator_core::{DevicePtr, Pages};

/// Reservations, memory and mappings. Each method rejects what the contract of
/// [`VirtualMemory`](accelerator_core::VirtualMemory) does not allow. It then returns the reason and changes nothing.
#[derive(Debug)]
pub(crate) struct Mappings<P> {
    /// By address.
    reserved: BTreeMap<u64, Range<P>>,
    /// By handle.
    created: HashMap<u64, Created>,
    /// Ranges and handles, by address.
    mapped: BTreeMap<u64, (Range<P>, u64)>,
}

/// A range of bytes in physical memory, independent of where it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalRange {
    /// The handle of the memory, or its address if it was allocated with one.
    pub memory: u64,
    /// The start of the range, in bytes from the start of the memory.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
}

/// A start and a length in bytes.
pub(crate) type Range<P> = (P, NonZeroU64);

/// Why a call is not allowed.
pub(crate) type Misuse = &'static str;

#[derive(Debug)]
struct Created {
    len: NonZeroU64,
    /// The number of addresses at which it is mapped.
    mappings: u64,
}

impl<P: DevicePtr> Mappings<P> {
    pub(crate) fn new() -> Self {
        Self { reserved: BTreeMap::new(), created: HashMap::new(), mapped: BTreeMap::new() }
    }

    pub(crate) fn reserve(&mut self, at: P, len: NonZeroU64) {
        self.reserved.insert(at.trace_address(), (at, len));
    }

    pub(crate) fn release(&mut self, at: P, len: NonZeroU64) -> Result<(), Misuse> {
        let at = at.trace_address();
        if self.reserved.get(&at).is_none_or(|(_, reserved)| *reserved != len) {
            return Err("the range is not reserved");
        }
        self.nothing_mapped(at, len)?;
        self.reserved.remove(&at);
        Ok(())
    }

    pub(crate) fn create(&mut self, pages: &Pages) {
        self.created.insert(pages.handle, Created { len: pages.len, mappings: 0 });
    }

    pub(crate) fn destroy(&mut self, pages: &Pages) -> Result<(), Misuse> {
        if self.created(pages)?.mappings > 0 {
            return Err("the memory is mapped");
        }
        self.created.remove(&pages.handle);
        Ok(())
    }

    pub(crate) fn map(&mut self, at: P, pages: &Pages, granularity: NonZeroU64) -> Result<(), Misuse> {
        let (start, len) = (at.trace_address(), pages.len.get());
        let reservation = self.reserved.range(..=start).next_back();
        let distance = reservation
            .map(|(reserved, (_, whole))| (start - reserved, whole.get()))
            .filter(|(distance, whole)| distance.checked_add(len).is_some_and(|end| end <= *whole));
        let Some((distance, _)) = distance else { return Err("the range is not within one reservation") };
        if !distance.is_multiple_of(granularity.get()) {
            return Err("the range is not aligned");
        }
        self.nothing_mapped(start, pages.len)?;
        self.created(pages)?.mappings += 1;
        self.mapped.insert(start, ((at, pages.len), pages.handle));
        Ok(())
    }

    /// Whether the memory is mapped anywhere.
    pub(crate) fn is_mapped(&self, pages: &Pages) -> bool {
        self.created.get(&pages.handle).is_some_and(|created| created.mappings > 0)
    }

    /// Returns the memory mapped at an address, from that address to the end of its mapping.
    pub(crate) fn at(&self, address: u64) -> Option<PhysicalRange> {
        let (start, ((_, mapped), handle)) = self.mapped.range(..=address).next_back()?;
        let offset = address - start;
        let len = mapped.get().checked_sub(offset).filter(|len| *len > 0)?;
        Some(PhysicalRange { memory: *handle, offset, len })
    }

    /// Whether the range is exactly one mapping.
    pub(crate) fn is_mapping(&self, at: P, len: NonZeroU64) -> bool {
        self.mapped.get(&at.trace_address()).is_some_and(|((_, mapped), _)| *mapped == len)
    }

    pub(crate) fn unmap(&mut self, at: P, len: NonZeroU64) -> Result<(), Misuse> {
        let whole = self.is_mapping(at, len).then(|| self.mapped.remove(&at.trace_address())).flatten();
        let Some((_, handle)) = whole else { return Err("the range is not exactly one mapping") };
        if let Some(created) = self.created.get_mut(&handle) {
            created.mappings -= 1;
        }
        Ok(())
    }

    pub(crate) fn all_reserved(&self) -> Vec<Range<P>> {
        self.reserved.values().copied().collect()
    }

    pub(crate) fn all_created(&self) -> Vec<Pages> {
        self.created.iter().map(|(handle, created)| Pages::new(*handle, created.len)).collect()
    }

    pub(crate) fn all_mapped(&self) -> Vec<Range<P>> {
        self.mapped.values().map(|(range, _)| *range).collect()
    }

    fn created(&mut self, pages: &Pages) -> Result<&mut Created, Misuse> {
        let created = self.created.get_mut(&pages.handle);
        created.filter(|created| created.len == pages.len).ok_or("there is no such memory")
    }

    fn nothing_mapped(&self, at: u64, len: NonZeroU64) -> Result<(), Misuse> {
        let last = self.mapped.range(..at.saturating_add(len.get())).next_back();
        let end = last.map_or(0, |(start, ((_, mapped), _))| start + mapped.get());
        if end > at { Err("something is mapped in the range") } else { Ok(()) }
    }
}
