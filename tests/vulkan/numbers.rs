//! Numbers on the device, and what graphs do with them.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use accelerator_core::{Backend, CaptureMode, DriverResult, EventFlags, ExecutableGraph, Graphs, Place, StreamKind};
use accelerator_vulkan::{Kernel, Vulkan, VulkanEvent, VulkanPtr, VulkanStream};
use libtest_mimic::Failed;

use crate::kernels::code;
use crate::rig::{Outcome, bytes};

pub(crate) const ELEMENTS: u32 = 50_000;
pub(crate) const LEN: u64 = ELEMENTS as u64 * 4;

pub(crate) type Launched = Box<dyn ExecutableGraph<Vulkan>>;

/// Three places in device memory, a place to read from and one to write to, and a kernel.
pub(crate) struct Numbers {
    pub(crate) x: VulkanPtr,
    pub(crate) y: VulkanPtr,
    pub(crate) z: VulkanPtr,
    pub(crate) input: NonNull<u8>,
    pub(crate) output: NonNull<u8>,
    pub(crate) kernel: Option<Kernel>,
    /// Comes last, since it frees what is left.
    pub(crate) backend: Vulkan,
}

/// Calls `f` with numbers and two streams.
pub(crate) fn with(f: impl FnOnce(&mut Numbers, &VulkanStream, &VulkanStream) -> Outcome) -> Outcome {
    let mut numbers = Numbers::on(Vulkan::with_capacity(0, None)?)?;
    let stream = numbers.backend.stream(StreamKind::Default)?;
    let side = numbers.backend.stream(StreamKind::Side { priority: 0 })?;
    f(&mut numbers, &stream, &side)
}

impl Numbers {
    pub(crate) fn on(backend: Vulkan) -> Result<Self, Failed> {
        let [x, y, z] = [backend.alloc(bytes(LEN))?, backend.alloc(bytes(LEN))?, backend.alloc(bytes(LEN))?];
        let (input, output) = (backend.alloc_host(bytes(LEN))?, backend.alloc_host(bytes(LEN))?);
        // SAFETY: The code is valid, and the shader has these buffers and values.
        let kernel = Some(unsafe { backend.kernel(&code()?, c"main", 2, 8) }?);
        Ok(Self { x, y, z, input, output, kernel, backend })
    }

    pub(crate) fn copy(&self, to: Place<VulkanPtr>, from: Place<VulkanPtr>, stream: &VulkanStream) -> DriverResult<()> {
        // SAFETY: All places have that many bytes, and live as long as the backend.
        unsafe { self.backend.copy(to, from, bytes(LEN), stream) }
    }

    pub(crate) fn read_in(&self, to: VulkanPtr, stream: &VulkanStream) -> DriverResult<()> {
        self.copy(Place::Device(to), Place::Host(self.input), stream)
    }

    pub(crate) fn write_out(&self, from: VulkanPtr, stream: &VulkanStream) -> DriverResult<()> {
        self.copy(Place::Host(self.output), Place::Device(from), stream)
    }

    pub(crate) fn fill(&self, at: VulkanPtr, value: u8, stream: &VulkanStream) -> DriverResult<()> {
        // SAFETY: As for `copy`.
        unsafe { self.backend.fill(at, value, bytes(LEN), stream) }
    }

    /// Adds `a * x` to `y`.
    pub(crate) fn saxpy(&self, a: f32, [x, y]: [VulkanPtr; 2], stream: &VulkanStream) -> DriverResult<()> {
        let constants = [a.to_ne_bytes(), ELEMENTS.to_ne_bytes()].concat();
        let kernel = self.kernel.as_ref().unwrap();
        // SAFETY: The arguments are those of the shader, which stays within the memory.
        unsafe { kernel.launch_native(stream, [8, 1, 1], &[(x, LEN), (y, LEN)], &constants) }
    }

    /// Sets all of the input. No work that reads it is pending.
    pub(crate) fn set(&self, value: f32) {
        // SAFETY: It has so many elements, and is aligned to at least 64 bytes.
        unsafe { std::slice::from_raw_parts_mut(self.input.cast().as_ptr(), ELEMENTS as usize) }.fill(value);
    }

    /// Waits for the stream, and checks that all numbers of the output have this value.
    #[track_caller]
    pub(crate) fn expect(&self, value: f32, stream: &VulkanStream) {
        self.backend.synchronize(stream).unwrap();
        // SAFETY: As for `set`, and all work is done.
        let all: &[f32] = unsafe { std::slice::from_raw_parts(self.output.cast().as_ptr(), ELEMENTS as usize) };
        assert_eq!(all.iter().find(|found| **found != value), None, "instead of {value}");
    }

    pub(crate) fn begin(&self, stream: &VulkanStream) -> DriverResult<&dyn Graphs<Vulkan>> {
        let graphs = self.backend.graphs().unwrap();
        graphs.begin(stream, CaptureMode::default()).map(|()| graphs)
    }

    pub(crate) fn recorded(&self, stream: &VulkanStream) -> DriverResult<VulkanEvent> {
        let event = self.backend.event(EventFlags::default())?;
        self.backend.record(&event, stream).map(|()| event)
    }

    /// Makes the first stream wait for the second.
    pub(crate) fn wait(&self, stream: &VulkanStream, other: &VulkanStream) -> DriverResult<()> {
        self.backend.wait(stream, &self.recorded(other)?)
    }
}

pub(crate) fn launch(graph: &Launched, stream: &VulkanStream) -> DriverResult<()> {
    // SAFETY: The memory of the captured work lives as long as the backend, whose drop waits for it.
    unsafe { graph.launch(stream) }
}
