//! Calls every name in the README's tables on the host, and checks the results.

mod buffers;
mod devices;
mod events;
mod graphs;
mod memory;
mod streams;
mod tracker;

use std::error::Error;

use accelerator::set_accelerator;

fn main() -> Result<(), Box<dyn Error>> {
    set_accelerator("host")?;
    memory::before_the_first_allocation()?;
    devices::run()?;
    streams::run()?;
    events::run()?;
    buffers::run()?;
    graphs::run()?;
    memory::run()?;
    tracker::run()?;
    println!("every name in the README's tables works as documented");
    Ok(())
}
