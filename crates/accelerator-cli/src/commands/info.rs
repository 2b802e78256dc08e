use std::io::Write;
use std::process::ExitCode;

use accelerator_core::{Accelerator, Backend, Bytes, MemoryInfo, MemoryInfoSource, Result};
use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};

use crate::backends::{Choice, Job, Offered};
use crate::failure::Failure;

/// What to show.
#[derive(Args)]
pub struct Arguments {
    /// Only the devices of this backend [default: of all, without the simulated one]
    #[arg(long, value_enum)]
    backend: Option<Choice>,
}

/// The devices, and why there are no more.
struct Devices {
    table: Table,
    missing: Vec<(String, String)>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["device", "name", "memory", "free", "driver"]);
    let mut devices = Devices { table, missing: Vec::new() };
    match arguments.backend {
        Some(backend) => backend.run(&mut devices),
        None => {
            let real = Choice::value_variants().iter().filter(|backend| **backend != Choice::Sim);
            real.for_each(|backend| backend.run(&mut devices));
        }
    }
    let Devices { table, missing } = devices;
    let mut out = std::io::stdout().lock();
    if !table.is_empty() {
        writeln!(out, "{table}")?;
    }
    for (device, reason) in missing {
        writeln!(out, "{device} is not available: {reason}")?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Job for &mut Devices {
    type Outcome = ();

    fn with<B: Offered>(self) {
        let count = B::probe().unwrap_or_else(|unavailable| {
            self.missing.push((B::KIND.to_string(), unavailable.reason));
            0
        });
        for ordinal in 0..count {
            if let Err(error) = add_device::<B>(&mut self.table, ordinal) {
                self.missing.push((format!("{}:{ordinal}", B::KIND), error.to_string()));
            }
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
