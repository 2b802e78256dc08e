//! Command queues, which run recorded lists.

use sim_engine::{Position, Spread};

use crate::arguments::{ListHandle, QueueHandle};
use crate::list::Kind;
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

pub(crate) struct Queue {
    pub(crate) context: Handle,
    pub(crate) device: usize,
    pub(crate) ordinal: u32,
    pub(crate) synchronous: bool,
    pub(crate) lanes: Spread,
}

impl Driver {
    pub(crate) fn queue(&mut self, queue: QueueHandle) -> Outcome<&mut Queue> {
        if !self.queues.contains_key(&queue.number) {
            return Err(self.unknown("command queue", queue.number));
        }
        self.queues.get_mut(&queue.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    /// Checks whether a queue may execute a list in its current state.
    pub(crate) fn check_runnable(&mut self, queue: QueueHandle, list: ListHandle) -> Outcome {
        let (context, device, ordinal) = {
            let own = self.queue(queue)?;
            (own.context, own.device, own.ordinal)
        };
        let own = self.list(list)?;
        let fits = own.context == context && own.device == device && own.ordinal == ordinal;
        let Kind::Recorded { closed, commands, .. } = &own.kind else { return Err(Refusal::INVALID_COMMAND_LIST_TYPE) };
        if !fits {
            return Err(Refusal::INVALID_COMMAND_LIST_TYPE);
        }
        if !*closed {
            self.violation(format!("command list {:#x} is run before it is closed", list.number));
            return Err(Refusal::INVALID_ARGUMENT);
        }
        let launched = commands.iter().filter_map(|command| command.action.launches()).collect::<Vec<_>>();
        if let Some(kernel) = launched.into_iter().find(|kernel| !self.kernels.contains_key(kernel)) {
            self.violation(format!("command list {:#x} launches kernel {kernel:#x}, which is destroyed", list.number));
            return Err(Refusal::INVALID_ARGUMENT);
        }
        self.check_list_unused(list, "run again")
    }

    /// Submits the commands of a list and returns their positions.
    pub(crate) fn run_list(&mut self, queue: QueueHandle, list: ListHandle) -> Outcome<Vec<Position>> {
        let Queue { context, device, lanes, .. } = self.queue(queue)?;
        let (context, device, mut lanes) = (*context, *device, lanes.clone());
        let own = self.list(list)?;
        let in_order = own.in_order;
        let commands = match &own.kind {
            Kind::Recorded { commands, .. } => commands.clone(),
            Kind::Immediate { .. } => return Err(Refusal::INVALID_COMMAND_LIST_TYPE),
        };
        let mut positions: Vec<Position> = Vec::new();
        for command in &commands {
            let previous = positions.last().copied().filter(|_| in_order);
            positions.push(self.submit(context, device, &mut lanes, command, previous)?);
        }
        self.queue(queue)?.lanes = lanes;
        if let Kind::Recorded { running, .. } = &mut self.list(list)?.kind {
            running.clone_from(&positions);
        }
        Ok(positions)
    }

    /// Destroys a queue immediately. Records a violation if the queue's work is not over.
    pub(crate) fn destroy_queue(&mut self, queue: QueueHandle) -> Outcome {
        self.queue(queue)?;
        let Some(own) = self.queues.remove(&queue.number) else { return Ok(()) };
        if !own.lanes.is_idle(&self.engine) {
            self.violation(format!("command queue {:#x} is destroyed while its work is not over", queue.number));
        }
        if self.fences.values().any(|fence| fence.queue == queue.number) {
            self.violation(format!("command queue {:#x} is destroyed before its fences", queue.number));
        }
        own.lanes.close(&mut self.engine);
        Ok(())
    }
}
