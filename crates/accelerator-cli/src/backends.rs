//! The backends that `accel` is built with.
//!
//! To add one: a name in [`Choice`] and an implementation of `Offered`.

use accelerator::host::Host;
use accelerator::opencl::OpenCl;
use accelerator_conformance::{Controls, Faulty, Plan, Sim, Suite};
use accelerator_core::{Backend, Device, Error, GIB, Result};
use clap::ValueEnum;

/// A backend by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Choice {
    /// The first OpenCL device, in the order of `ACCELERATOR_OPENCL_DEVICES`
    OpenCl,
    /// The host: real memory, reserved but not touched
    Host,
    /// A simulated device: addresses only
    Sim,
}

/// Memory of devices that have as much as they are told: replays touch none of it.
const CAPACITY: u64 = 16 * GIB;

/// What a command does with a backend.
pub(crate) trait Job {
    type Outcome;

    fn with<B: Offered>(self) -> Self::Outcome;
}

/// A backend as the commands need it.
pub(crate) trait Offered: Backend {
    /// The driver that traces are replayed on.
    type Replayed: Controls;

    /// Opens the first device, to hand out at most `capacity` bytes; `None`: nobody has said how many.
    fn replayed(capacity: Option<u64>) -> Result<Self::Replayed>;

    /// The conformance suite, with what is known of the drivers.
    fn suite() -> Suite<Self> {
        Suite::new(Self::KIND.name())
    }
}

impl Choice {
    pub(crate) fn run<J: Job>(self, job: J) -> J::Outcome {
        match self {
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

impl Offered for OpenCl {
    type Replayed = Faulty<Self>;

    fn replayed(capacity: Option<u64>) -> Result<Faulty<Self>> {
        Self::probe().map_err(|why| Error::no_accelerator(Self::KIND, &why))?;
        let device = Device { kind: Self::KIND, index: 0 };
        let opened = match capacity {
            Some(_) => Self::with_capacity(0, capacity),
            None => Self::open(0), // as the environment says
        };
        opened.map(Faulty::new).map_err(|source| Error::Driver { device, source })
    }
}

impl Offered for Host {
    type Replayed = Faulty<Self>;

    fn replayed(capacity: Option<u64>) -> Result<Faulty<Self>> {
        Ok(Faulty::new(Self::new(0, capacity.unwrap_or(CAPACITY))))
    }
}

impl Offered for Sim {
    type Replayed = Self;

    fn replayed(capacity: Option<u64>) -> Result<Self> {
        Ok(Self::new(capacity.unwrap_or(CAPACITY)))
    }

    fn suite() -> Suite<Self> {
        Self::suite()
    }
}
