//! The backends that a program `accel` offers.
//!
//! A new backend of this repository needs a file here, a line in [`Backends::built_in`], and a feature and an optional
//! dependency in `Cargo.toml`.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "host")]
mod host;
mod kernel;
mod offered;
#[cfg(feature = "opencl")]
mod opencl;
#[cfg(feature = "vulkan")]
mod vulkan;
#[cfg(feature = "xpu")]
mod xpu;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "conformance")]
use accelerator_conformance::Plan;
use accelerator_conformance::Sim;
use accelerator_core::{Backend, GIB, printable};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command};

#[cfg(feature = "conformance")]
pub(crate) use self::kernel::Launch;
pub use self::kernel::{Launched, Saxpy};
pub(crate) use self::offered::Entry;
pub use self::offered::Offered;
use crate::failure::Failure;

/// The default memory size of the host and simulated devices. Replays touch none of it.
const CAPACITY: u64 = 16 * GIB;

/// The option that names a backend, in every command that has it.
const OPTION: &str = "backend";

/// The backend that commands use if none is named.
pub(crate) const USUAL: &str = "host";

/// The backend whose memory has addresses but no bytes.
pub(crate) const SIMULATED: &str = "sim";

/// The backends that a program `accel` offers by name, in the order of its help.
///
/// This is the whole `main` of an `accel` that also knows the backend `Mine`:
///
/// ```no_run
/// use accelerator_cli::{Backends, Offered};
/// # use accelerator_host::Host as Mine;
///
/// fn main() -> std::process::ExitCode {
///     Backends::built_in().with(Offered::<Mine>::new().about("My first device")).main()
/// }
/// ```
#[derive(Clone)]
pub struct Backends(Vec<Arc<dyn Entry>>);

impl Backends {
    /// Returns the simulated device, which every program has.
    pub fn simulated() -> Self {
        let sim = Offered::<Sim>::new().about("A simulated device with addresses but no memory").suite(Sim::suite);
        Self(vec![Arc::new(sim)])
    }

    /// Returns the backends that the features of this crate enable, and the simulated device.
    pub fn built_in() -> Self {
        let backends = Self::simulated();
        #[cfg(feature = "cuda")]
        let backends = backends.with(cuda::offered());
        #[cfg(feature = "xpu")]
        let backends = backends.with(xpu::offered());
        #[cfg(feature = "opencl")]
        let backends = backends.with(opencl::offered());
        #[cfg(feature = "vulkan")]
        let backends = backends.with(vulkan::offered());
        #[cfg(feature = "host")]
        let backends = backends.with(host::offered());
        backends
    }

    /// Adds a backend, after all others except the simulated device. Its name must be new.
    #[must_use]
    pub fn with<B: Backend>(mut self, offered: Offered<B>) -> Self {
        self.0.insert(self.0.len() - 1, Arc::new(offered));
        self
    }

    /// Returns the conformance suites of all backends, to be run together.
    #[cfg(feature = "conformance")]
    pub fn conformance(&self) -> Plan {
        self.real().fold(Sim::suite().plan(), |plan, entry| plan.and(entry.plan()))
    }

    /// Returns all backends except the simulated device.
    pub(crate) fn real(&self) -> impl Iterator<Item = &dyn Entry> {
        self.0.iter().map(|entry| &**entry).filter(|entry| entry.name() != SIMULATED)
    }

    /// Returns the backend with this name.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there is none.
    pub(crate) fn named(&self, name: &str) -> Result<&Arc<dyn Entry>, Failure> {
        let names = || self.0.iter().map(|entry| entry.name()).collect::<Vec<_>>().join(", ");
        self.0.iter().find(|entry| entry.name() == name).ok_or_else(|| {
            Failure::Usage(format!("unknown backend '{}': expected one of {}", printable(name), names()))
        })
    }

    /// Fails if two backends have the same name, since then one of them could not be chosen.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let names: Vec<_> = self.0.iter().map(|entry| entry.name()).collect();
        match names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
            Some((_, name)) => Err(Failure::SameName(name)),
            None => Ok(()),
        }
    }

    /// Tells the parser of the arguments which backends there are.
    pub(crate) fn complete(&self, program: Command) -> Command {
        program.mut_subcommands(|command| {
            let has_option = command.get_arguments().any(|argument| argument.get_id() == OPTION);
            if has_option { command.mut_arg(OPTION, |argument| self.complete_option(argument)) } else { command }
        })
    }

    fn complete_option(&self, mut option: Arg) -> Arg {
        let has_usual = self.0.iter().any(|entry| entry.name() == USUAL);
        if !has_usual && option.get_default_values().iter().any(|name| name == USUAL) {
            option = option.default_value(self.0[0].name());
        }
        let names = self.0.iter().map(|entry| match entry.about() {
            "" => PossibleValue::new(entry.name()),
            about => PossibleValue::new(entry.name()).help(about),
        });
        option.value_parser(PossibleValuesParser::new(names))
    }
}

/// Opens the simulated device for a replay.
pub(crate) fn simulated(capacity: Option<u64>) -> Sim {
    Sim::new(capacity.unwrap_or(CAPACITY))
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| entry.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the arguments of a command with an option as several commands have it.
    fn parsed(backends: &Backends, arguments: &[&str]) -> Result<String, clap::Error> {
        let option = Arg::new(OPTION).long(OPTION).default_value(USUAL);
        let program = Command::new("accel").subcommand(Command::new("try").arg(option));
        let given = ["accel", "try"].iter().chain(arguments);
        let matches = backends.complete(program).try_get_matches_from(given)?;
        let chosen = matches.subcommand().unwrap().1.get_one::<String>(OPTION).unwrap();
        assert_eq!(backends.named(chosen).unwrap().name(), chosen);
        Ok(chosen.clone())
    }

    #[test]
    fn the_program_knows_its_backends_and_no_others() {
        let simulated = Backends::simulated();
        assert_eq!(parsed(&simulated, &[]).unwrap(), "sim", "the first, without a host");
        assert_eq!(parsed(&simulated, &["--backend", "sim"]).unwrap(), "sim");
        let refused = parsed(&simulated, &["--backend", "simm"]).unwrap_err().to_string();
        assert!(refused.contains("[possible values: sim]") && refused.contains("similar value exists"), "{refused}");
        assert!(
            matches!(simulated.named("simm"), Err(Failure::Usage(why)) if why.contains("'simm': expected one of sim"))
        );

        let with_host = simulated.with(Offered::<accelerator_host::Host>::new());
        assert_eq!(parsed(&with_host, &[]).unwrap(), "host");
        assert_eq!(format!("{with_host:?}"), r#"["host", "sim"]"#);
        assert_eq!(with_host.real().map(|entry| entry.name()).collect::<Vec<_>>(), ["host"]);
    }

    #[test]
    fn a_name_belongs_to_one_backend() {
        assert!(Backends::built_in().check().is_ok());
        let twice = Backends::simulated().with(Offered::<Sim>::new());
        assert!(matches!(twice.check(), Err(Failure::SameName("sim"))));
    }
}
