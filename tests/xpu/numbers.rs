//! Memory for trials of graphs: numbers that commands and kernels copy and add.
#![allow(unsafe_code)] // uses the backend's memory, and launches graphs

use std::slice;

use accelerator_core::{Backend, CaptureMode, DriverResult, EventFlags, ExecutableGraph, Graphs, Place, StreamKind};
use accelerator_xpu::{Kernel, Xpu, XpuEvent, XpuPtr, XpuStream};
use libtest_mimic::Failed;

use crate::control;
use crate::native::SPIRV;
use crate::rig::Outcome;
use crate::whole::{self, LEN, Memory, Pinned};

pub(crate) type Graph = Box<dyn ExecutableGraph<Xpu>>;

/// Memory full of one number: three buffers of a device, and input and output in pinned memory.
pub(crate) struct Numbers<'a> {
    pub(crate) device: &'a Xpu,
    pub(crate) x: Memory<'a>,
    pub(crate) y: Memory<'a>,
    pub(crate) z: Memory<'a>,
    input: Pinned<'a>,
    output: Pinned<'a>,
    pub(crate) kernel: Option<Kernel>,
}

const COUNT: usize = LEN.get() as usize / 4;

impl<'a> Numbers<'a> {
    pub(crate) fn of(device: &'a Xpu) -> Result<Self, Failed> {
        // SAFETY: The example's kernel, which is valid.
        let kernel = unsafe { device.module(SPIRV, c"") }?.kernel(c"saxpy")?;
        let [x, y, z] = [Memory::of(device)?, Memory::of(device)?, Memory::of(device)?];
        let (input, output) = (Pinned::of(device)?, Pinned::of(device)?);
        // SAFETY: It is that long, and nothing uses it yet.
        unsafe { output.1.write_bytes(0, LEN.get() as usize) };
        Ok(Self { device, x, y, z, input, output, kernel: Some(kernel) })
    }

    /// Sets the input. No work may be using it.
    pub(crate) fn set(&self, value: f32) {
        // SAFETY: It is that long, and trials wait for the work that uses it.
        unsafe { slice::from_raw_parts_mut(self.input.1.as_ptr().cast(), COUNT) }.fill(value);
    }

    /// Waits for the stream, and returns the output.
    pub(crate) fn output(&self, stream: &XpuStream) -> DriverResult<f32> {
        self.device.synchronize(stream)?;
        // SAFETY: It is that long and initialised, and its copies are done.
        let all: &[f32] = unsafe { slice::from_raw_parts(self.output.1.as_ptr().cast(), COUNT) };
        assert!(all.iter().all(|number| number.to_bits() == all[0].to_bits()), "only a part was written");
        Ok(all[0])
    }

    pub(crate) fn read_in(&self, to: &Memory<'_>, stream: &XpuStream) -> DriverResult<()> {
        whole::copy(self.device, Place::Device(to.1), Place::Host(self.input.1), stream)
    }

    pub(crate) fn write_out(&self, from: &Memory<'_>, stream: &XpuStream) -> DriverResult<()> {
        whole::copy(self.device, Place::Host(self.output.1), Place::Device(from.1), stream)
    }

    pub(crate) fn copy(&self, to: &Memory<'_>, from: &Memory<'_>, stream: &XpuStream) -> DriverResult<()> {
        whole::copy(self.device, Place::Device(to.1), Place::Device(from.1), stream)
    }

    /// y = a x + y
    pub(crate) fn saxpy(&mut self, a: f32, [x, y]: [XpuPtr; 2], stream: &XpuStream) -> DriverResult<()> {
        let address = |at: XpuPtr| at.native().expose_provenance().to_ne_bytes().to_vec();
        let n = (COUNT as u32).to_ne_bytes().to_vec();
        let kernel = self.kernel.as_mut().unwrap();
        let arguments = [n, a.to_ne_bytes().to_vec(), address(x), address(y)];
        // SAFETY: The arguments match the kernel, and the buffers have that many elements.
        unsafe { kernel.launch_native(stream, [COUNT as u32 / 256, 1, 1], [256, 1, 1], &arguments) }
    }

    /// The next two Fibonacci numbers, in x and y.
    pub(crate) fn fibonacci(&mut self, stream: &XpuStream) -> DriverResult<()> {
        let (x, y) = (self.x.1, self.y.1);
        self.saxpy(1.0, [x, y], stream)?;
        self.saxpy(1.0, [y, x], stream)
    }
}

pub(crate) fn begin<'a>(device: &'a Xpu, stream: &XpuStream) -> DriverResult<&'a dyn Graphs<Xpu>> {
    let graphs = device.graphs().unwrap();
    graphs.begin(stream, CaptureMode::default())?;
    Ok(graphs)
}

pub(crate) fn launch(graph: &Graph, stream: &XpuStream) -> DriverResult<()> {
    // SAFETY: Trials keep the memory until the streams have done the work.
    unsafe { graph.launch(stream) }
}

pub(crate) fn recorded(device: &Xpu, stream: &XpuStream) -> DriverResult<XpuEvent> {
    let event = device.event(EventFlags::default())?;
    device.record(&event, stream)?;
    Ok(event)
}

/// Runs a trial on a device with two streams. Afterwards nothing is left.
pub(crate) fn with(trial: impl FnOnce(&mut Numbers<'_>, &XpuStream, &XpuStream) -> Outcome) -> Outcome {
    let device = Xpu::open(0)?;
    on(&device, trial)?;
    drop(device);
    assert_eq!(control::live(), []);
    Ok(())
}

fn on(device: &Xpu, trial: impl FnOnce(&mut Numbers<'_>, &XpuStream, &XpuStream) -> Outcome) -> Outcome {
    let mut numbers = Numbers::of(device)?;
    let (stream, side) = (device.stream(StreamKind::Default)?, device.stream(StreamKind::Side { priority: -1 })?);
    trial(&mut numbers, &stream, &side)
}
