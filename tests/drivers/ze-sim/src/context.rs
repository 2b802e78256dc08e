//! Contexts, which own memory, lists, queues, events and modules.

use level_zero_sys::*;

use crate::arguments::{ContextHandle, Object};
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

pub(crate) struct Context {
    pub(crate) devices: Vec<usize>,
}

impl Driver {
    pub(crate) fn make_context(&mut self, devices: Vec<usize>) -> ContextHandle {
        let handle = self.engine.new_handle();
        self.contexts.insert(handle, Context { devices });
        Object::new(handle)
    }

    pub(crate) fn context(&mut self, context: ContextHandle) -> Outcome<Handle> {
        match self.contexts.contains_key(&context.number) {
            true => Ok(context.number),
            false => Err(self.unknown("context", context.number)),
        }
    }

    /// Checks a context and one of its devices.
    pub(crate) fn context_on(
        &mut self,
        context: ContextHandle,
        device: crate::arguments::DeviceHandle,
    ) -> Outcome<(Handle, usize)> {
        let (context, device) = (self.context(context)?, self.device(device)?);
        let is_own = self.contexts.get(&context).is_some_and(|own| own.devices.contains(&device));
        if !is_own {
            self.violation(format!("device {device} is not in context {context:#x}"));
            return Err(Refusal::INVALID_ARGUMENT);
        }
        Ok((context, device))
    }

    /// Returns the devices that a call names, or all devices of the context if it names none.
    pub(crate) fn devices_among(&mut self, context: Handle, named: &[ze_device_handle_t]) -> Outcome<Vec<usize>> {
        if named.is_empty() {
            return Ok(self.contexts.get(&context).map(|context| context.devices.clone()).unwrap_or_default());
        }
        let known = named.iter().map(|device| {
            let device = Object::from_raw(*device).ok_or(Refusal::INVALID_NULL_HANDLE)?;
            Ok(self.context_on(Object::new(context), device)?.1)
        });
        known.collect()
    }

    /// Destroys a context immediately. It is a violation if any of its objects are left.
    pub(crate) fn destroy_context(&mut self, context: Handle) {
        let memory = self.engine.memory.of(context).len() + self.engine.host.of(context).len();
        let left = [
            ("lists", self.lists.values().filter(|list| list.context == context).count()),
            ("queues", self.queues.values().filter(|queue| queue.context == context).count()),
            ("event pools", self.pools.values().filter(|pool| pool.context == context).count()),
            ("modules", self.modules.values().filter(|module| module.context == context).count()),
            ("allocations", memory),
            ("physical memories", self.physical.values().filter(|own| own.context == context).count()),
            ("reserved ranges", self.reservations.values().filter(|own| **own == context).count()),
        ];
        for (what, count) in left.iter().filter(|(_, count)| *count > 0) {
            self.violation(format!("context {context:#x} is destroyed with {count} {what} left"));
        }
        self.contexts.remove(&context);
    }
}
