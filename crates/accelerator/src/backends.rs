//! The backends of this build, in order of preference.
//!
//! A new backend needs a line in the list at the end, and a feature and an optional dependency in `Cargo.toml`.

#[allow(dead_code, reason = "used only in a build without backends")]
mod none;

use std::sync::atomic::{AtomicU32, Ordering};

use accelerator_core::{
    Accelerator, Backend, Buffer, DeviceKind, Event, Graph, MemPool, PinnedBuffer, Result, Unavailable,
};

/// A backend of this build, as an index into [`ENTRIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BuiltIn(usize);

/// The counts that [`BuiltIn::known_count`] returns, by index.
static KNOWN_COUNTS: [AtomicU32; ENTRIES.len()] = [const { AtomicU32::new(0) }; ENTRIES.len()];

/// The functions of a backend that need no open device.
pub(crate) struct Entry {
    kind: DeviceKind,
    probe: fn() -> Result<u32, Unavailable>,
    open: fn(u32) -> Result<AnyDevice>,
    opened: fn(u32) -> Option<AnyDevice>,
}

impl BuiltIn {
    /// Returns all backends, in order of preference.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..ENTRIES.len()).map(Self)
    }

    /// Returns the backend with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().find(|backend| backend.kind().name() == name)
    }

    pub(crate) fn at(place: usize) -> Option<Self> {
        (place < ENTRIES.len()).then_some(Self(place))
    }

    #[inline]
    pub(crate) fn place(self) -> usize {
        self.0
    }

    pub(crate) fn kind(self) -> DeviceKind {
        ENTRIES[self.0].kind
    }

    /// Returns the number of its devices, or the reason why there are none.
    pub(crate) fn probe(self) -> Result<u32, Unavailable> {
        match (ENTRIES[self.0].probe)() {
            Ok(0) => Err(Unavailable::new("there is no device")),
            Ok(count) => {
                KNOWN_COUNTS[self.0].store(count, Ordering::Relaxed);
                Ok(count)
            }
            unavailable => unavailable,
        }
    }

    /// The number of its devices when the driver was last asked; 0 before that. Asking a driver takes time.
    pub(crate) fn known_count(self) -> u32 {
        KNOWN_COUNTS[self.0].load(Ordering::Relaxed)
    }

    pub(crate) fn count(self) -> u32 {
        self.probe().unwrap_or(0)
    }

    /// Opens a device with the settings from the environment. `memory::open` also applies settings made by the program.
    pub(crate) fn open(self, index: u32) -> Result<AnyDevice> {
        (ENTRIES[self.0].open)(index)
    }

    /// Returns a device if it is open.
    pub(crate) fn opened(self, index: u32) -> Option<AnyDevice> {
        (ENTRIES[self.0].opened)(index)
    }

    /// Returns all open devices.
    pub(crate) fn all_opened(self) -> impl Iterator<Item = AnyDevice> {
        (0..self.count()).filter_map(move |index| self.opened(index))
    }
}

impl Entry {
    #[allow(dead_code, reason = "unused in a build without backends")]
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

type OpenedDevice<B> = &'static Accelerator<B>;

/// Defines an enum with a variant for each backend, which contains the core's type for that backend.
macro_rules! any {
    ($(#[$attribute:meta])* $Any:ident of $Typed:ident: $( #[$cfg:meta] $Variant:ident($Backend:path); )*) => {
        $(#[$attribute])*
        pub(crate) enum $Any {
            $( #[$cfg] $Variant($Typed<$Backend>), )*
        }

        $(
            #[$cfg]
            impl From<$Typed<$Backend>> for $Any {
                fn from(typed: $Typed<$Backend>) -> Self {
                    Self::$Variant(typed)
                }
            }
        )*
    };
}

/// Defines the enums, and the macro that matches on them. `$dollar` is `$`, for the parameters of that macro.
macro_rules! variants {
    ($dollar:tt $( #[$cfg:meta] $Variant:ident($Backend:path); )*) => {
        any! {
            /// An open device of any backend of this build.
            #[derive(Clone, Copy)]
            AnyDevice of OpenedDevice: $( #[$cfg] $Variant($Backend); )*
        }
        /// The backends in the order of [`ENTRIES`].
        enum Place {
            $( #[$cfg] $Variant, )*
        }

        impl AnyDevice {
            /// Returns its backend.
            #[inline]
            pub(crate) fn backend(self) -> BuiltIn {
                let place = match self {
                    $( #[$cfg] Self::$Variant(_) => Place::$Variant, )*
                };
                BuiltIn(place as usize)
            }
        }
        any! {
            /// An event of any backend of this build.
            AnyEvent of Event: $( #[$cfg] $Variant($Backend); )*
        }
        any! {
            /// A buffer of any backend of this build.
            AnyBuffer of Buffer: $( #[$cfg] $Variant($Backend); )*
        }
        any! {
            /// A pinned buffer of any backend of this build.
            AnyPinned of PinnedBuffer: $( #[$cfg] $Variant($Backend); )*
        }
        any! {
            /// A memory pool of any backend of this build.
            AnyMemPool of MemPool: $( #[$cfg] $Variant($Backend); )*
        }
        any! {
            /// A graph of any backend of this build.
            AnyGraph of Graph: $( #[$cfg] $Variant($Backend); )*
        }

        /// Calls a method of the core's type for any backend: `dispatch!(AnyBuffer, self.any, ref buffer =>
        /// buffer.len())`.
        macro_rules! dispatch {
            ($dollar Any:ident, $dollar any:expr, $dollar typed:pat => $dollar body:expr) => {
                match $dollar any {
                    $(
                        #[$cfg]
                        $dollar Any::$Variant($dollar typed) => $dollar body,
                    )*
                }
            };
        }
        pub(crate) use dispatch;
    };
}

macro_rules! backends {
    ($dollar:tt $( #[cfg(feature = $feature:tt)] $name:ident: $package:ident::$Backend:ident; )*) => {
        /// The crates of the backends, under the names of the backends.
        pub(crate) mod crates {
            $(
                #[cfg(feature = $feature)]
                #[doc(no_inline)]
                pub use $package as $name;
            )*
        }

        variants! {
            $dollar
            #[cfg(not(any($(feature = $feature),*)))] NoBackend(none::NoBackend);
            $( #[cfg(feature = $feature)] $Backend($package::$Backend); )*
        }

        pub(crate) const ENTRIES: &[Entry] = &[
            $(
                #[cfg(feature = $feature)]
                Entry::of::<$package::$Backend>(),
            )*
        ];
    };
}

backends! { $
    #[cfg(feature = "cuda-without-version")] cuda: accelerator_cuda::Cuda;
    #[cfg(feature = "xpu")] xpu: accelerator_xpu::Xpu;
    #[cfg(feature = "opencl")] opencl: accelerator_opencl::OpenCl;
    #[cfg(feature = "vulkan")] vulkan: accelerator_vulkan::Vulkan;
    #[cfg(feature = "host")] host: accelerator_host::Host;
}
