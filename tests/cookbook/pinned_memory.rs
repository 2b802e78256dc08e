use accelerator::{Buffer, PinnedBuffer, Result, memory};

pub fn main() -> Result<()> {
    let mut staging = PinnedBuffer::allocate(1 << 20, None)?; // pinned for the current device
    let mut on_device = Buffer::allocate(staging.len(), None)?;
    let mut result = PinnedBuffer::allocate(staging.len(), None)?;

    for round in 0..3u8 {
        staging.bytes_mut()?.fill(round); // waits for the copy that still reads it, if there is one
        on_device.copy_from_pinned(0, &staging, 0..staging.len())?; // returns at once
        on_device.copy_to_pinned(0..on_device.len(), &mut result, 0)?; // behind it, on the same stream
        assert!(result.bytes()?.iter().all(|byte| *byte == round)); // waits for this copy, and for nothing else
    }

    drop(staging); // to the cache of pinned memory: the next one of this size needs no driver call
    let again = PinnedBuffer::allocate(1 << 20, None)?;
    assert_eq!(memory::host_memory_stats(None)?["num_host_alloc"], 2);
    drop(again);
    Ok(())
}
