//! The backends of this build, in the order of preference.
//!
//! To add one: a line in the list at the end, a feature and an optional dependency in `Cargo.toml`.

use std::any::Any;
use std::ops::Range;

// What the dispatched traits speak of must be in scope here, where `enum_dispatch` implements them.
use accelerator_core::{
    Accelerator, AllocatorConfig, Backend, Buffer, Device, DeviceKind, DeviceProperties, Event, EventFlags,
    History, HookId, HostStatistics, MemoryInfo, OutOfMemory, PinnedBuffer, Recording, Result, Snapshot,
    Statistics, StreamId, Unavailable,
};
use enum_dispatch::enum_dispatch;

use crate::dispatch::{
    AllocatorDispatch, BufferDispatch, DeviceDispatch, EventDispatch, NoBackend, PinnedDispatch,
};
use crate::stream::Stream;

/// A backend of this build: its place in [`ENTRIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BuiltIn(usize);

/// What can be asked of a backend before one of its devices is opened.
pub(crate) struct Entry {
    kind: DeviceKind,
    probe: fn() -> Result<u32, Unavailable>,
    open: fn(u32) -> Result<AnyDevice>,
    opened: fn(u32) -> Option<AnyDevice>,
}

impl BuiltIn {
    /// All, the most preferred first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..ENTRIES.len()).map(Self)
    }

    /// The one with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().find(|backend| backend.kind().name() == name)
    }

    pub(crate) fn at(place: usize) -> Option<Self> {
        (place < ENTRIES.len()).then_some(Self(place))
    }

    pub(crate) fn place(self) -> usize {
        self.0
    }

    pub(crate) fn kind(self) -> DeviceKind {
        ENTRIES[self.0].kind
    }

    /// How many devices it has, or why none.
    pub(crate) fn probe(self) -> Result<u32, Unavailable> {
        match (ENTRIES[self.0].probe)() {
            Ok(0) => Err(Unavailable { reason: "there is no device".to_owned() }),
            probed => probed,
        }
    }

    pub(crate) fn count(self) -> u32 {
        self.probe().unwrap_or(0)
    }

    /// Opens a device as the environment says; `memory::settings::open` also applies the settings of the process.
    pub(crate) fn open(self, index: u32) -> Result<AnyDevice> {
        (ENTRIES[self.0].open)(index)
    }

    /// A device if it was opened before.
    pub(crate) fn opened(self, index: u32) -> Option<AnyDevice> {
        (ENTRIES[self.0].opened)(index)
    }

    /// All devices that were opened.
    pub(crate) fn all_opened(self) -> impl Iterator<Item = AnyDevice> {
        (0..self.count()).filter_map(move |index| self.opened(index))
    }
}

impl Entry {
    #[allow(dead_code, reason = "a build without backends lists none")]
    const fn of<B: Backend>() -> Self
    where
        &'static Accelerator<B>: Into<AnyDevice>,
    {
        Self {
            kind: B::KIND,
            probe: B::probe,
            open: |index| Accelerator::<B>::open(index).map(Into::into),
            opened: |index| Accelerator::<B>::opened(index).map(Into::into),
        }
    }
}

macro_rules! backends {
    ($( #[cfg(feature = $feature:tt)] $name:ident: $package:ident::$Backend:ident; )*) => {
        /// The crates of the backends, each under its name.
        pub(crate) mod crates {
            $(
                #[cfg(feature = $feature)]
                #[doc(no_inline)]
                pub use $package as $name;
            )*
        }

        /// An opened device of any backend of this build.
        #[enum_dispatch(DeviceDispatch, AllocatorDispatch)]
        #[derive(Clone, Copy)]
        pub(crate) enum AnyDevice {
            NoBackend(&'static Accelerator<NoBackend>),
            $(
                #[cfg(feature = $feature)]
                $Backend(&'static Accelerator<$package::$Backend>),
            )*
        }

        /// An event of any backend of this build.
        #[enum_dispatch(EventDispatch)]
        pub(crate) enum AnyEvent {
            NoBackend(Event<NoBackend>),
            $(
                #[cfg(feature = $feature)]
                $Backend(Event<$package::$Backend>),
            )*
        }

        /// A buffer of any backend of this build.
        #[enum_dispatch(BufferDispatch)]
        pub(crate) enum AnyBuffer {
            NoBackend(Buffer<NoBackend>),
            $(
                #[cfg(feature = $feature)]
                $Backend(Buffer<$package::$Backend>),
            )*
        }

        /// Pinned host memory for any backend of this build.
        #[enum_dispatch(PinnedDispatch)]
        pub(crate) enum AnyPinned {
            NoBackend(PinnedBuffer<NoBackend>),
            $(
                #[cfg(feature = $feature)]
                $Backend(PinnedBuffer<$package::$Backend>),
            )*
        }

        pub(crate) const ENTRIES: &[Entry] = &[
            $(
                #[cfg(feature = $feature)]
                Entry::of::<$package::$Backend>(),
            )*
        ];
    };
}

backends! {
    #[cfg(feature = "cuda-without-version")] cuda: accelerator_cuda::Cuda;
    #[cfg(feature = "xpu")] xpu: accelerator_xpu::Xpu;
    #[cfg(feature = "opencl")] opencl: accelerator_opencl::OpenCl;
    #[cfg(feature = "host")] host: accelerator_host::Host;
}
