#![doc = include_str!("../README.md")]
//!
//! # Layers
//!
//! From the bottom: `calls`, `mappings` and `timeline` are small parts of drivers; `driver_source` takes
//! the segments of a pool from a driver; `controls` is how a test steers a driver; `progress` knows what each case is
//! doing, `crash` prints that when the process dies, and `outcome` is how a case ends; `sim` and `faulty` are drivers,
//! and `erased` wraps any driver; `raw` has the cases that run on a backend itself, and `cases` those that run on the
//! core above it; `suite` turns the cases into trials and their results into a report.

mod calls;
mod cases;
mod controls;
mod crash;
mod driver_source;
mod erased;
mod faulty;
mod mappings;
#[cfg(target_os = "linux")]
mod other_process;
mod outcome;
mod progress;
mod raw;
mod sim;
mod suite;
mod timeline;

pub use calls::{Call, Calls};
pub use controls::Controls;
pub use driver_source::DriverSource;
pub use erased::{AnyBackend, AnyEvent, AnyPtr, AnyStream, Opened, Opener};
pub use faulty::{Failing, FailingCalls, Faulty, FaultyEvent, FaultyStream, Gate, POISON, UseAfterFree};
pub use mappings::PhysicalRange;
#[cfg(target_os = "linux")]
pub use other_process::is_other_process;
pub use sim::{Sim, SimEvent, SimPtr, SimStream};
pub use suite::{
    Capability, CaseReport, Group, Plan, PlannedCase, Report, Selection, Suite, Verdict, Withstood, unavailable,
};
