//! The one way into the driver, on top of the engine's. It checks what must be true before a call does anything.

use level_zero_sys::ze_result_t;
use sim_engine::thread;

use crate::result::{Outcome, Refusal, result};
use crate::settings::Quirk;
use crate::state::{Driver, Handle, Session, Start};

/// What a function requires before it does anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// `zeInit` has succeeded in this process.
    Init,
    /// System management was started, by `zesInit` or by `ZES_ENABLE_SYSMAN` before `zeInit`.
    Sysman,
    /// `zeInit` has succeeded. The function works even on a lost device.
    InitAlone,
}

/// Runs one call with these handles among its arguments.
pub(crate) fn call(
    name: &'static str,
    needs: Needs,
    handles: &[Option<usize>],
    arguments: Option<String>,
    body: impl FnOnce(&mut Session) -> Outcome,
) -> ze_result_t {
    let handles: Vec<Handle> = handles.iter().copied().flatten().collect();
    let outcome = sim_engine::gate::call(name, arguments, |session: &mut Session| {
        session.enter(needs)?;
        if matches!(needs, Needs::Init | Needs::Sysman) {
            session.check_not_lost(&handles)?;
        }
        let outcome = body(session);
        // Wakes threads that wait for work that this thread may have submitted.
        session.tell_others();
        outcome
    });
    if outcome == Err(Refusal::DEVICE_LOST) {
        Session::new().lose_if_injected(&handles);
    }
    if let Err(refusal) = outcome {
        crate::driver::remember_failure(refusal);
        // After `zeInitDrivers` a program may still start the driver in the older way.
        if name == "zeInit" {
            Session::new().start = Start::Failed;
        }
    }
    result(outcome)
}

impl Driver {
    fn enter(&self, needs: Needs) -> Outcome {
        if self.start == Start::Failed && self.settings.has(Quirk::CrashAfterFailedInit) {
            std::process::abort();
        }
        let ready = match needs {
            Needs::Nothing => true,
            Needs::Init | Needs::InitAlone => self.start == Start::Succeeded,
            Needs::Sysman => self.sysman,
        };
        if ready { Ok(()) } else { Err(Refusal::UNINITIALIZED) }
    }

    /// If a test made the call fail with a lost device, loses the devices that its arguments name, or all if they name
    /// none.
    fn lose_if_injected(&mut self, handles: &[Handle]) {
        if self.injected_loss != Some(thread::number()) {
            return;
        }
        self.injected_loss = None;
        let mut named: Vec<usize> = handles.iter().flat_map(|handle| self.devices_of(*handle)).collect();
        if named.is_empty() {
            let contexts = handles.iter().filter_map(|handle| self.contexts.get(handle));
            named = contexts.flat_map(|context| context.devices.clone()).collect();
        }
        if named.is_empty() {
            named = (0..self.devices.len()).collect();
        }
        named.into_iter().for_each(|device| self.lose(device));
    }

    fn check_not_lost(&self, handles: &[Handle]) -> Outcome {
        match handles.iter().any(|handle| self.are_all_lost(&self.devices_of(*handle))) {
            true => Err(Refusal::DEVICE_LOST),
            false => Ok(()),
        }
    }

    /// Returns the devices that a handle refers to, directly or through the object's owner. Contexts belong to no
    /// device.
    fn devices_of(&self, handle: Handle) -> Vec<usize> {
        if let Some(device) = self.devices.iter().position(|device| device.has_handle(handle)) {
            return vec![device];
        }
        let event = self.events.get(&handle).map(|event| event.pool);
        if let Some(pool) = self.pools.get(&event.unwrap_or(handle)) {
            return pool.devices.clone();
        }
        let fence = self.fences.get(&handle).map(|fence| fence.queue);
        let queue = self.queues.get(&fence.unwrap_or(handle)).map(|queue| queue.device);
        let list = self.lists.get(&handle).map(|list| list.device);
        let module = self.kernels.get(&handle).map(|kernel| kernel.module);
        let module = self.modules.get(&module.unwrap_or(handle)).map(|module| module.device);
        let physical = self.physical.get(&handle).map(|physical| physical.device);
        queue.or(list).or(module).or(physical).into_iter().collect()
    }
}

/// Defines functions of the API for the tables. Each entry has a C signature in terms of
/// [`Argument`](crate::arguments::Argument), what the call needs, and the function that implements it, which gets the
/// locked driver before the arguments.
macro_rules! functions {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) [$needs:ident] => $work:ident;
    )*) => {$(
        $(#[$meta])*
        /// # Safety
        ///
        /// As the API requires: each pointer is null, or valid for what the function reads or writes there.
        pub(crate) unsafe extern "C" fn $name(
            $($argument: <$type as $crate::arguments::Argument>::Raw),*
        ) -> level_zero_sys::ze_result_t {
            let lock = <$crate::state::Driver as sim_engine::Face>::lock();
            let arguments = sim_engine::gate::logged(lock, || format!("{:x?}", ($(&$argument,)*)));
            let handles = [$(<$type as $crate::arguments::Argument>::handle($argument),)*];
            let needs = $crate::gate::Needs::$needs;
            $crate::gate::call(stringify!($name), needs, &handles, arguments, move |session| {
                $(
                    // SAFETY: the function's caller guarantees the same.
                    let $argument = unsafe { <$type as $crate::arguments::Argument>::take($argument) }?;
                )*
                self::$work(session, $($argument),*)
            })
        }
    )*};
}
pub(crate) use functions;
