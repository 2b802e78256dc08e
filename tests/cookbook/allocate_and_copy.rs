use accelerator::{Buffer, Result, memory_allocated, memory_reserved};

pub fn main() -> Result<()> {
    let numbers: Vec<f32> = (0..1000).map(|n| n as f32).collect();
    let source = Buffer::from_slice(&numbers, None)?; // `None`: on the current device
    let mut copy = Buffer::allocate(source.len(), None)?; // its contents are arbitrary
    copy.copy_from(&source)?; // returns at once: the copy is work of the current stream
    assert_eq!(copy.to_vec::<f32>()?, numbers); // waits for the stream

    // A block is a multiple of 512 bytes, and the device was asked for a segment of 2 MiB.
    assert_eq!((copy.len(), copy.block_size()), (4000, 4096));
    assert_eq!(memory_allocated(None)?, 2 * 4096);
    assert_eq!(memory_reserved(None)?, 2 << 20);

    drop(source); // back to the cache, not to the device
    assert_eq!(memory_allocated(None)?, 4096);
    assert_eq!(memory_reserved(None)?, 2 << 20);
    Ok(())
}
