//! What is said if there is no loader, no driver, or no device as wanted. Each case runs a trial in its own process.

use std::env;
use std::process::Command;

use accelerator_core::Backend;
use accelerator_vulkan::Vulkan;
use libtest_mimic::Trial;

use crate::rig::{Outcome, trial};

/// Needs a device, and uses none of its abilities.
const NEEDS_A_DEVICE: &str = "limits::the_device_gives_what_it_has";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("absent::no_loader", no_loader),
        Trial::test("absent::a_library_that_is_no_loader", no_vulkan),
        Trial::test("absent::no_driver", no_driver),
        Trial::test("absent::malformed_variables", malformed),
        trial("absent::no_device_of_this_name", no_such_name),
        trial("absent::no_queues_of_this_family", no_such_family),
        trial("absent::entries_choose_the_device", chosen),
    ]
}

/// Runs a trial that needs a device with these variables. Returns whether it passed, and its output.
fn run(variables: &[(&str, &str)]) -> Result<(bool, String), libtest_mimic::Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", NEEDS_A_DEVICE]).env("ACCELERATOR_REQUIRE", "vulkan").envs(variables.iter().copied());
    let output = command.output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

/// Checks that the trial failed and that its output contains each text.
fn says(variables: &[(&str, &str)], texts: &[&str]) -> Outcome {
    let (passed, output) = run(variables)?;
    assert!(!passed, "{output}");
    for text in texts {
        assert!(output.contains(text), "`{text}` in {output}");
    }
    Ok(())
}

fn no_loader() -> Outcome {
    says(
        &[("ACCELERATOR_VULKAN_LOADER", "/no/such/libvulkan.so")],
        &["there is no Vulkan loader (", "/no/such/libvulkan.so: ", "ACCELERATOR_VULKAN_LOADER must name the file"],
    )
}

fn no_vulkan() -> Outcome {
    says(&[("ACCELERATOR_VULKAN_LOADER", "libc.so.6")], &["the library is not a Vulkan loader: "])
}

fn no_driver() -> Outcome {
    let none = "/no/such/driver.json";
    let (passed, output) = run(&[("VK_DRIVER_FILES", none), ("VK_ICD_FILENAMES", none)])?;
    let call = "vkCreateInstance failed: VK_ERROR_INCOMPATIBLE_DRIVER (code -9): the Vulkan loader found no driver";
    assert!(!passed && (output.contains(call) || output.contains("there is no Vulkan loader (")), "{output}");
    Ok(())
}

fn malformed() -> Outcome {
    says(
        &[("ACCELERATOR_VULKAN_CAPACITY", "lots")],
        &["ACCELERATOR_VULKAN_CAPACITY must be a size above 0, such as 16GiB, but is \"lots\""],
    )?;
    says(
        &[("ACCELERATOR_VULKAN_QUEUES", "fast")],
        &["ACCELERATOR_VULKAN_QUEUES must be `compute`, `graphics` or the number of a queue family", "but is \"fast\""],
    )
}

fn no_such_name() -> Outcome {
    let name = Vulkan::with_capacity(0, None)?.properties().name.clone();
    says(
        &[("ACCELERATOR_VULKAN_DEVICES", "no such device")],
        &["ACCELERATOR_VULKAN_DEVICES is `no such device`, which matches none of the devices: ", &name],
    )
}

fn no_such_family() -> Outcome {
    says(
        &[("ACCELERATOR_VULKAN_QUEUES", "1000")],
        &["ACCELERATOR_VULKAN_QUEUES asks for `1000`, but the queue families that run kernels are 0"],
    )
}

fn chosen() -> Outcome {
    let name = Vulkan::with_capacity(0, None)?.properties().name.to_uppercase();
    for (devices, queues) in [(name.as_str(), "compute:1"), ("gpu,cpu,other", ":1"), ("", "compute")] {
        let (passed, output) = run(&[("ACCELERATOR_VULKAN_DEVICES", devices), ("ACCELERATOR_VULKAN_QUEUES", queues)])?;
        assert!(passed, "{devices}, {queues}: {output}");
    }
    Ok(())
}
