//! What is stopped, what runs meanwhile, and what they find.

use accelerator_core::{
    Allocation, AllocatorConfig, Backend, Buffer, DriverErrorKind, MIB, Result, Stream,
};

use super::super::Context;
use super::super::books::check_statistics;
use super::super::context::{Device, address};
use crate::calls::Call;
use crate::controls::Controls;
use crate::faulty::Faulty;

pub(super) type Blocks<B> = Vec<Allocation<Faulty<B>>>;

/// Takes the blocks to free from the list, and puts what it allocates there.
pub(super) type Act<B> = fn(Scene<B>, &mut Blocks<B>) -> Result<()>;

/// An operation to be stopped.
pub(super) struct Stopped<B: Backend> {
    pub(super) name: &'static str,
    pub(super) settings: &'static str,
    pub(super) prepare: fn(Scene<B>, &mut Stage<B>) -> Result<()>,
    pub(super) act: Act<B>,
    /// It fails for lack of memory.
    pub(super) fails: bool,
    /// The calls during which it holds the right to take events.
    pub(super) holding_events: &'static [Call],
}

/// An operation that runs while another is stopped.
pub(super) struct Meanwhile<B: Backend> {
    pub(super) name: &'static str,
    pub(super) act: Act<B>,
    /// It waits for events, and so for who takes them.
    pub(super) waits_for_events: bool,
    /// It gives everything back to the driver that is not in use.
    pub(super) empties: bool,
    /// There may be too little memory for it and the other.
    pub(super) takes_memory: bool,
}

/// A device of which at most `limit` bytes may be taken, and three streams.
pub(super) struct Scene<B: Backend> {
    pub(super) device: Device<B>,
    pub(super) limit: u64,
    own: Stream<Faulty<B>>,
    other: Stream<Faulty<B>>,
    /// Held: what it uses stays in use.
    slow: Stream<Faulty<B>>,
    config: AllocatorConfig,
}
