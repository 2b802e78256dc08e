use std::io::Write;
use std::process::ExitCode;

use accelerator_conformance::{Opened, Opener};
use accelerator_core::{Bytes, Error, MemoryInfo, MemoryInfoSource, Result, printable};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};

use crate::backends::{Backends, Entry};
use crate::failure::Failure;

/// The arguments of `accel info`.
#[derive(Args)]
pub struct Arguments {
    /// Show only the devices of this backend [default: all backends except sim]
    #[arg(long)]
    backend: Option<String>,
}

/// The devices that were found, and the reasons why others are not available.
struct Devices {
    table: Table,
    /// UUIDs and PCI addresses of devices, if their drivers report them.
    identities: Vec<String>,
    missing: Vec<(String, String)>,
}

pub(super) fn run(arguments: &Arguments, backends: &Backends) -> Result<ExitCode, Failure> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["device", "name", "memory", "free", "driver"]);
    let mut devices = Devices { table, identities: Vec::new(), missing: Vec::new() };
    match &arguments.backend {
        Some(name) => devices.add_all(&**backends.named(name)?),
        None => backends.real().for_each(|entry| devices.add_all(entry)),
    }
    let Devices { table, identities, missing } = devices;
    let mut out = std::io::stdout().lock();
    if !table.is_empty() {
        writeln!(out, "{table}")?;
    }
    for identity in identities {
        writeln!(out, "{identity}")?;
    }
    for (device, reason) in missing {
        writeln!(out, "{device} is not available: {reason}")?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Devices {
    fn add_all(&mut self, entry: &dyn Entry) {
        let name = entry.name();
        let count = entry.count().unwrap_or_else(|unavailable| {
            self.missing.push((name.to_owned(), unavailable.to_string()));
            0
        });
        for ordinal in 0..count {
            if let Err(error) = self.add(entry.opener(), ordinal) {
                let reason = match error {
                    Error::Driver { source, .. } => source.to_string(), // without the device, which is named before it
                    error => error.to_string(),
                };
                self.missing.push((format!("{name}:{ordinal}"), reason));
            }
        }
    }

    fn add(&mut self, opener: Opener, ordinal: u32) -> Result<()> {
        let Opened { device, properties, memory, .. } = opener.accelerator(ordinal)?;
        let MemoryInfo { free, total, source, .. } = memory?;
        let free = match source {
            MemoryInfoSource::Accounting => format!("{}, counting only this process", Bytes(free)),
            _ => Bytes(free).to_string(),
        };
        self.table.add_row([
            device.to_string(),
            printable(&properties.name),
            Bytes(total).to_string(),
            free,
            printable(&properties.driver),
        ]);
        let uuid = properties.uuid.map(|uuid| format!("UUID {uuid}"));
        let address = properties.pci_address.map(|address| format!("PCI address {address}"));
        let told: Vec<_> = uuid.into_iter().chain(address).collect();
        if !told.is_empty() {
            self.identities.push(format!("{device} has {}", told.join(", ")));
        }
        Ok(())
    }
}
