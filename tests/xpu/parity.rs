//! PyTorch's traces on the simulated driver.

use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::programs::{long, parity};
use crate::recorded;
use crate::rig::{simulated, unchecked};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("parity::oracle", ROOM, || parity::all::<Xpu>(recorded::whole("oracle"))),
        simulated("parity::settings", ROOM, || parity::all::<Xpu>(recorded::whole("settings"))),
        long(simulated("parity::models", ROOM, || parity::all::<Xpu>(recorded::models()))),
        // Old loaders' checks refuse virtual memory.
        long(unchecked("parity::expandable", ROOM, || parity::all::<Xpu>(parity::expandable()))),
    ]
}

/// More than any trace needs. The replay sets the actual capacity.
const ROOM: &[(&str, &str)] = &[("ZE_SIM_MEMORY", "1024G")];
