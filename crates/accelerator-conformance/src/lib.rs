#![doc = include_str!("../README.md")]
//!
//! # Layers
//!
//! From the bottom: `calls`, `mappings` and `timeline` are small parts of drivers; `controls` is how a test steers a
//! driver; `sim` and `faulty` are drivers, and `erased` wraps any driver; `cases` run on them; `suite` turns the cases
//! into trials and their results into a report.

mod calls;
mod cases;
mod controls;
mod erased;
mod faulty;
mod mappings;
mod sim;
mod suite;
mod timeline;

pub use calls::{Call, Calls};
pub use controls::Controls;
pub use erased::{AnyBackend, AnyEvent, AnyPtr, AnyStream, Opened, Opener};
pub use faulty::{Faulty, FaultyEvent, FaultyStream, Gate, POISON, UseAfterFree};
pub use mappings::PhysicalRange;
pub use sim::{Sim, SimEvent, SimPtr, SimStream};
pub use suite::{Capability, CaseReport, Group, Plan, PlannedCase, Report, Suite, Verdict, unavailable};

/// The test harness types that appear in the suite's interface.
#[doc(no_inline)]
pub use libtest_mimic::{Arguments, Trial};
