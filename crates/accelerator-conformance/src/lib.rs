#![doc = include_str!("../README.md")]
//!
//! # Layers
//!
//! From the bottom: `calls`, `mappings` and `timeline` are the small parts of drivers; `controls` is what a test does to one;
//! `sim` and `faulty` are drivers, and `erased` stands for any; `cases` run on them; `suite` makes trials of the cases and a report of the trials.

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

/// The test harness, as far as the suite's interface speaks of it.
#[doc(no_inline)]
pub use libtest_mimic::{Arguments, Trial};
