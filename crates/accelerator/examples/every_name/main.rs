//! Calls every name in the README's tables on the host, and checks the results.

mod buffers;
mod devices;
mod events;
mod memory;
mod streams;

use accelerator::{Result, set_accelerator};

fn main() -> Result<()> {
    set_accelerator("host")?;
    memory::before_the_first_allocation()?;
    devices::run()?;
    streams::run()?;
    events::run()?;
    buffers::run()?;
    memory::run()?;
    println!("every name in the README's tables works as documented");
    Ok(())
}
