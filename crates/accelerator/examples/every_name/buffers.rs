//! Memory of devices, and pinned host memory.

use accelerator::{Buffer, Error, PinnedBuffer, Result, Stream, current_stream};

pub(crate) fn run() -> Result<()> {
    let side = Stream::new(None)?;
    let mut numbers = Buffer::from_slice(&[1_u32, 2, 3, 4], None)?;
    let mut copy = Buffer::allocate(numbers.len(), None)?;
    copy.fill(0)?;
    assert_eq!(copy.to_vec::<u32>()?, [0; 4]);
    copy.copy_from(&numbers)?;
    assert_eq!(copy.to_vec::<u32>()?, [1, 2, 3, 4]);
    let on_side = Buffer::allocate_on(16, &side)?;
    assert_eq!(on_side.stream_id(), side.id());
    on_side.record_stream(&current_stream(None)?)?;

    let pinned = PinnedBuffer::from_slice(&[5_u32, 6], None)?;
    let mut back = PinnedBuffer::allocate(16, None)?;
    numbers.copy_from_pinned(8, &pinned, 0..8)?;
    numbers.copy_to_pinned(0..16, &mut back, 0)?;
    assert_eq!(back.slice::<u32>()?, [1, 2, 5, 6]);

    // A process does not import its own memory.
    match copy.share() {
        #[allow(unsafe_code)]
        // SAFETY: No memory is imported.
        Ok(handle) => assert!(matches!(unsafe { Buffer::import(&handle, None) }, Err(Error::Sharing { .. }))),
        Err(error) => assert!(matches!(error, Error::Sharing { .. }), "{error}"), // not with every backend
    }
    Ok(())
}
