use std::{env, thread};

use accelerator_core::{Accelerator, Backend, Bytes, MemoryInfo, MemoryInfoSource};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Returns names and values that describe the device, as its driver reports them, the machine and the date, with those
/// of the backend's environment variables that are set.
pub(super) fn facts<B: Backend>(accelerator: &Accelerator<B>, variables: &[&str]) -> Vec<(&'static str, String)> {
    let properties = accelerator.properties();
    let memory = accelerator.memory_info().map_or_else(|error| error.to_string(), memory);
    let threads = thread::available_parallelism().map_or(0, usize::from);
    let mut facts = vec![
        ("device", format!("{} ({})", properties.name, accelerator.device())),
        ("driver", properties.driver.clone()),
        ("memory", memory),
    ];
    facts.extend(properties.uuid.map(|uuid| ("UUID", uuid.to_string())));
    facts.extend(properties.pci_address.map(|address| ("PCI address", address.to_string())));
    facts.push(("host", format!("{} {}, {threads} hardware threads", env::consts::OS, env::consts::ARCH)));
    facts.extend(nvidia_module().map(|module| ("NVIDIA kernel module", module)));
    let set = variables.iter().filter_map(|name| Some(format!("{name}={}", env::var(name).ok()?)));
    let set: Vec<_> = set.collect();
    if !set.is_empty() {
        facts.push(("environment", set.join(" ")));
    }
    let build = if cfg!(debug_assertions) { "debug build, so times mean little" } else { "release build" };
    // All crates of the workspace have the same version.
    facts.push(("accel and core", format!("{}, {build}", env!("CARGO_PKG_VERSION"))));
    facts.push(("date", now()));
    facts
}

fn memory(memory: MemoryInfo) -> String {
    let MemoryInfo { free, total, source, .. } = memory;
    let by = match source {
        MemoryInfoSource::Accounting => ", counting only this process",
        _ => "",
    };
    format!("{} free of {}{by}", Bytes(free), Bytes(total))
}

fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let whole = now.replace_nanosecond(0).unwrap_or(now);
    whole.format(&Rfc3339).unwrap_or_else(|error| error.to_string())
}

/// Returns the version of the NVIDIA kernel module, which CUDA does not report. The file begins with
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15 …`.
fn nvidia_module() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let words = text.lines().next()?.trim_start_matches("NVRM version:").split_whitespace();
    Some(words.collect::<Vec<_>>().join(" "))
}
