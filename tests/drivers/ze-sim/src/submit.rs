//! Submits commands to lanes.

use sim_engine::{Kernel, Launch, Lent, Operation, Position, Signal, Source, Spread, Target, Work};

use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

/// What a command does. Its addresses are resolved when it is submitted, so a list may be recorded before its memory
/// exists.
#[derive(Clone)]
pub(crate) enum Action {
    Nothing,
    Copy { to: u64, from: u64, bytes: u64 },
    Fill { address: u64, pattern: Vec<u8>, bytes: u64 },
    Kernel { handle: Handle, kernel: Kernel, threads: u64, arguments: Vec<u64> },
    Reset(Handle),
    Timestamp(u64),
}

impl Action {
    /// Returns the kernel that it launches.
    pub(crate) fn launches(&self) -> Option<Handle> {
        match self {
            Self::Kernel { handle, .. } => Some(*handle),
            _ => None,
        }
    }
}

/// How a command is ordered relative to the others of an unordered list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Free,
    /// All later commands wait for it.
    Gate,
    /// All later commands wait for it, and it waits for all earlier ones.
    Barrier,
}

#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) action: Action,
    pub(crate) order: Order,
    pub(crate) waits: Vec<Handle>,
    pub(crate) signals: Option<Handle>,
}

/// What the driver stores with a submitted command.
pub(crate) struct Mark {
    /// The command's number, in the order of submission.
    number: u64,
    /// The kernel that it launches.
    pub(crate) kernel: Option<Handle>,
    /// The event that it resets.
    resets: Option<(Handle, Signal)>,
}

impl Driver {
    /// Submits a command to the lanes of a list or queue of a device and a context.
    pub(crate) fn submit(
        &mut self,
        context: Handle,
        device: usize,
        lanes: &mut Spread,
        command: &Command,
        previous: Option<Position>,
    ) -> Outcome<Position> {
        let conditions = self.conditions(&command.waits)?;
        self.submitted += 1;
        let mut mark = Mark { number: self.submitted, kernel: None, resets: None };
        let work = self.work(context, device, &command.action, &mut mark)?;
        let mut operation = Operation::new(work).after(conditions).after(previous).mark(mark);
        if let Some(event) = command.signals {
            let signal = self.signal(event)?;
            self.check_signalling(event, signal);
            operation = operation.sets(signal);
        }
        let position = match command.order {
            Order::Free => lanes.submit(&mut self.engine, operation),
            Order::Gate => lanes.gate(&mut self.engine, operation),
            Order::Barrier => lanes.barrier(&mut self.engine, operation),
        };
        position.ok_or(Refusal::INVALID_ARGUMENT)
    }

    fn work(&mut self, context: Handle, device: usize, action: &Action, mark: &mut Mark) -> Outcome<Work> {
        Ok(match action {
            Action::Nothing => Work::Nothing,
            Action::Copy { to, from, bytes } => {
                let target = match self.is_ours(context, device, *to) {
                    true => Target::Memory(*to),
                    false => Target::Pageable(lent(*to)),
                };
                let source = match self.is_ours(context, device, *from) {
                    true => Source::Memory(*from),
                    false => Source::Pageable(lent(*from)),
                };
                Work::Copy { target, source, bytes: *bytes }
            }
            Action::Fill { address, pattern, bytes } => {
                self.is_ours(context, device, *address);
                Work::Fill { address: *address, pattern: pattern.clone(), bytes: *bytes }
            }
            Action::Kernel { handle, kernel, threads, arguments } => {
                mark.kernel = Some(*handle);
                let launch = Launch { kernel: *kernel, threads: *threads, arguments: arguments.clone() };
                Work::Kernel(launch)
            }
            Action::Reset(event) => {
                let signal = self.signal(*event)?;
                mark.resets = Some((*event, signal));
                Work::Reset(signal)
            }
            Action::Timestamp(address) => {
                self.is_ours(context, device, *address);
                Work::Timestamp { address: *address }
            }
        })
    }

    /// Whether an address is in driver memory rather than the program's own. Records a violation if it belongs to
    /// another context, or to a device that this one cannot reach.
    fn is_ours(&mut self, context: Handle, device: usize, address: u64) -> bool {
        let allocation = self.engine.memory.containing(address);
        let block = self.engine.host.containing(address);
        let owner = allocation.map(|(_, own)| own.owner).or(block.map(|(_, own)| own.owner));
        let on = allocation.map_or(device, |(_, own)| own.device);
        if owner.is_some_and(|owner| owner != context) {
            self.violation(format!(
                "a command of context {context:#x} uses {address:#x}, which belongs to another context"
            ));
        }
        if on != device && !self.settings.peers {
            self.violation(format!("device {device} uses {address:#x} of device {on}, which it cannot reach"));
        }
        owner.is_some() || address >= sim_engine::FIRST_ADDRESS
    }

    /// Called when a reset has happened. Records a violation if a command submitted before it has yet to wait for the
    /// event or signal it.
    pub(crate) fn check_reset(&mut self, mark: &Mark) {
        let Some((event, signal)) = mark.resets else { return };
        let earlier =
            |operation: &Operation<Self>| operation.mark.as_ref().is_some_and(|other| other.number < mark.number);
        let waits = |operation: &Operation<Self>| operation.after.contains(&signal.into());
        let sets = |operation: &Operation<Self>| operation.sets == Some(signal);
        let late = self.engine.pending(|operation| earlier(operation) && (waits(operation) || sets(operation)));
        if !late.is_empty() {
            let count = late.len();
            self.violation(format!(
                "event {event:#x} is reset while {count} commands submitted before have yet to wait or signal"
            ));
        }
    }
}

/// Memory of the program, which keeps it alive until the command is over.
fn lent(address: u64) -> Lent {
    Lent(std::ptr::with_exposed_provenance_mut(address as usize))
}
