//! Modules and kernels. The engine knows some kernels by name.

use sim_engine::Kernel;

use crate::arguments::{KernelHandle, ModuleHandle};
use crate::result::{Outcome, Refusal};
use crate::state::{Driver, Handle};

pub(crate) struct Module {
    pub(crate) context: Handle,
    pub(crate) device: usize,
    /// The zero-terminated names of its entry points, known or not.
    pub(crate) names: Vec<std::ffi::CString>,
}

/// A program's kernel object.
pub(crate) struct KernelObject {
    pub(crate) module: Handle,
    pub(crate) kernel: Kernel,
    /// The bits of each argument, or `None` if it is not set yet.
    pub(crate) arguments: Vec<Option<u64>>,
    /// The threads of a group in each dimension.
    pub(crate) group: [u32; 3],
}

/// The maximum number of threads in a group.
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

    /// Destroys a module immediately. It is a violation if any of its kernels are left.
    pub(crate) fn destroy_module(&mut self, module: ModuleHandle) -> Outcome {
        self.module(module)?;
        if self.kernels.values().any(|kernel| kernel.module == module.number) {
            self.violation(format!("module {:#x} is destroyed before its kernels", module.number));
        }
        self.modules.remove(&module.number);
        Ok(())
    }

    /// Destroys a kernel immediately. It is a violation if a launch of it has not happened.
    pub(crate) fn destroy_kernel(&mut self, kernel: KernelHandle) -> Outcome {
        self.kernel(kernel)?;
        let launches = self
            .engine
            .pending(|operation| operation.mark.as_ref().is_some_and(|mark| mark.kernel == Some(kernel.number)));
        if !launches.is_empty() {
            self.violation(format!("kernel {:#x} is destroyed while it has yet to run", kernel.number));
        }
        self.kernels.remove(&kernel.number);
        Ok(())
    }
}
