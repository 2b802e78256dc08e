//! Command lists. Immediate ones execute their commands; the others record them for a queue.

use level_zero_sys::*;
use sim_engine::{Position, Spread};

use crate::arguments::{EventHandle, ListHandle, Object};
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle, Session};
use crate::submit::{Action, Command, Order};

/// The number of lanes of an unordered list or queue. An in-order one has a single lane.
const LANES: usize = 4;

pub(crate) struct List {
    pub(crate) context: Handle,
    pub(crate) device: usize,
    pub(crate) ordinal: u32,
    /// Each command waits for the previous one.
    pub(crate) in_order: bool,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Immediate {
        lanes: Spread,
        /// Every call returns when its command is over.
        synchronous: bool,
    },
    Recorded {
        commands: Vec<Command>,
        closed: bool,
        /// The positions of its commands when a queue last executed it.
        running: Vec<Position>,
    },
}

/// The version that introduced the in-order flags. Older drivers ignore them.
pub(crate) const IN_ORDER_SINCE: crate::tables::Version = (1, 7);

impl Driver {
    /// Opens the lanes of a new list or queue.
    pub(crate) fn open_lanes(&mut self, owner: Handle, device: usize, in_order: bool) -> Spread {
        let count = if in_order { 1 } else { LANES };
        let lanes = (0..count).map(|_| {
            let lane = self.engine.new_handle();
            self.engine.open_lane(lane, device, owner);
            lane
        });
        Spread::new(lanes.collect())
    }

    pub(crate) fn list(&mut self, list: ListHandle) -> Outcome<&mut List> {
        if !self.lists.contains_key(&list.number) {
            return Err(self.unknown("command list", list.number));
        }
        self.lists.get_mut(&list.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    /// Destroys a list immediately. It is a violation if its work is not over.
    pub(crate) fn destroy_list(&mut self, list: ListHandle) -> Outcome {
        self.check_list_unused(list, "destroyed")?;
        if let Some(List { kind: Kind::Immediate { lanes, .. }, .. }) = self.lists.remove(&list.number) {
            lanes.close(&mut self.engine);
        }
        Ok(())
    }

    /// Records a violation if the work of a list is not over.
    pub(crate) fn check_list_unused(&mut self, list: ListHandle, about: &str) -> Outcome {
        self.list(list)?;
        let Some(own) = self.lists.get(&list.number) else { return Ok(()) };
        let is_idle = match &own.kind {
            Kind::Immediate { lanes, .. } => lanes.is_idle(&self.engine),
            Kind::Recorded { running, .. } => running.iter().all(|position| self.engine.is_over(*position)),
        };
        if !is_idle {
            self.violation(format!("command list {:#x} is {about} while its work is not over", list.number));
        }
        Ok(())
    }

    /// Returns the commands of a list that is still being recorded.
    pub(crate) fn recorded(&mut self, list: ListHandle) -> Outcome<(&mut Vec<Command>, &mut bool)> {
        match &mut self.list(list)?.kind {
            Kind::Recorded { commands, closed, .. } => Ok((commands, closed)),
            Kind::Immediate { .. } => Err(Refusal::INVALID_COMMAND_LIST_TYPE),
        }
    }
}

/// The arguments that every append function has besides the command.
pub(crate) struct Around<'a> {
    pub(crate) list: ListHandle,
    pub(crate) signals: Option<EventHandle>,
    pub(crate) waits: &'a [ze_event_handle_t],
}

/// Appends a command.
pub(crate) fn append(session: &mut Session, around: Around<'_>, action: Action, order: Order) -> Outcome {
    let handle = around.list.number;
    session.list(around.list)?;
    let mut waits = Vec::new();
    for event in around.waits {
        let event = Object::from_raw(*event).ok_or(Refusal::INVALID_NULL_HANDLE)?;
        session.check_event(handle, event.number)?;
        waits.push(event.number);
    }
    if let Some(event) = around.signals {
        session.check_event(handle, event.number)?;
    }
    let command = Command { action, order, waits, signals: around.signals.map(|event| event.number) };
    let List { context, device, kind, .. } = session.list(around.list)?;
    let (context, device) = (*context, *device);
    let (mut lanes, synchronous) = match kind {
        Kind::Immediate { lanes, synchronous } => (lanes.clone(), *synchronous),
        Kind::Recorded { commands, closed: false, .. } => {
            commands.push(command);
            return Ok(());
        }
        Kind::Recorded { .. } => {
            session.violation(format!("a command is appended to list {handle:#x}, which is closed"));
            return Err(Refusal::INVALID_ARGUMENT);
        }
    };
    let position = session.submit(context, device, &mut lanes, &command, None)?;
    if let Some(List { kind: Kind::Immediate { lanes: own, .. }, .. }) = session.lists.get_mut(&handle) {
        *own = lanes;
    }
    if synchronous {
        crate::wait::wait(session, &[position.into()], u64::MAX, &[device])?;
    }
    Ok(())
}

impl Driver {
    /// Checks that a list may use an event: it must be in the same context, and in a pool for the list's device.
    fn check_event(&mut self, list: Handle, event: Handle) -> Outcome {
        self.signal(event)?;
        let pool = self.events.get(&event).and_then(|event| self.pools.get(&event.pool));
        let (Some(pool), Some(list)) = (pool, self.lists.get(&list)) else { return Ok(()) };
        if pool.context != list.context || !pool.devices.contains(&list.device) {
            self.violation(format!(
                "event {event:#x} is used by a command list of another context, or not for its device"
            ));
            return Err(Refusal::INVALID_SYNCHRONIZATION_OBJECT);
        }
        Ok(())
    }
}
