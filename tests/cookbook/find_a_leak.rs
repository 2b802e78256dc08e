use std::collections::BTreeMap;
use std::error::Error;

use accelerator::{BlockState, Buffer, MIB};
use accelerator_tracker::history::{HistoryOptions, record_memory_history, snapshot};
use accelerator_tracker::tracker::scope;

pub fn main() -> Result<(), Box<dyn Error>> {
    record_memory_history(HistoryOptions::default(), None)?; // of the current device, from here on
    let mut log = Vec::new();
    for _ in 0..5 {
        train_step(&mut log)?;
    }

    // What is still in use, by the place that allocated it: its scope, followed by its stack.
    let mut in_use: BTreeMap<String, u64> = BTreeMap::new();
    for block in snapshot()?.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state == BlockState::Allocated {
            let place = block.frames.last().map_or("outside all scopes", |frame| &*frame.name);
            *in_use.entry(place.to_owned()).or_default() += block.size;
        }
    }
    for (place, bytes) in &in_use {
        println!("{} MiB from {place}", bytes >> 20);
    }
    assert_eq!(in_use, [("step.logging".to_owned(), 15 << 20)].into());
    Ok(())
}

fn train_step(log: &mut Vec<Buffer>) -> accelerator::Result<()> {
    let _step = scope("step");
    let loss = {
        let _forward = scope("forward");
        Buffer::allocate(3 * MIB, None)?
    };
    let _logging = scope("logging");
    let mut copy = Buffer::allocate(loss.len(), None)?;
    copy.copy_from(&loss)?;
    log.push(copy); // the leak: device memory, where a number was meant
    Ok(())
}
