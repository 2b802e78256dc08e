//! Modules and kernels: the engine knows some by name.

use sim_engine::Kernel;

use crate::arguments::{KernelHandle, ModuleHandle};
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

pub(crate) struct Module {
    pub(crate) context: Handle,
    pub(crate) device: usize,
    /// The names of its entry points, known or not, each with a zero behind it.
    pub(crate) names: Vec<std::ffi::CString>,
}

/// A kernel as a program holds it.
pub(crate) struct KernelObject {
    pub(crate) module: Handle,
    pub(crate) kernel: Kernel,
    /// As bits; `None`: not set yet.
    pub(crate) arguments: Vec<Option<u64>>,
    /// Threads of a group, in each direction.
    pub(crate) group: [u32; 3],
}

/// The most threads that a group has.
pub(crate) const MAX_GROUP: u32 = 1024;

impl Driver {
    pub(crate) fn module(&mut self, module: ModuleHandle) -> Outcome<&mut Module> {
        if !self.modules.contains_key(&module.number) {
            return Err(self.unknown("module", module.number));
        }
        self.modules.get_mut(&module.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    pub(crate) fn kernel(&mut self, kernel: KernelHandle) -> Outcome<&mut KernelObject> {
        if !self.kernels.contains_key(&kernel.number) {
            return Err(self.unknown("kernel", kernel.number));
        }
        self.kernels.get_mut(&kernel.number).ok_or(Refusal::INVALID_ARGUMENT)
    }

    /// Takes a module away, at once; a violation if a kernel of it is left.
    pub(crate) fn destroy_module(&mut self, module: ModuleHandle) -> Outcome {
        self.module(module)?;
        if self.kernels.values().any(|kernel| kernel.module == module.number) {
            self.violation(format!("module {:#x} is destroyed before its kernels", module.number));
        }
        self.modules.remove(&module.number);
        Ok(())
    }

    /// Takes a kernel away, at once; a violation if a launch of it has not happened.
    pub(crate) fn destroy_kernel(&mut self, kernel: KernelHandle) -> Outcome {
        self.kernel(kernel)?;
        let launches = self.engine.pending(|operation| {
            operation.mark.as_ref().is_some_and(|mark| mark.kernel == Some(kernel.number))
        });
        if !launches.is_empty() {
            self.violation(format!("kernel {:#x} is destroyed while it has yet to run", kernel.number));
        }
        self.kernels.remove(&kernel.number);
        Ok(())
    }
}
