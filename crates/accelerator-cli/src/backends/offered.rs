//! A backend as `accel` offers it.

use accelerator_conformance::{AnyBackend, Faulty, Opener, Suite};
#[cfg(feature = "conformance")]
use accelerator_conformance::{Plan, PlannedCase};
use accelerator_core::{Accelerator, AllocatorConfig, Backend, Device, DriverResult, Error, Result, Unavailable};

#[cfg(feature = "conformance")]
use super::kernel::Launch;
use super::kernel::{Launched, Saxpy};

/// A backend that `accel` offers under the name of its [kind](Backend::KIND).
///
/// Nothing more than the trait [`Backend`] is needed. The methods replace defaults:
///
/// ```
/// use accelerator_cli::Offered;
/// use accelerator_conformance::{Capability, Sim, Suite};
///
/// let offered = Offered::<Sim>::new()
///     .about("A device with addresses but no memory")
///     .suite(|| Suite::new("sim").lacks(Capability::Bytes, "the device has addresses only"));
/// ```
#[derive(Debug)]
pub struct Offered<B: Backend> {
    about: &'static str,
    variables: &'static [&'static str],
    open: Option<fn(Option<u64>) -> DriverResult<B>>,
    suite: fn() -> Suite<B>,
    saxpy: Option<fn(Saxpy<B>) -> Launched>,
}

impl<B: Backend> Offered<B> {
    /// A backend about which only the trait is known.
    pub fn new() -> Self {
        Self { about: "", variables: &[], open: None, suite: || Suite::new(B::KIND.name()), saxpy: None }
    }

    /// Sets the text that the help of `--backend` shows: which device it is, without a full stop.
    #[must_use]
    pub fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Sets the environment variables that change which device this is or how it works. `accel verify` reports those
    /// that are set.
    #[must_use]
    pub fn variables(self, variables: &'static [&'static str]) -> Self {
        Self { variables, ..self }
    }

    /// Sets how the first device is opened for a replay: with at most this many bytes if a number is given, otherwise
    /// with as many as a replay should have by default. Without this, the device is opened with [`Backend::open`], and
    /// `accel` refuses what exceeds the number.
    #[must_use]
    pub fn open(self, open: fn(Option<u64>) -> DriverResult<B>) -> Self {
        Self { open: Some(open), ..self }
    }

    /// Sets the conformance suite, with the cases that the backend cannot pass. Its name is the kind of the backend.
    #[must_use]
    pub fn suite(self, suite: fn() -> Suite<B>) -> Self {
        Self { suite, ..self }
    }

    /// Sets the kernel that `accel verify` launches. Without this, that part of the report says that there is none.
    #[must_use]
    pub fn kernel(self, saxpy: fn(Saxpy<B>) -> Launched) -> Self {
        Self { saxpy: Some(saxpy), ..self }
    }
}

impl<B: Backend> Default for Offered<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// [`Offered`] without the type of the backend, so that the commands are compiled once.
pub(crate) trait Entry: Send + Sync {
    fn name(&self) -> &'static str;
    fn about(&self) -> &'static str;
    fn variables(&self) -> &'static [&'static str];
    fn opener(&self) -> Opener;
    /// Opens the first device for a replay, limited to `capacity` bytes if a number is given.
    fn replayed(&self, capacity: Option<u64>) -> Result<Faulty<AnyBackend>>;
    #[cfg(feature = "conformance")]
    fn cases(&self) -> Vec<PlannedCase>;
    #[cfg(feature = "conformance")]
    fn plan(&self) -> Plan;
    #[cfg(feature = "conformance")]
    fn saxpy(&self) -> Option<Box<Launch<AnyBackend>>>;
}

impl dyn Entry + '_ {
    /// Returns the number of devices, which is not 0.
    pub(crate) fn count(&self) -> Result<u32, Unavailable> {
        match self.opener().probe() {
            Ok(0) => Err(Unavailable::new("there is no device")),
            probed => probed,
        }
    }

    /// Opens the first device with default settings. The environment is ignored, so that results can be compared.
    pub(crate) fn accelerator(&self) -> Result<&'static Accelerator<AnyBackend>> {
        let backend = self.first(|| self.opener().open(0))?;
        Accelerator::new(backend, 0, AllocatorConfig::default())
    }

    fn first<T>(&self, open: impl FnOnce() -> DriverResult<T>) -> Result<T> {
        let kind = self.opener().kind();
        self.count().map_err(|why| Error::no_accelerator(kind, &why))?;
        open().map_err(|source| Error::Driver { device: Device { kind, index: 0 }, source })
    }
}

impl<B: Backend> Entry for Offered<B> {
    fn name(&self) -> &'static str {
        const { &B::KIND }.name()
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn variables(&self) -> &'static [&'static str] {
        self.variables
    }

    fn opener(&self) -> Opener {
        Opener::of::<B>()
    }

    fn replayed(&self, capacity: Option<u64>) -> Result<Faulty<AnyBackend>> {
        let this: &dyn Entry = self;
        let faulty = |backend| Faulty::new(AnyBackend::new(backend));
        match (self.open, capacity) {
            (Some(open), capacity) => this.first(|| open(capacity)).map(faulty),
            (None, Some(capacity)) => this.first(|| B::open(0)).map(|backend| faulty(backend).with_memory(capacity)),
            (None, None) => this.first(|| B::open(0)).map(faulty),
        }
    }

    #[cfg(feature = "conformance")]
    fn cases(&self) -> Vec<PlannedCase> {
        (self.suite)().cases()
    }

    #[cfg(feature = "conformance")]
    fn plan(&self) -> Plan {
        (self.suite)().plan()
    }

    #[cfg(feature = "conformance")]
    fn saxpy(&self) -> Option<Box<Launch<AnyBackend>>> {
        let saxpy = self.saxpy?;
        Some(Box::new(move |a, x, y, stream| Saxpy::launch(saxpy, a, x, y, stream)))
    }
}
