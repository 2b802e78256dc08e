use accelerator::{Buffer, MIB, Result, memory, reset_accumulated_memory_stats, reset_peak_memory_stats};

pub fn main() -> Result<()> {
    let weights = Buffer::allocate(64 * MIB, None)?;
    for number in 1..=3 {
        reset_peak_memory_stats(None)?; // the peaks begin with what is in use now
        reset_accumulated_memory_stats(None)?; // and the counters with 0
        step(&weights)?;
        let statistics = memory::statistics(None)?.unwrap_or_default();
        let peak = statistics.allocated_bytes.all.peak;
        let driver_calls = statistics.num_device_alloc;
        println!("step {number}: at most {} MiB in use, {driver_calls} calls to the driver", peak >> 20);
        assert_eq!(peak, 100 << 20);
        assert_eq!(driver_calls, if number == 1 { 2 } else { 0 }); // a step that repeats needs none
    }
    Ok(())
}

fn step(weights: &Buffer) -> Result<()> {
    let activations = Buffer::allocate(weights.len() / 2, None)?;
    let gradients = Buffer::allocate(4 * MIB, None)?;
    drop((activations, gradients));
    Ok(())
}
