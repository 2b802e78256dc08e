//! Memory for trials of graphs, and what graphs do with it.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use accelerator_conformance::unavailable;
use accelerator_core::{Backend, CaptureMode, DriverResult, EventFlags, ExecutableGraph, Graphs, Place, StreamKind};
use accelerator_opencl::{OpenCl, OpenClEvent, OpenClPtr, OpenClStream};
use libtest_mimic::{Completion, Trial};

use crate::rig::{Outcome, bytes};

pub(crate) const LEN: u64 = 50_000;

pub(crate) type Graph = Box<dyn ExecutableGraph<OpenCl>>;

/// Three places in device memory, a place to read from and one to write to.
pub(crate) struct Memory {
    pub(crate) x: OpenClPtr,
    pub(crate) y: OpenClPtr,
    pub(crate) z: OpenClPtr,
    pub(crate) input: NonNull<u8>,
    pub(crate) output: NonNull<u8>,
    pub(crate) backend: OpenCl,
}

/// Creates a trial with memory and two streams. It is ignored without graphs, or fails if `ACCELERATOR_REQUIRE` lists
/// `opencl-graphs`.
pub(crate) fn with(name: &str, run: fn(&Memory, &OpenClStream, &OpenClStream) -> Outcome) -> Trial {
    Trial::ignorable_test(name, move || {
        if let Err(why) = OpenCl::probe() {
            return Ok(Completion::ignored_with(unavailable(OpenCl::KIND.name(), &why.reason)?));
        }
        let backend = OpenCl::with_capacity(0, None)?;
        if backend.graphs().is_none() {
            let why = "the device has no cl_khr_command_buffer";
            return Ok(Completion::ignored_with(unavailable("opencl-graphs", why)?));
        }
        let [x, y, z] = [backend.alloc(bytes(LEN))?, backend.alloc(bytes(LEN))?, backend.alloc(bytes(LEN))?];
        let (input, output) = (backend.alloc_host(bytes(LEN))?, backend.alloc_host(bytes(LEN))?);
        let memory = Memory { x, y, z, input, output, backend };
        let stream = memory.backend.stream(StreamKind::Default)?;
        let side = memory.backend.stream(StreamKind::Side { priority: 0 })?;
        run(&memory, &stream, &side)?;
        for ptr in [x, y, z] {
            // SAFETY: It was allocated with this length, and its work is done.
            unsafe { memory.backend.dealloc(ptr, bytes(LEN)) };
        }
        for start in [input, output] {
            memory.backend.synchronize(&stream)?;
            memory.backend.synchronize(&side)?;
            // SAFETY: As above.
            unsafe { memory.backend.dealloc_host(start, bytes(LEN)) };
        }
        let info = memory.backend.memory_info()?;
        assert_eq!(info.free, info.total);
        Ok(Completion::Completed)
    })
}

impl Memory {
    pub(crate) fn copy(&self, to: Place<OpenClPtr>, from: Place<OpenClPtr>, stream: &OpenClStream) -> DriverResult<()> {
        // SAFETY: All places have that many bytes, and live as long as the backend.
        unsafe { self.backend.copy(to, from, bytes(LEN), stream) }
    }

    pub(crate) fn move_on(&self, to: OpenClPtr, from: OpenClPtr, stream: &OpenClStream) -> DriverResult<()> {
        self.copy(Place::Device(to), Place::Device(from), stream)
    }

    pub(crate) fn read_in(&self, to: OpenClPtr, stream: &OpenClStream) -> DriverResult<()> {
        self.copy(Place::Device(to), Place::Host(self.input), stream)
    }

    pub(crate) fn write_out(&self, from: OpenClPtr, stream: &OpenClStream) -> DriverResult<()> {
        self.copy(Place::Host(self.output), Place::Device(from), stream)
    }

    pub(crate) fn fill(&self, at: OpenClPtr, value: u8, stream: &OpenClStream) -> DriverResult<()> {
        // SAFETY: As for `copy`.
        unsafe { self.backend.fill(at, value, bytes(LEN), stream) }
    }

    /// Sets all of the input. No work that reads it is pending.
    pub(crate) fn set(&self, value: u8) {
        // SAFETY: It has so many bytes.
        unsafe { self.input.write_bytes(value, LEN as usize) };
    }

    /// Waits for the stream, and checks that all bytes of the output have this value.
    #[track_caller]
    pub(crate) fn expect(&self, value: u8, stream: &OpenClStream) {
        self.backend.synchronize(stream).unwrap();
        // SAFETY: It has so many bytes, and all work is done.
        let all = unsafe { std::slice::from_raw_parts(self.output.as_ptr(), LEN as usize) };
        assert_eq!(all.iter().find(|found| **found != value), None, "instead of {value}");
    }

    pub(crate) fn begin(&self, stream: &OpenClStream) -> DriverResult<&dyn Graphs<OpenCl>> {
        let graphs = self.backend.graphs().unwrap();
        graphs.begin(stream, CaptureMode::default()).map(|()| graphs)
    }

    pub(crate) fn recorded(&self, stream: &OpenClStream) -> DriverResult<OpenClEvent> {
        let event = self.backend.event(EventFlags::default())?;
        self.backend.record(&event, stream).map(|()| event)
    }

    /// Makes the first stream wait for the second.
    pub(crate) fn wait(&self, stream: &OpenClStream, other: &OpenClStream) -> DriverResult<()> {
        self.backend.wait(stream, &self.recorded(other)?)
    }
}

pub(crate) fn launch(graph: &Graph, stream: &OpenClStream) -> DriverResult<()> {
    // SAFETY: The memory of the captured work lives until the streams are done.
    unsafe { graph.launch(stream) }
}
