//! The driver's single state.

use std::collections::{BTreeMap, BTreeSet};

use sim_engine::{Engine, Face, Fault, Kernel, Lock, Position, Times, Wrong};

pub(crate) use sim_engine::Handle;

use crate::capture::Capture;
use crate::code::Code;
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::graph::{Executable, Graph};
use crate::interprocess::Named;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::thread;

const FIRST_HANDLE: Handle = 0x00c0_da00_0000_0000;

/// The driver, locked by the calling thread.
pub(crate) type Session = sim_engine::Session<Driver>;

pub(crate) struct Driver {
    /// Its lanes are the streams.
    pub(crate) engine: Engine<Driver>,
    pub(crate) settings: Settings,
    pub(crate) initialised: bool,
    /// The devices visible to the process.
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) events: BTreeMap<Handle, Event>,
    /// Memory of other processes that is open, by address, each with how often it was opened.
    pub(crate) opened: BTreeMap<u64, (Named, u32)>,
    /// Physical memory that can be exported.
    pub(crate) exportable: BTreeSet<u64>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// Kernels by module. An unloaded module has no entry.
    pub(crate) modules: BTreeMap<Handle, Vec<Kernel>>,
    /// The module and the kernel of each function.
    pub(crate) functions: BTreeMap<Handle, (Handle, Kernel)>,
    /// Includes those that captures in progress build.
    pub(crate) graphs: BTreeMap<Handle, Graph>,
    pub(crate) executables: BTreeMap<Handle, Executable>,
}

impl Driver {
    fn new() -> Self {
        let mut settings = Settings::from_environment();
        Self {
            engine: Engine::new(&mut settings.common, FIRST_HANDLE),
            settings,
            initialised: false,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            events: BTreeMap::new(),
            opened: BTreeMap::new(),
            exportable: BTreeSet::new(),
            captures: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            graphs: BTreeMap::new(),
            executables: BTreeMap::new(),
        }
    }
}

pub(crate) static LOCK: Lock<Driver> = Lock::new(Driver::new);

impl Face for Driver {
    type Code = Code;
    type Lane = Stream;
    /// The event that was recorded.
    type Mark = Handle;

    const PREFIX: &'static str = "CUDA_SIM_";

    fn lock() -> &'static Lock<Self> {
        &LOCK
    }

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Self> {
        &mut self.engine
    }

    fn may_reach(&self, device: usize, other: usize) -> bool {
        let context = self.primary_context(device).and_then(|context| self.contexts.get(&context));
        context.is_some_and(|context| context.peers.contains(&other))
    }

    fn reached(&mut self, at: Position, event: Handle, times: Times) {
        if let Some(event) = self.events.get_mut(&event).filter(|event| event.recorded == Some(at)) {
            event.time = Some(times.ended);
        }
    }

    fn failed(&mut self, at: Position, fault: &Fault) {
        let Some(context) = self.engine.lanes.get(&at.lane).map(|stream| stream.data.context) else { return };
        let code = match fault.wrong {
            Wrong::IllegalAddress => Code::ILLEGAL_ADDRESS,
            Wrong::Misaligned => Code::MISALIGNED_ADDRESS,
        };
        self.fail_context(context, code);
    }

    fn injected(&mut self, code: Code) {
        if code.is_sticky() {
            self.fail_context(thread::current(), code);
        }
    }
}
