//! Primary contexts, one for each device that a program uses.

use std::collections::{BTreeMap, BTreeSet};

use sim_engine::Position;

use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle, Session};
use crate::stream::Kind;

pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) retains: u32,
    /// The code that every call on it returns since an unrecoverable error.
    sticky: Option<Code>,
    /// The legacy default stream.
    pub(crate) legacy: Handle,
    /// The per-thread default streams, by the thread's number.
    pub(crate) per_thread: BTreeMap<u64, Handle>,
    /// Devices whose memory its kernels may access.
    pub(crate) peers: BTreeSet<usize>,
}

impl Context {
    pub(crate) fn check(&self) -> Outcome {
        self.sticky.map_or(Ok(()), Err)
    }
}

impl Driver {
    pub(crate) fn primary_context(&self, device: usize) -> Option<Handle> {
        self.contexts.iter().find(|(_, context)| context.device == device).map(|(handle, _)| *handle)
    }

    pub(crate) fn context(&mut self, handle: Handle) -> Outcome<&mut Context> {
        let context = self.contexts.get_mut(&handle).ok_or(Code::INVALID_CONTEXT)?;
        context.check()?;
        Ok(context)
    }

    pub(crate) fn retain_context(&mut self, device: usize) -> Outcome<Handle> {
        let handle = match self.primary_context(device) {
            Some(handle) => handle,
            None => self.make_context(device),
        };
        self.context(handle)?.retains += 1;
        Ok(handle)
    }

    fn make_context(&mut self, device: usize) -> Handle {
        self.devices[device].contexts_made += 1;
        let handle = self.engine.new_handle();
        let legacy = self.open_stream(handle, device, Kind::Legacy, 0);
        let context =
            Context { device, retains: 0, sticky: None, legacy, per_thread: BTreeMap::new(), peers: BTreeSet::new() };
        self.contexts.insert(handle, context);
        handle
    }

    /// Drops all remaining work of the context and makes every later call on it fail.
    pub(crate) fn fail_context(&mut self, handle: Handle, code: Code) {
        let Some(context) = self.contexts.get_mut(&handle) else { return };
        context.sticky = context.sticky.or(Some(code));
        let lanes = self.engine.lanes.values_mut();
        lanes.filter(|lane| lane.data.context == handle).for_each(|lane| lane.data.captured = None);
        self.engine.drop_work(|_, lane| lane.data.context == handle);
        self.forget_lost_captures();
    }

    /// Makes failed contexts usable again.
    pub(crate) fn forget_failures(&mut self) {
        self.contexts.values_mut().for_each(|context| context.sticky = None);
    }

    /// Returns the last positions of a context's work so far.
    pub(crate) fn ends_of(&self, handle: Handle) -> Vec<Position> {
        self.engine.ends(|_, lane| lane.data.context == handle)
    }
}

/// Releases the primary context. The last release waits for its work and destroys everything that belongs to it.
pub(crate) fn release(driver: &mut Session, device: usize) -> Outcome {
    let handle = driver.primary_context(device).ok_or(Code::INVALID_CONTEXT)?;
    let context = driver.context(handle)?;
    context.retains -= 1;
    if context.retains > 0 {
        return Ok(());
    }
    let ends = driver.ends_of(handle);
    driver.wait(&ends);
    driver.contexts.remove(&handle);
    driver.engine.lanes.retain(|_, lane| lane.data.context != handle);
    driver.events.retain(|_, event| event.context != handle);
    driver.forget_lost_captures();
    for address in driver.engine.memory.of(handle) {
        driver.opened.remove(&address);
        driver.engine.free(address)?;
    }
    Ok(())
}
