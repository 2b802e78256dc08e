//! The driver object: how it starts, and its properties.

use std::cell::Cell;

use crate::arguments::DriverHandle;
use crate::result::{Outcome, Refusal};
use crate::settings::Quirk;
use crate::state::{Driver, Session, Start};

thread_local! {
    static LAST_FAILURE: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// Records a failure for `zeDriverGetLastErrorDescription`, which each thread asks about its own calls.
pub(crate) fn remember_failure(refusal: Refusal) {
    let _ = LAST_FAILURE.try_with(|last| last.set(Some(refusal)));
}

pub(crate) fn last_failure() -> Option<Refusal> {
    LAST_FAILURE.try_with(Cell::get).ok().flatten()
}

impl Driver {
    pub(crate) fn check_driver(&mut self, driver: DriverHandle) -> Outcome {
        match driver.number == self.handle {
            true => Ok(()),
            false => Err(self.unknown("driver", driver.number)),
        }
    }

    /// Returns its extensions with their versions.
    pub(crate) fn extensions(&self) -> Vec<(&'static str, u32)> {
        let first_version = 0x1_0000;
        let all = [
            ("ZE_experimental_relaxed_allocation_limits", !self.settings.has(Quirk::NoRelaxedLimits)),
            ("ZE_extension_pci_properties", !self.settings.has(Quirk::NoPci)),
            ("ZE_extension_device_usablemem_size_properties", self.settings.has(Quirk::UsableMemory)),
        ];
        all.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| (*name, first_version)).collect()
    }
}

/// Starts the driver. Programs may call this repeatedly.
pub(crate) fn start(session: &mut Session) -> Outcome {
    if session.start == Start::Succeeded {
        return Ok(());
    }
    if session.settings.mistake {
        return Err(<Refusal as sim_engine::Code>::UNKNOWN);
    }
    <Driver as sim_engine::Face>::lock().own();
    session.find_devices();
    if session.devices.is_empty() {
        return Err(Refusal::UNINITIALIZED);
    }
    session.start = Start::Succeeded;
    let with_sysman = std::env::var("ZES_ENABLE_SYSMAN").is_ok_and(|value| value == "1");
    session.sysman = with_sysman && !session.settings.has(Quirk::NoSysman);
    Ok(())
}
