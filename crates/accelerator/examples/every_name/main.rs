//! Calls everything that the tables of the README have a name for, on the host, and checks what each call answers.

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
    println!("every name of the README's tables answers as documented");
    Ok(())
}
