//! The SPIR-V of the XPU backend's example, which `accel verify` uses too. It must match its assembly text, be the same
//! in both places, and compute the right result on an OpenCL driver that accepts SPIR-V, because the backend has not
//! run on hardware.
#![allow(unsafe_code)] // calls the driver

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, ptr};

use accelerator_conformance::unavailable;
use accelerator_core::{Accelerator, Backend};
use accelerator_opencl::cl3::error_codes::error_text;
use accelerator_opencl::cl3::types::{cl_int, cl_kernel};
use accelerator_opencl::cl3::{command_queue, device, event, kernel, program};
use accelerator_opencl::{KernelArgument, OpenCl};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() -> ExitCode {
    let trials = vec![
        Trial::ignorable_test("saxpy::is_assembled_from_its_text", assembled),
        Trial::test("saxpy::of_the_program_is_that_of_the_example", the_same),
        Trial::ignorable_test("saxpy::computes_for_any_number_and_group", computes),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/xpu/examples").join(name)
}

/// Ignored without the assembler, or failed if `ACCELERATOR_REQUIRE` lists `spirv-tools`.
fn assembled() -> Result<Completion, Failed> {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("saxpy.spv");
    let mut command = Command::new("spirv-as");
    command.args(["--target-env", "opencl2.0"]).arg(example("saxpy.spvasm")).arg("-o").arg(&output);
    let status = match command.status() {
        Ok(status) => status,
        Err(error) => {
            return Ok(Completion::ignored_with(unavailable(
                "spirv-tools",
                &format!("spirv-as does not start: {error}"),
            )?));
        }
    };
    assert!(status.success(), "{status}");
    assert!(fs::read(output)? == fs::read(example("saxpy.spv"))?, "assemble saxpy.spvasm again, and copy it");
    let valid = Command::new("spirv-val").args(["--target-env", "opencl2.0"]).arg(example("saxpy.spv")).status()?;
    assert!(valid.success(), "{valid}");
    Ok(Completion::Completed)
}

fn the_same() -> Result<(), Failed> {
    let of_program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/accelerator-cli/src/backends/saxpy.spv");
    assert!(fs::read(of_program)? == fs::read(example("saxpy.spv"))?, "copy the example's file");
    Ok(())
}

/// Ignored if the first device does not accept SPIR-V, like PoCL's in many builds.
fn computes() -> Result<Completion, Failed> {
    if let Err(why) = OpenCl::probe() {
        return Ok(Completion::ignored_with(unavailable(OpenCl::KIND.name(), &why.reason)?));
    }
    let accelerator = Accelerator::<OpenCl>::open(0)?;
    let (_, id) = accelerator.backend().native();
    let languages = device::get_device_info(id, device::CL_DEVICE_IL_VERSION).map(String::from);
    if !languages.unwrap_or_default().contains("SPIR-V") {
        return Ok(Completion::ignored_with(format!("{} does not accept SPIR-V", accelerator.properties().name)));
    }
    let saxpy = compile(accelerator.backend())?;
    for elements in [1, 63, 64, 1000, 65_537] {
        for group in [1, 7, 64, 128] {
            check(saxpy, accelerator, elements, group)?;
        }
    }
    // SAFETY: No launch of it is running, and it is not used again.
    called(unsafe { kernel::release_kernel(saxpy) })?;
    Ok(Completion::Completed)
}

fn compile(backend: &OpenCl) -> Result<cl_kernel, Failed> {
    let (context, device) = backend.native();
    let program = called(program::create_program_with_il(context, &fs::read(example("saxpy.spv"))?))?;
    called(program::build_program(program, &[device], c"", None, ptr::null_mut()))?;
    let saxpy = called(kernel::create_kernel(program, c"saxpy"))?;
    // SAFETY: It is a program, which the kernel keeps alive.
    called(unsafe { program::release_program(program) })?;
    Ok(saxpy)
}

/// Launches more threads than there are elements, and checks the memory after the last element.
fn check(
    saxpy: cl_kernel,
    accelerator: &'static Accelerator<OpenCl>,
    elements: usize,
    group: usize,
) -> Result<(), Failed> {
    let (stream, threads) = (accelerator.default_stream(), elements.next_multiple_of(group) + group);
    let x: Vec<f32> = (0..threads).map(|i| (i % 1000 + 1) as f32).collect();
    let y: Vec<f32> = (0..threads).map(|i| (i % 777 + 1) as f32).collect();
    let size = size_of_val(x.as_slice()) as u64;
    let (mut of_x, mut of_y) = (accelerator.allocate(size, stream)?, accelerator.allocate(size, stream)?);
    of_x.slice_mut()?.write(&x, stream)?;
    of_y.slice_mut()?.write(&y, stream)?;
    {
        let arguments = (KernelArgument::new(&of_x, stream)?, KernelArgument::new(&of_y, stream)?);
        set(saxpy, 0, &(elements as u32))?;
        set(saxpy, 1, &3.0_f32)?;
        set(saxpy, 2, &arguments.0.native())?;
        set(saxpy, 3, &arguments.1.native())?;
        let (queue, none) = (stream.native().native(), ptr::null());
        // SAFETY: The arguments are set and kept alive until here, and both have as many elements as there are threads.
        let launched =
            unsafe { command_queue::enqueue_nd_range_kernel(queue, saxpy, 1, none, &threads, &group, 0, ptr::null()) };
        // SAFETY: The call returned a reference that we own.
        called(unsafe { event::release_event(called(launched)?) })?;
    }
    let result: Vec<f32> = of_y.slice()?.to_vec(stream)?;
    for (i, found) in result.into_iter().enumerate() {
        let expected = if i < elements { 3.0 * x[i] + y[i] } else { y[i] };
        assert_eq!(found, expected, "element {i} of {elements}, in groups of {group}");
    }
    Ok(())
}

fn set<T>(kernel: cl_kernel, place: u32, value: &T) -> Result<(), Failed> {
    let at = ptr::from_ref(value).cast();
    // SAFETY: The call copies the value and compares its size with the parameter's.
    called(unsafe { kernel::set_kernel_arg(kernel, place, size_of::<T>(), at) })
}

fn called<T>(answer: Result<T, cl_int>) -> Result<T, Failed> {
    answer.map_err(|code| format!("{} ({code})", error_text(code)).into())
}
