//! The suite for the simulated device.

use super::{Capability, Suite};
use crate::sim::Sim;

impl Sim {
    /// Returns the suite for the simulated device, with the capabilities that it lacks.
    pub fn suite() -> Suite<Self> {
        Suite::new("sim")
            .lacks(Capability::Bytes, "the simulated device has addresses only")
            .lacks(Capability::Clock, "the simulated device has no clock")
    }
}
