//! Modules and kernels.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use level_zero_sys::*;

use crate::alone::{Alone, bare, valid};
use crate::control;
use crate::events::queue_and_list;
use crate::program::*;

pub(crate) fn trials() -> Vec<Alone> {
    vec![
        valid("kernels::compute", &[], compute),
        valid("kernels::take_their_arguments_at_the_launch", &[], arguments),
        valid("kernels::are_found_by_name", &[], names),
        valid("kernels::what_is_no_module_is_told", &[], wrong_modules),
        valid("kernels::destroyed_too_early_are_told", &[], too_early),
        valid("kernels::destroyed_before_their_list_runs_are_told", &[], gone),
        bare("kernels::refuse_what_the_specification_does", &[], refusals),
    ]
}

/// Returns a module whose entry points have these names and no code.
fn spirv(names: &[&str]) -> Vec<u8> {
    let mut words = vec![0x0723_0203_u32, 0x1_0000, 0, 8, 0];
    for (index, name) in names.iter().enumerate() {
        let mut text = name.as_bytes().to_vec();
        text.resize(text.len() / 4 * 4 + 4, 0);
        let operation = ((3 + text.len() / 4) as u32) << 16 | 15;
        words.extend([operation, 6, index as u32 + 1]);
        words.extend(text.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Program {
    fn module(&self, input: &[u8], log: *mut ze_module_build_log_handle_t) -> Outcome<ze_module_handle_t> {
        let desc = ze_module_desc_t {
            format: ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: input.len(),
            pInputModule: input.as_ptr(),
            ..Default::default()
        };
        made(|module| ze!(self, zeModuleCreate(self.context, self.devices[0], &raw const desc, module, log)))
    }

    fn kernel(&self, module: ze_module_handle_t, name: &str) -> Outcome<ze_kernel_handle_t> {
        let name = CString::new(name).unwrap();
        let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
        made(|kernel| ze!(self, zeKernelCreate(module, &raw const desc, kernel)))
    }

    fn argument<T>(&self, kernel: ze_kernel_handle_t, index: u32, value: T) -> Outcome {
        let (bytes, value) = (size_of::<T>(), (&raw const value).cast::<c_void>());
        done(ze!(self, zeKernelSetArgumentValue(kernel, index, bytes, value)))
    }

    fn launch(&self, list: List, kernel: ze_kernel_handle_t, groups: u32) -> Outcome {
        let count = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
        let none = ptr::null_mut();
        done(ze!(self, zeCommandListAppendLaunchKernel(list, kernel, &raw const count, none, 0, ptr::null_mut())))
    }

    fn upload(&self, list: List, to: u64, values: &[f32]) {
        self.copy(list, to, values.as_ptr() as u64, 4 * values.len()).unwrap();
        self.finish(list).unwrap();
    }

    fn floats(&self, list: List, from: u64, count: usize) -> Vec<f32> {
        let bytes = self.read(list, from, 4 * count);
        bytes.chunks_exact(4).map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
    }
}

fn compute() {
    let program = Program::start();
    let list = program.list(0);
    let module = program.module(&spirv(&["saxpy", "scale", "spin"]), ptr::null_mut()).unwrap();
    let saxpy = program.kernel(module, "saxpy").unwrap();
    let [x, y] = [program.device_memory(400).unwrap(), program.host_memory(400, 0).unwrap()];
    let values: Vec<f32> = (0..100).map(|index| index as f32).collect();
    for place in [x, y] {
        program.upload(list, place, &values);
    }
    program.argument(saxpy, 0, 70_u32).unwrap();
    program.argument(saxpy, 1, 2.0_f32).unwrap();
    program.argument(saxpy, 2, x).unwrap();
    program.argument(saxpy, 3, y).unwrap();
    done(ze!(program, zeKernelSetGroupSize(saxpy, 8, 4, 1))).unwrap();
    // Two groups have fewer threads than there are elements, three have more.
    for (groups, elements) in [(2, 64), (3, 70)] {
        program.upload(list, y, &values);
        program.launch(list, saxpy, groups).unwrap();
        let expected: Vec<f32> =
            (0..100).map(|index| if index < elements { 3.0 } else { 1.0 } * index as f32).collect();
        assert_eq!(program.floats(list, y, 100), expected);
    }
    let scale = program.kernel(module, "scale").unwrap();
    program.argument(scale, 0, 100_u32).unwrap();
    program.argument(scale, 1, 0.5_f32).unwrap();
    program.argument(scale, 2, x).unwrap();
    program.launch(list, scale, 100).unwrap();
    assert_eq!(program.floats(list, x, 3), [0.0, 0.5, 1.0]);
    let spin = program.kernel(module, "spin").unwrap();
    program.launch(list, spin, 1).unwrap();
    program.finish(list).unwrap();
    for kernel in [saxpy, scale, spin] {
        done(ze!(program, zeKernelDestroy(kernel))).unwrap();
    }
    done(ze!(program, zeModuleDestroy(module))).unwrap();
    assert!(!control::live().iter().any(|(what, _)| ["modules", "kernels", "build_logs"].contains(what)));
    control::expect_violations(0, &[]);
}

fn arguments() {
    let program = Program::start();
    let list = program.list(0);
    let module = program.module(&spirv(&["scale"]), ptr::null_mut()).unwrap();
    let scale = program.kernel(module, "scale").unwrap();
    let x = program.device_memory(4).unwrap();
    program.upload(list, x, &[1.0]);
    control::hold(list as usize);
    assert!(program.launch(list, scale, 1).is_err());
    control::expect_violations(0, &["run before all of its arguments are set"]);
    program.argument(scale, 0, 1_u32).unwrap();
    program.argument(scale, 2, x).unwrap();
    for factor in [3.0_f32, 5.0] {
        program.argument(scale, 1, factor).unwrap();
        program.launch(list, scale, 1).unwrap();
    }
    program.argument(scale, 1, 100.0_f32).unwrap();
    assert_eq!(program.floats(list, x, 1), [15.0]);
    // The address of freed memory.
    program.free(x).unwrap();
    program.launch(list, scale, 1).unwrap();
    assert_eq!(program.finish(list), Err(LOST));
    control::expect_violations(1, &["kernel scale on device 0"]);
}

fn names() {
    let program = Program::start();
    let module = program.module(&spirv(&["other", "saxpy"]), ptr::null_mut()).unwrap();
    let unknown = Err(ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
    let found = ["scale", "other", "sax"].map(|name| program.kernel(module, name).map(drop));
    assert_eq!(found, [unknown; 3], "not in the module, or unknown");
    let saxpy = program.kernel(module, "saxpy").unwrap();
    let mut text = [0 as c_char; 6];
    let mut bytes = 0;
    done(ze!(program, zeKernelGetName(saxpy, &raw mut bytes, ptr::null_mut()))).unwrap();
    assert_eq!(bytes, 6);
    done(ze!(program, zeKernelGetName(saxpy, &raw mut bytes, text.as_mut_ptr()))).unwrap();
    // SAFETY: the call writes a final zero.
    assert_eq!(unsafe { CStr::from_ptr(text.as_ptr()) }, c"saxpy");
    let mut count = 2;
    let mut names = [ptr::null(); 2];
    done(ze!(program, zeModuleGetKernelNames(module, &raw mut count, names.as_mut_ptr()))).unwrap();
    // SAFETY: as above.
    assert_eq!(names.map(|name| unsafe { CStr::from_ptr(name) }), [c"other", c"saxpy"]);
    let mut size = [0; 3];
    let [x, y, z] = &mut size;
    done(ze!(program, zeKernelSuggestGroupSize(saxpy, 3 * 512, 1, 1, x, y, z))).unwrap();
    assert_eq!(size, [768, 1, 1]);
}

fn wrong_modules() {
    let program = Program::start();
    let log = |input: &[u8]| {
        let (mut log, mut bytes) = (ptr::null_mut(), 0);
        let outcome = program.module(input, &raw mut log).map(drop);
        done(ze!(program, zeModuleBuildLogGetString(log, &raw mut bytes, ptr::null_mut()))).unwrap();
        let mut text = vec![0_u8; bytes];
        done(ze!(program, zeModuleBuildLogGetString(log, &raw mut bytes, text.as_mut_ptr().cast()))).unwrap();
        done(ze!(program, zeModuleBuildLogDestroy(log))).unwrap();
        (outcome, CString::from_vec_with_nul(text).unwrap().into_string().unwrap())
    };
    let failed = Err(ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    let (outcome, text) = log(b"kernel void saxpy() {}");
    assert!(outcome == failed && text.contains("magic number"), "{text}");
    let whole = spirv(&["saxpy"]);
    let (outcome, text) = log(&whole[..whole.len() - 4]);
    assert!(outcome == failed && text.contains("in the middle of an instruction"), "{text}");
    assert_eq!(log(&whole), (Ok(()), String::new()));
}

fn too_early() {
    let program = Program::start();
    let list = program.list(0);
    let module = program.module(&spirv(&["spin"]), ptr::null_mut()).unwrap();
    let spin = program.kernel(module, "spin").unwrap();
    control::hold(list as usize);
    program.launch(list, spin, 1).unwrap();
    done(ze!(program, zeModuleDestroy(module))).unwrap();
    done(ze!(program, zeKernelDestroy(spin))).unwrap();
    control::expect_violations(0, &["destroyed before its kernels", "destroyed while it has yet to run"]);
    program.finish(list).unwrap();
}

/// A closed list runs its kernel again only as long as the kernel exists.
fn gone() {
    let program = Program::start();
    let (queue, mut list) = queue_and_list(&program);
    let module = program.module(&spirv(&["spin"]), ptr::null_mut()).unwrap();
    let spin = program.kernel(module, "spin").unwrap();
    program.launch(list, spin, 1).unwrap();
    done(ze!(program, zeCommandListClose(list))).unwrap();
    let mut run = || done(ze!(program, zeCommandQueueExecuteCommandLists(queue, 1, &raw mut list, ptr::null_mut())));
    for _ in 0..2 {
        run().unwrap();
        done(ze!(program, zeCommandQueueSynchronize(queue, u64::MAX))).unwrap();
    }
    done(ze!(program, zeKernelDestroy(spin))).unwrap();
    assert_eq!(run(), Err(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT));
    control::expect_violations(0, &["which is destroyed"]);
}

fn refusals() {
    let program = Program::start();
    let (copies, module) = (program.list_on(0, 0, 1).unwrap(), program.module(&spirv(&["scale"]), ptr::null_mut()));
    let scale = program.kernel(module.unwrap(), "scale").unwrap();
    use ze_result_t as Result;
    assert_eq!(program.argument(scale, 3, 1_u32), Err(Result::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX));
    assert_eq!(program.argument(scale, 0, 1_u64), Err(Result::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE));
    let too_large = done(ze!(program, zeKernelSetGroupSize(scale, 1024, 2, 1)));
    assert_eq!(too_large, Err(Result::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION));
    assert_eq!(program.launch(copies, scale, 1), Err(Result::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE));
    assert!(program.list_on(0, 0, 2).is_err(), "there are two groups of queues");
}
