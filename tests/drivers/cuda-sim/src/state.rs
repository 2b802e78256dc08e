//! The one state of the driver, and the lock around it.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::capture::Capture;
use crate::context::Context;
use crate::device::Device;
use crate::device_memory::DeviceMemory;
use crate::event::Event;
use crate::faults::Faults;
use crate::host_memory::HostMemory;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::virtual_memory::VirtualMemory;

/// What programs hold instead of contexts, streams, events, modules, functions and graphs: never given out
/// twice, and no address of anything.
pub(crate) type Handle = usize;

const FIRST_HANDLE: Handle = 0x00c0_da00_0000_0000;

pub(crate) struct Driver {
    pub(crate) settings: Settings,
    pub(crate) initialised: bool,
    pub(crate) random: Random,
    /// Virtual nanoseconds: work takes time, waiting does not.
    pub(crate) clock: u64,
    pub(crate) faults: Faults,
    /// Copies between devices of which the one that ran them could not reach both.
    pub(crate) staged_copies: u64,
    /// What no correct program does, in words.
    pub(crate) violations: Vec<String>,
    /// Those that the process may see.
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) streams: BTreeMap<Handle, Stream>,
    pub(crate) events: BTreeMap<Handle, Event>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// Kernels by the module that holds them; a module that is gone has no entry.
    pub(crate) modules: BTreeMap<Handle, Vec<Kernel>>,
    /// Functions: their module and their kernel.
    pub(crate) functions: BTreeMap<Handle, (Handle, Kernel)>,
    pub(crate) graphs: Vec<Handle>,
    pub(crate) memory: DeviceMemory,
    pub(crate) virtual_memory: VirtualMemory,
    pub(crate) host: HostMemory,
    next_handle: Handle,
}

impl Driver {
    fn new() -> Self {
        let mut settings = Settings::from_environment();
        let mut faults = Faults::default();
        let planned = settings.failures.drain(..).chain(settings.failure_at.take());
        planned.for_each(|planned| faults.plan(planned));
        Self {
            initialised: false,
            random: Random::new(settings.seed),
            clock: 0,
            faults,
            staged_copies: 0,
            violations: Vec::new(),
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            graphs: Vec::new(),
            memory: DeviceMemory::default(),
            virtual_memory: VirtualMemory::default(),
            host: HostMemory::new(settings.host_memory),
            next_handle: FIRST_HANDLE,
            settings,
        }
    }

    pub(crate) fn new_handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        self.next_handle
    }
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));
/// Told when work finishes on another thread than the one that started it.
static FINISHED: Condvar = Condvar::new();

/// The driver, locked by the calling thread.
pub(crate) struct Session {
    /// Absent only inside [`Session::wait_for_others`].
    guard: Option<MutexGuard<'static, Driver>>,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self { guard: Some(DRIVER.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Gives up the lock until a host function has returned.
    pub(crate) fn wait_for_others(&mut self) {
        let guard = self.guard.take();
        self.guard = guard.map(|guard| FINISHED.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn tell_others(&self) {
        FINISHED.notify_all();
    }
}

impl Deref for Session {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the lock is back when waiting ends"),
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Driver {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the lock is back when waiting ends"),
        }
    }
}
