//! The drivers that get faults, and processes in which they are loaded.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

use accelerator_conformance::{PlannedCase, Report, Suite};
use accelerator_core::Backend;
use accelerator_cuda::Cuda;
use accelerator_host::Host;
use accelerator_xpu::Xpu;
use libtest_mimic::Failed;

use crate::broken::Broken;
use crate::fault::{Planted, plant};
use crate::surroundings::{beside, separate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Host,
    /// The simulated driver of CUDA.
    Cuda,
    /// The simulated driver of Level Zero.
    Xpu,
}

/// Names the driver of a child process.
const CHILD: &str = "ACCELERATOR_TESTS_DRIVER";

/// Names the fault of a child process.
const FAULT: &str = "ACCELERATOR_TESTS_FAULT";

/// The seconds after which the suite calls a driver stuck that has a fault.
const LIMIT: &str = "5";

impl Driver {
    pub(crate) const ALL: [Self; 3] = [Self::Host, Self::Cuda, Self::Xpu];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
            Self::Xpu => "xpu",
        }
    }

    /// Whether this machine lacks something that the driver needs. Returns what.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Host | Self::Cuda => None,
            Self::Xpu => accelerator_xpu::sys::LevelZero::load().err().map(|error| error.to_string()),
        }
    }

    /// Returns a process like [`child`](Self::child), in which all drivers have this fault.
    pub(crate) fn child_with(self, fault: &str, case: u32, seed: u32) -> Result<Command, Failed> {
        let mut command = self.child(&[case], seed)?;
        command.env(FAULT, fault).env("ACCELERATOR_CASE_LIMIT", LIMIT);
        Ok(command)
    }

    /// Returns a process of this program that runs these cases on the driver. The simulated drivers take their order of
    /// work from the seed.
    pub(crate) fn child(self, cases: &[u32], seed: u32) -> Result<Command, Failed> {
        let mut command = Command::new(env::current_exe()?);
        separate(&mut command);
        command.args(cases.iter().map(u32::to_string));
        command.env(CHILD, self.name()).env("RUST_BACKTRACE", "0");
        let library = |name: &str| beside(name).into_os_string();
        let variables: Vec<(&str, OsString)> = match self {
            // As much memory as a test can use up.
            Self::Host => vec![("ACCELERATOR_HOST_CAPACITY", "1GiB".into())],
            Self::Cuda => vec![
                ("LD_PRELOAD", library("cuda_sim")),
                ("CUDA_SIM_CLOCK", "real".into()),
                ("CUDA_SIM_MEMORY", "1G".into()),
                ("CUDA_SIM_SEED", seed.to_string().into()),
            ],
            Self::Xpu => vec![
                ("ZE_ENABLE_ALT_DRIVERS", library("ze_sim")),
                ("ZE_SIM_CLOCK", "real".into()),
                ("ZE_SIM_MEMORY", "1G".into()),
                ("ZE_SIM_SEED", seed.to_string().into()),
            ],
        };
        command.envs(variables);
        Ok(command)
    }
}

/// Runs the cases that the parent process asks for, if this is a child.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    if let Some(planted) = env::var(FAULT).ok().and_then(|name| Planted::named(&name)) {
        plant(planted.fault);
    }
    let name = env::var(CHILD).ok()?;
    let driver = Driver::ALL.into_iter().find(|driver| driver.name() == name)?;
    let report = match driver {
        Driver::Host => run::<Host>(),
        Driver::Cuda => run::<Cuda>(),
        Driver::Xpu => run::<Xpu>(),
    };
    print!("{report}");
    Some(report.exit_code())
}

/// Runs the cases with the numbers in the arguments.
fn run<B: Backend>() -> Report {
    let numbers: Vec<String> = env::args().skip(1).collect();
    let is_wanted = |case: &PlannedCase| {
        let name = case.trial().split_once("::").map_or("", |(_, name)| name);
        let number = name.trim_start_matches(|letter: char| letter.is_ascii_uppercase()).split('_').next();
        // The second run of a case, under another policy, tells no more about the driver.
        !name.ends_with(')') && numbers.iter().any(|wanted| number.is_some_and(|number| same(wanted, number)))
    };
    let cases = Suite::<Broken<B>>::new(B::KIND.name()).cases();
    Report::of(cases.into_iter().filter(is_wanted).map(PlannedCase::run).collect())
}

/// Whether two numbers are the same. Those in names of cases may begin with a zero.
fn same(one: &str, other: &str) -> bool {
    one.trim_start_matches('0') == other.trim_start_matches('0')
}
