use std::io::Write;
use std::process::ExitCode;

use accelerator_core::{Accelerator, Backend, Bytes, MemoryInfo, MemoryInfoSource, Result};
use accelerator_host::Host;
use comfy_table::{ContentArrangement, Table, presets};

use crate::failure::Failure;

/// Shows the devices, and why there are no more.
pub(super) fn run() -> Result<ExitCode, Failure> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["device", "name", "memory", "free", "driver"]);
    let mut missing = Vec::new();
    add::<Host>(&mut table, &mut missing);
    let mut out = std::io::stdout().lock();
    if !table.is_empty() {
        writeln!(out, "{table}")?;
    }
    for (device, reason) in missing {
        writeln!(out, "{device} is not available: {reason}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn add<B: Backend>(table: &mut Table, missing: &mut Vec<(String, String)>) {
    let count = B::probe().unwrap_or_else(|unavailable| {
        missing.push((B::KIND.to_string(), unavailable.reason));
        0
    });
    for ordinal in 0..count {
        if let Err(error) = add_device::<B>(table, ordinal) {
            missing.push((format!("{}:{ordinal}", B::KIND), error.to_string()));
        }
    }
}

fn add_device<B: Backend>(table: &mut Table, ordinal: u32) -> Result<()> {
    let accelerator = Accelerator::<B>::open(ordinal)?;
    let properties = accelerator.properties();
    let MemoryInfo { free, total, source } = accelerator.memory_info()?;
    let free = match source {
        MemoryInfoSource::Driver => Bytes(free).to_string(),
        MemoryInfoSource::Accounting => format!("{}, by own count", Bytes(free)),
    };
    table.add_row([
        accelerator.device().to_string(),
        properties.name.clone(),
        Bytes(total).to_string(),
        free,
        properties.driver.clone(),
    ]);
    Ok(())
}
