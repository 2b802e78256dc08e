//! The backends in this build of `accel`.
//!
//! A new one needs a name in [`Choice`] and an implementation of `Offered`.

use accelerator_conformance::{AnyBackend, Controls, Faulty, Plan, Sim, Suite};
use accelerator_core::{Backend, Device, DriverResult, Error, GIB, Result};
use accelerator_cuda::Cuda;
use accelerator_host::Host;
use accelerator_opencl::OpenCl;
use accelerator_xpu::Xpu;
use clap::ValueEnum;

use crate::kernels::{Saxpy, cuda_saxpy, host_saxpy, opencl_saxpy, xpu_saxpy};

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
    /// The host: real memory, reserved but not touched
    Host,
    /// A simulated device: addresses only
    Sim,
}

/// The memory of devices whose memory can be chosen. Replays touch none of it.
const CAPACITY: u64 = 16 * GIB;

/// What a command does with a backend. Where possible, it continues with code that is compiled once for all backends:
/// an [`Opener`](accelerator_conformance::Opener), cases, a device of type `Replayed`.
pub(crate) trait Job {
    type Outcome;

    fn with<B: Offered>(self) -> Self::Outcome;
}

/// A backend as the commands need it.
pub(crate) trait Offered: Backend {
    /// The driver on which traces are replayed. All backends that are not simulated share one type.
    type Replayed: Controls;

    /// Opens the first device, to hand out at most `capacity` bytes. `None`: no capacity was given.
    fn replayed(capacity: Option<u64>) -> Result<Self::Replayed>;

    /// A kernel to try. `None`: the backend has none.
    const SAXPY: Option<Saxpy<AnyBackend>>;

    /// The conformance suite, with what is known of the drivers.
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
            Self::Host => job.with::<Host>(),
            Self::Sim => job.with::<Sim>(),
        }
    }

    /// The trials of its conformance suite.
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
            None => Self::open(0), // as the environment says
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

/// The first device, of which at most `capacity` bytes are handed out.
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
