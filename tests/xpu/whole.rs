//! Everything that the backend can do, without the core, so that the program may drop the backend. Afterwards nothing
//! is left.
#![allow(unsafe_code)] // calls the backend's methods, and uses its memory

use std::num::NonZeroU64;
use std::ptr::{self, NonNull};

use accelerator_core::{
    Backend, CaptureMode, DevicePtr, DriverError, DriverErrorKind, DriverResult, EventFlags, KIB, Pages, Place,
    StreamKind, VirtualMemory,
};
use accelerator_xpu::{Xpu, XpuEvent, XpuPtr, XpuStream, sys};

use crate::native::SPIRV;
use crate::raw::{self, ze};

pub(crate) const LEN: NonZeroU64 = NonZeroU64::new(64 * KIB).unwrap();

/// Memory of a device, freed when it is dropped.
pub(crate) struct Memory<'a>(&'a Xpu, pub(crate) XpuPtr);

impl<'a> Memory<'a> {
    pub(crate) fn of(device: &'a Xpu) -> DriverResult<Self> {
        Ok(Self(device, device.alloc(LEN)?))
    }

    pub(crate) fn fill(&self, value: u8, stream: &XpuStream) -> DriverResult<()> {
        // SAFETY: The memory is that long.
        unsafe { self.0.fill(self.1, value, LEN, stream) }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: Allocated by `of`, and freed once.
        unsafe { self.0.dealloc(self.1, LEN) };
    }
}

/// Pinned memory, freed when it is dropped, which happens after the streams that use it.
pub(crate) struct Pinned<'a>(&'a Xpu, pub(crate) NonNull<u8>);

impl<'a> Pinned<'a> {
    pub(crate) fn of(device: &'a Xpu) -> DriverResult<Self> {
        Ok(Self(device, device.alloc_host(LEN)?))
    }

    fn first_byte(&self) -> u8 {
        // SAFETY: It is initialised, and its copies were waited for.
        unsafe { self.1.read() }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: Allocated by `of`, and freed once, after the streams are gone.
        unsafe { self.0.dealloc_host(self.1, LEN) };
    }
}

/// Mapped pages, released when they are dropped.
struct Mapped<'a> {
    memory: &'a dyn VirtualMemory<XpuPtr>,
    at: XpuPtr,
    pages: Option<Pages>,
    is_mapped: bool,
}

impl<'a> Mapped<'a> {
    fn of(memory: &'a dyn VirtualMemory<XpuPtr>) -> DriverResult<Self> {
        let len = memory.granularity();
        let mut mapped = Self { memory, at: memory.reserve(len)?, pages: None, is_mapped: false };
        let pages = mapped.pages.insert(memory.create(len)?);
        // SAFETY: The range is a separate reservation.
        unsafe { memory.map(mapped.at, pages) }?;
        mapped.is_mapped = true;
        Ok(mapped)
    }

    fn unmap(&mut self) -> DriverResult<()> {
        // SAFETY: One whole mapping, which nothing uses any more.
        unsafe { self.memory.unmap(self.at, self.memory.granularity()) }?;
        self.is_mapped = false;
        Ok(())
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        if self.is_mapped && self.unmap().is_err() {
            let _ = self.unmap();
        }
        if let Some(pages) = self.pages.take() {
            // SAFETY: Created by `of`, and not mapped.
            unsafe { self.memory.destroy(pages) };
        }
        // SAFETY: Reserved by `of`, and nothing is mapped there.
        unsafe { self.memory.release(self.at, self.memory.granularity()) };
    }
}

/// Another library's list, destroyed when it is dropped.
struct Foreign<'a>(&'a Xpu, sys::ze_command_list_handle_t);

impl Drop for Foreign<'_> {
    fn drop(&mut self) {
        let destroy = || ze!(self.0, zeCommandListDestroy(self.1));
        let _ = destroy().or_else(|_| destroy());
    }
}

