#[path = "toy_backend.rs"]
mod toy_backend;

use std::error::Error;

use accelerator_conformance::{Selection, Suite};
use accelerator_core::{Accelerator, MIB};

use toy_backend::Toy;

pub fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: use
    let device = Accelerator::<Toy>::open(0)?;
    let stream = device.default_stream();
    let mut buffer = device.allocate(4 * MIB, stream)?; // from the cache, which the core keeps
    buffer.fill(7, stream)?;
    assert_eq!(buffer.slice::<u8>()?.to_vec(stream)?, vec![7; 4 << 20]);
    assert_eq!(device.allocator().statistics().reserved_bytes.all.current, 20 << 20);
    // ANCHOR_END: use

    // Most of the suite: the cases that are left out take a minute.
    let selection = Selection::default().without("D54").without("K94").without("(compact)");
    let report = Suite::<Toy>::new("toy").run(&selection);
    assert!(!report.has_failed());
    Ok(())
}
