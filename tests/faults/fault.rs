//! A fault by name, and the one that this process has.

use std::sync::OnceLock;

use crate::drivers::Driver;

/// Defines [`Fault`] and the table of all faults.
macro_rules! faults {
    ($($fault:ident: $what:literal, $case:literal, $message:literal $(, on $drivers:expr)?;)*) => {
        /// A fault of a driver.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $(#[doc = $what] $fault,)*
        }

        /// All faults.
        pub(crate) const PLANTED: &[$crate::fault::Planted] = &[
            $($crate::fault::Planted {
                fault: Fault::$fault,
                what: $what,
                case: $case,
                message: $message,
                drivers: $crate::fault::drivers!($($drivers)?),
            },)*
        ];
    };
}
pub(crate) use faults;

macro_rules! drivers {
    () => {
        &$crate::drivers::Driver::ALL
    };
    ($drivers:expr) => {
        &$drivers
    };
}
pub(crate) use drivers;

pub(crate) use crate::list::{Fault, PLANTED};

/// A fault with the case that catches it.
pub(crate) struct Planted {
    pub(crate) fault: Fault,
    /// What the driver does wrong, as a sentence.
    pub(crate) what: &'static str,
    /// The number of the case that catches it.
    pub(crate) case: u32,
    /// Part of the case's message. It names the method that broke its contract.
    pub(crate) message: &'static str,
    /// The drivers that can have it.
    pub(crate) drivers: &'static [Driver],
}

impl Planted {
    /// The fault's name: its identifier, in small letters and with `_` between the words.
    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        for letter in format!("{:?}", self.fault).chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        PLANTED.iter().find(|planted| planted.name() == name)
    }
}

static FAULT: OnceLock<Fault> = OnceLock::new();

/// Plants the fault in every [`Broken`](crate::broken::Broken) of this process.
pub(crate) fn plant(fault: Fault) {
    assert!(FAULT.set(fault).is_ok(), "a process has one fault");
}

/// Whether this process has the fault.
pub(crate) fn has(fault: Fault) -> bool {
    planted() == Some(fault)
}

pub(crate) fn planted() -> Option<Fault> {
    FAULT.get().copied()
}
