use accelerator::{Buffer, Error, MIB, memory};
use accelerator_tracker::history::{HistoryOptions, dump_snapshot, record_memory_history};

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    record_memory_history(HistoryOptions::default(), None)?;
    // Called for each request that fails, before the error is returned.
    memory::attach_out_of_memory_observer(None, |report| {
        eprintln!("{report}");
        if let Err(error) = dump_snapshot("out-of-memory.pickle") {
            eprintln!("no snapshot: {error}");
        }
    })?;

    let device = memory::get_memory_info(None)?;
    let _model = Buffer::allocate(64 * MIB, None)?;
    let Err(Error::OutOfMemory(report)) = Buffer::allocate(device.total, None) else {
        return Err("all the memory of the device was handed out, in addition to the model's".into());
    };
    assert_eq!(report.requested, device.total);
    assert_eq!((report.allocated, report.reserved), (64 * MIB, 64 * MIB));
    println!("what may help: {:?}", report.advice);
    assert!(std::fs::metadata("out-of-memory.pickle")?.len() > 0); // for `accel report`
    Ok(())
}
