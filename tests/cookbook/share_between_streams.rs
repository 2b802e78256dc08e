use std::sync::mpsc::channel;

use accelerator::host::{self, Host};
use accelerator::{Buffer, MIB, Result, Stream, memory};

pub fn main() -> Result<()> {
    let side = Stream::new(None)?;
    let (go, wait) = channel();
    let shared = Buffer::allocate(MIB, None)?; // it belongs to the current stream
    let address = address_of(&shared)?;

    // Work of another library, on the native stream: this library does not see which memory it uses.
    host::launch(side.typed()?, (), move |()| wait.recv().unwrap_or_default())?;
    shared.record_stream(&side)?; // so say it, after the work was submitted and before the buffer is dropped
    drop(shared);

    // The memory waits for `side`: it is no longer allocated, but still active, and nobody else gets it.
    assert_eq!(active_and_allocated()?, (1 << 20, 0));
    let other = Buffer::allocate(MIB, None)?;
    assert_ne!(address_of(&other)?, address);

    go.send(()).ok();
    side.synchronize()?;
    let again = Buffer::allocate(MIB, None)?; // an allocation finds out which streams are done
    assert_eq!(address_of(&again)?, address);
    Ok(())
}

fn address_of(buffer: &Buffer) -> Result<Option<*mut u8>> {
    Ok(buffer.typed::<Host>()?.ptr().map(|ptr| ptr.as_ptr()))
}

fn active_and_allocated() -> Result<(i64, i64)> {
    let statistics = memory::statistics(None)?.unwrap_or_default();
    Ok((statistics.active_bytes.all.current, statistics.allocated_bytes.all.current))
}
