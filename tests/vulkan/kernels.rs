//! Compute shaders on our memory and streams.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use accelerator_conformance::unavailable;
use accelerator_core::{Accelerator, DriverError, DriverErrorKind, Error};
use accelerator_vulkan::{Argument, Kernel, Vulkan};
use libtest_mimic::{Completion, Failed, Trial};

use crate::rig::{Outcome, check_all_gone, device, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("kernels::saxpy_of_the_program_is_that_of_the_example", the_same),
        Trial::ignorable_test("kernels::saxpy_is_valid", valid),
        trial("kernels::saxpy_computes", computes),
        trial("kernels::wrong_arguments_are_refused", refused),
        trial("kernels::a_dropped_kernel_still_runs", dropped),
    ]
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/vulkan/examples").join(name)
}

fn the_same() -> Outcome {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/accelerator-cli/src/backends/saxpy-vulkan.spv");
    assert!(fs::read(program)? == fs::read(example("saxpy.spv"))?, "copy the example's file");
    Ok(())
}

/// Ignored without the validator, or failed if `ACCELERATOR_REQUIRE` lists `spirv-tools`.
fn valid() -> Result<Completion, Failed> {
    let status = Command::new("spirv-val").args(["--target-env", "vulkan1.1"]).arg(example("saxpy.spv")).status();
    match status {
        Ok(status) => {
            assert!(status.success(), "{status}");
            Ok(Completion::Completed)
        }
        Err(error) => {
            let why = format!("spirv-val does not start: {error}");
            Ok(Completion::ignored_with(unavailable("spirv-tools", &why)?))
        }
    }
}

/// Returns the code of the shader, which has two buffers and two values of 4 bytes.
pub(crate) fn code() -> io::Result<Vec<u8>> {
    fs::read(example("saxpy.spv"))
}

pub(crate) fn saxpy(device: &'static Accelerator<Vulkan>) -> Result<Kernel, Failed> {
    // SAFETY: The file is valid, which a trial checks. The shader has two buffers, and two values of 4 bytes.
    Ok(unsafe { device.backend().kernel(&code()?, c"main", 2, 8) }?)
}

fn computes() -> Outcome {
    computes_on(device()?)
}

/// Checks a kernel on buffers of this device.
pub(crate) fn computes_on(device: &'static Accelerator<Vulkan>) -> Outcome {
    let kernel = saxpy(device)?;
    for stream in [device.default_stream(), device.stream(0)?] {
        for (elements, groups) in [(1_u32, 1), (64, 1), (1_000, 16), (100_000, 3)] {
            let len = u64::from(elements) * 4;
            let (mut x, mut y) = (device.allocate(len, stream)?, device.allocate(len + 4, stream)?);
            let data: Vec<f32> = (0..elements).map(|i| (i % 1000) as f32).collect();
            x.slice_mut()?.write(&data, stream)?;
            y.slice_mut()?.write(&[data.as_slice(), &[5.0]].concat(), stream)?;
            let arguments =
                [Argument::value(&2.0_f32), Argument::Buffer(&x), Argument::value(&elements), Argument::Buffer(&y)];
            for _ in 0..20 {
                // SAFETY: The arguments are those of the shader, which stays within the buffers.
                unsafe { kernel.launch(stream, [groups, 1, 1], &arguments) }?;
            }
            let expected: Vec<f32> = data.iter().map(|x| 41.0 * x).chain([5.0]).collect();
            assert!(y.slice::<f32>()?.to_vec(stream)? == expected, "{elements} elements in {groups} groups");
        }
    }
    drop(kernel);
    check_all_gone(device)
}

fn refused() -> Outcome {
    let device = device()?;
    let (kernel, stream) = (saxpy(device)?, device.default_stream());
    let (x, y) = (device.allocate(400, stream)?, device.allocate(400, stream)?);
    let none = device.allocate(0, stream)?;
    let (a, elements) = (Argument::value(&1.0_f32), Argument::value(&100_u32));
    let (x, y, none) = (Argument::Buffer(&x), Argument::Buffer(&y), Argument::Buffer(&none));
    for (groups, arguments, call) in [
        (1, &[x, a, elements][..], "vkCmdBindDescriptorSets"),
        (1, &[x, y, a], "vkCmdBindDescriptorSets"),
        (1, &[x, none, a, elements], "vkUpdateDescriptorSets"),
        (u32::MAX, &[x, y, a, elements], "vkCmdDispatch"),
    ] {
        // SAFETY: These are refused.
        let error = unsafe { kernel.launch(stream, [groups, 1, 1], arguments) }.unwrap_err();
        let Error::Driver { source: DriverError { kind, call: called, .. }, .. } = error else {
            return Err(error.into());
        };
        assert_eq!((kind, called), (DriverErrorKind::InvalidArgument, call));
    }
    let backend = device.backend();
    for (code, buffers, constants) in [(&[1, 2, 3][..], 1, 4), (&[0; 8], u32::MAX, 4), (&[0; 8], 1, 6)] {
        // SAFETY: These are refused.
        let error = unsafe { backend.kernel(code, c"main", buffers, constants) }.map(drop).unwrap_err();
        assert_eq!(error.kind, DriverErrorKind::InvalidArgument);
    }
    Ok(())
}

fn dropped() -> Outcome {
    let device = device()?;
    let stream = device.stream(0)?;
    let (mut x, mut y) = (device.allocate(4 << 20, stream)?, device.allocate(4 << 20, stream)?);
    x.slice_mut()?.write(&vec![1.0_f32; 1 << 20], stream)?;
    y.slice_mut()?.write(&vec![1.0_f32; 1 << 20], stream)?;
    for _ in 0..10 {
        let kernel = saxpy(device)?;
        let values = (3.0_f32, 1_u32 << 20);
        let arguments =
            [Argument::Buffer(&x), Argument::Buffer(&y), Argument::value(&values.0), Argument::value(&values.1)];
        // SAFETY: The arguments are those of the shader, which stays within the buffers.
        unsafe { kernel.launch(stream, [64, 1, 1], &arguments) }?;
    }
    drop(x);
    assert!(y.slice::<f32>()?.to_vec(stream)? == vec![31.0_f32; 1 << 20]);
    drop(y);
    check_all_gone(device)
}