/// Opens two devices, uses everything of both, and drops everything. The results are checked on the way.
pub(crate) fn everything() -> DriverResult<()> {
    let (first, second) = (Xpu::open(0)?, Xpu::open(1)?);
    for device in [&first, &second] {
        device.memory_info()?;
    }
    bytes(&first)?;
    events(&first)?;
    peers(&first, &second)?;
    kernel(&first)?;
    adopted(&first)?;
    graph(&first)?;
    match first.virtual_memory() {
        Some(memory) => mapped(&first, memory),
        None => Ok(()), // one of its calls failed when the device was opened
    }
}

pub(crate) fn copy(device: &Xpu, to: Place<XpuPtr>, from: Place<XpuPtr>, stream: &XpuStream) -> DriverResult<()> {
    // SAFETY: All memory here is that long, and lives until the streams are gone.
    unsafe { device.copy(to, from, LEN, stream) }
}

fn bytes(device: &Xpu) -> DriverResult<()> {
    let (memory, other) = (Memory::of(device)?, Memory::of(device)?);
    let (source, target) = (Pinned::of(device)?, Pinned::of(device)?);
    // SAFETY: It is that long, and nothing else uses it.
    unsafe { source.1.write_bytes(7, LEN.get() as usize) };
    let stream = device.stream(StreamKind::Side { priority: -1 })?;
    memory.fill(1, &stream)?;
    copy(device, Place::Device(memory.1), Place::Host(source.1), &stream)?;
    copy(device, Place::Device(other.1), Place::Device(memory.1), &stream)?;
    memory.fill(2, &stream)?;
    copy(device, Place::Host(target.1), Place::Device(other.1), &stream)?;
    device.is_idle(&stream)?;
    device.synchronize(&stream)?;
    assert_eq!(target.first_byte(), 7);
    Ok(())
}

fn events(device: &Xpu) -> DriverResult<()> {
    let memory = Memory::of(device)?;
    let target = Pinned::of(device)?;
    let (one, other) = (device.stream(StreamKind::Default)?, device.stream(StreamKind::Side { priority: 1 })?);
    let timed = |_| device.event(EventFlags::TIMING);
    let (start, end) = (timed(0)?, timed(1)?);
    let event = device.event(EventFlags::default())?;
    for value in 0..3 {
        device.record(&start, &one)?;
        memory.fill(value, &one)?;
        device.record(&end, &one)?;
        device.record(&event, &one)?;
        device.wait(&other, &event)?;
        copy(device, Place::Host(target.1), Place::Device(memory.1), &other)?;
        device.record(&event, &other)?;
        device.wait(&one, &event)?;
    }
    device.is_complete(&event)?;
    device.wait_host(&event)?;
    assert_eq!(target.first_byte(), 2);
    assert!(device.elapsed_ns(&start, &end)? > 0);
    Ok(())
}

fn peers(first: &Xpu, second: &Xpu) -> DriverResult<()> {
    let (from, to) = (Memory::of(first)?, Memory::of(second)?);
    let target = Pinned::of(second)?;
    let (source_stream, stream) = (first.stream(StreamKind::Default)?, second.stream(StreamKind::Default)?);
    let written: XpuEvent = first.event(EventFlags::default())?;
    from.fill(9, &source_stream)?;
    first.record(&written, &source_stream)?;
    let none = DriverError::refused(DriverErrorKind::Unsupported, "peer_copies", "none");
    let copies = second.peer_copies().ok_or(none)?;
    copies.wait(&stream, &written)?;
    // SAFETY: Both are that long, and live until the streams are gone.
    unsafe { copies.copy_from(to.1, first, from.1, LEN, &stream) }?;
    copy(second, Place::Host(target.1), Place::Device(to.1), &stream)?;
    second.synchronize(&stream)?;
    assert_eq!(target.first_byte(), 9);
    Ok(())
}

