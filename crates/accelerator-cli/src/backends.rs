//! The backends in this build of `accel`.
//!
//! A new backend needs a name in [`Choice`] and an implementation of `Offered`.

use accelerator_conformance::{AnyBackend, Controls, Faulty, Plan, Sim, Suite};
use accelerator_core::{Backend, Device, DriverResult, Error, GIB, Result};
use accelerator_cuda::Cuda;
use accelerator_host::Host;
use accelerator_opencl::OpenCl;
use accelerator_vulkan::Vulkan;
use accelerator_xpu::Xpu;
use clap::ValueEnum;

use crate::kernels::{Saxpy, cuda_saxpy, host_saxpy, opencl_saxpy, vulkan_saxpy, xpu_saxpy};

/// A backend by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Choice {
    /// The first NVIDIA GPU, in the order of `CUDA_VISIBLE_DEVICES`
    Cuda,
    /// The first Intel GPU, in the loader's order
    Xpu,
    /// The first OpenCL device, in the order of `ACCELERATOR_OPENCL_DEVICES`
    OpenCl,
    /// The first Vulkan device, in the order of `ACCELERATOR_VULKAN_DEVICES`
    Vulkan,
    /// The host's memory, reserved but not touched
    Host,
    /// A simulated device with addresses but no memory
    Sim,
}

/// The default memory size of the host and simulated devices. Replays touch none of it.
const CAPACITY: u64 = 16 * GIB;

/// The work of a command on a backend. Where possible, the work continues in code that is compiled once for all
/// backends: with an [`Opener`](accelerator_conformance::Opener), cases, or a device of type `Replayed`.
pub(crate) trait Job {
    type Outcome;

    fn with<B: Offered>(self) -> Self::Outcome;
}

/// What the commands need from a backend.
pub(crate) trait Offered: Backend {
    /// The driver on which traces are replayed. All backends except the simulated one share one type.
    type Replayed: Controls;

    /// Opens the first device, limited to `capacity` bytes if one was given.
    fn replayed(capacity: Option<u64>) -> Result<Self::Replayed>;

    /// A kernel for `verify`, if the backend has kernels.
    const SAXPY: Option<Saxpy<AnyBackend>>;

    /// The conformance suite, with the known limitations of the drivers.
    fn suite() -> Suite<Self> {
        Suite::new(Self::KIND.name())
    }
}

impl Choice {
    pub(crate) fn run<J: Job>(self, job: J) -> J::Outcome {
        match self {
            Self::Cuda => job.with::<Cuda>(),
            Self::Xpu => job.with::<Xpu>(),
            Self::OpenCl => job.with::<OpenCl>(),
            Self::Vulkan => job.with::<Vulkan>(),
            Self::Host => job.with::<Host>(),
            Self::Sim => job.with::<Sim>(),
        }
    }

    /// Returns the trials of the backend's conformance suite.
    pub fn conformance(self) -> Plan {
        struct Conformance;

        impl Job for Conformance {
            type Outcome = Plan;

            fn with<B: Offered>(self) -> Plan {
                B::suite().plan()
            }
        }

        self.run(Conformance)
    }
}

impl Offered for Cuda {
    type Replayed = Faulty<AnyBackend>;
    const SAXPY: Option<Saxpy<AnyBackend>> = Some(cuda_saxpy);

    fn replayed(capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
        first::<Self>(capacity)
    }
}

impl Offered for Xpu {
    type Replayed = Faulty<AnyBackend>;
    const SAXPY: Option<Saxpy<AnyBackend>> = Some(xpu_saxpy);

    fn replayed(capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
        first::<Self>(capacity)
    }
}

impl Offered for OpenCl {
    type Replayed = Faulty<AnyBackend>;
    const SAXPY: Option<Saxpy<AnyBackend>> = Some(opencl_saxpy);

    fn replayed(capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
        opened(|| match capacity {
            Some(_) => Self::with_capacity(0, capacity),
            None => Self::open(0), // the environment may set a capacity
        })
    }
}

impl Offered for Vulkan {
    type Replayed = Faulty<AnyBackend>;
    const SAXPY: Option<Saxpy<AnyBackend>> = Some(vulkan_saxpy);

    fn replayed(capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
        opened(|| match capacity {
            Some(_) => Self::with_capacity(0, capacity),
            None => Self::open(0), // the environment may set a capacity
        })
    }
}

impl Offered for Host {
    type Replayed = Faulty<AnyBackend>;
    const SAXPY: Option<Saxpy<AnyBackend>> = Some(host_saxpy);

    fn replayed(capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
        Ok(Faulty::new(AnyBackend::new(Self::new(0, capacity.unwrap_or(CAPACITY)))))
    }
}

impl Offered for Sim {
    type Replayed = Self;
    const SAXPY: Option<Saxpy<AnyBackend>> = None;

    fn replayed(capacity: Option<u64>) -> Result<Self> {
        Ok(Self::new(capacity.unwrap_or(CAPACITY)))
    }

    fn suite() -> Suite<Self> {
        Self::suite()
    }
}

/// Opens the first device, limited to `capacity` bytes if one was given.
fn first<B: Backend>(capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
    let opened = opened(|| B::open(0))?;
    Ok(match capacity {
        Some(capacity) => opened.with_memory(capacity),
        None => opened,
    })
}

fn opened<B: Backend>(open: impl FnOnce() -> DriverResult<B>) -> Result<Faulty<AnyBackend>> {
    B::probe().map_err(|why| Error::no_accelerator(B::KIND, &why))?;
    let device = Device { kind: B::KIND, index: 0 };
    let opened = open().map_err(|source| Error::Driver { device, source })?;
    Ok(Faulty::new(AnyBackend::new(opened)))
}