/// y = 2 x + y, with equal x and y.
fn kernel(device: &Xpu) -> DriverResult<()> {
    // SAFETY: Not SPIR-V, which the simulated compiler refuses with a log.
    drop(unsafe { device.module(b"no module", c"") });
    // SAFETY: The example's kernel, which is valid.
    let module = unsafe { device.module(SPIRV, c"") }.map_err(|error| error.source)?;
    let kernel = module.kernel(c"saxpy")?;
    let memory = Memory::of(device)?;
    let target = Pinned::of(device)?;
    let stream = device.stream(StreamKind::Default)?;
    memory.fill(0, &stream)?;
    let (n, a, address) = (100_u32, 2.0_f32, memory.1.native());
    let values: [(usize, *const std::ffi::c_void); 4] = [
        (4, (&raw const n).cast()),
        (4, (&raw const a).cast()),
        (8, (&raw const address).cast()),
        (8, (&raw const address).cast()),
    ];
    for (place, (size, value)) in (0..).zip(values) {
        ze!(device, zeKernelSetArgumentValue(kernel.native(), place, size, value))?;
    }
    ze!(device, zeKernelSetGroupSize(kernel.native(), 100, 1, 1))?;
    let groups = sys::ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    stream.submit(|list| {
        let none = ptr::null_mut();
        ze!(device, zeCommandListAppendLaunchKernel(list, kernel.native(), &groups, none, 0, ptr::null_mut()))
    })?;
    copy(device, Place::Host(target.1), Place::Device(memory.1), &stream)?;
    device.synchronize(&stream)?;
    assert_eq!(target.first_byte(), 0);
    Ok(())
}

fn adopted(device: &Xpu) -> DriverResult<()> {
    let memory = Memory::of(device)?;
    let target = Pinned::of(device)?;
    let foreign = Foreign(device, raw::list(device)?);
    // SAFETY: The list lives longer, and nothing else uses it meanwhile.
    let stream = unsafe { device.adopt(foreign.1) }?;
    memory.fill(1, &stream)?;
    raw::fill(device, foreign.1, memory.1.native(), 2, LEN.get() as usize)?;
    copy(device, Place::Host(target.1), Place::Device(memory.1), &stream)?;
    device.synchronize(&stream)?;
    assert_eq!(target.first_byte(), 2);
    Ok(())
}

fn graph(device: &Xpu) -> DriverResult<()> {
    let memory = Memory::of(device)?;
    let target = Pinned::of(device)?;
    let stream = device.stream(StreamKind::Default)?;
    let none = DriverError::refused(DriverErrorKind::Unsupported, "graphs", "none");
    let graphs = device.graphs().ok_or(none)?;
    graphs.begin(&stream, CaptureMode::default())?;
    let filled = memory.fill(3, &stream);
    let copied = copy(device, Place::Host(target.1), Place::Device(memory.1), &stream);
    let graph = graphs.end(&stream)?;
    filled.and(copied)?;
    for _ in 0..2 {
        memory.fill(1, &stream)?;
        // SAFETY: The memory lives until the stream is gone.
        unsafe { graph.launch(&stream) }?;
    }
    device.synchronize(&stream)?;
    assert_eq!(target.first_byte(), 3);
    Ok(())
}

fn mapped(device: &Xpu, memory: &dyn VirtualMemory<XpuPtr>) -> DriverResult<()> {
    memory.maps_twice(); // false if a call of it fails
    let mut mapped = Mapped::of(memory)?;
    let target = Pinned::of(device)?;
    let stream = device.stream(StreamKind::Default)?;
    let end = mapped.at.offset(memory.granularity().get() - LEN.get());
    // SAFETY: That much is mapped there.
    unsafe { device.fill(end, 5, LEN, &stream) }?;
    copy(device, Place::Host(target.1), Place::Device(end), &stream)?;
    device.synchronize(&stream)?;
    assert_eq!(target.first_byte(), 5);
    mapped.unmap()
}
