use accelerator::host::{self, Host};
use accelerator::{Buffer, Event, PinnedBuffer, Result, Stream, StreamGuard, current_stream};

pub fn main() -> Result<()> {
    let batches = [1.0f32, 2.0, 3.0, 4.0].map(|value| PinnedBuffer::from_slice(&[value; 50_000], None));
    let mut total = Buffer::from_slice(&[0.0f32], None)?;

    let compute = current_stream(None)?;
    let transfer = Stream::new(None)?;
    for batch in batches {
        let (on_device, arrived) = upload(&batch?, &transfer)?; // while `compute` still works on the batch before
        compute.wait_event(&arrived)?; // the device waits, this thread does not
        let (batch, total) = (on_device.typed::<Host>()?.slice()?, total.typed_mut::<Host>()?.slice_mut()?);
        host::launch(compute.typed()?, (batch, total), |(batch, total): (&[f32], &mut [f32])| {
            total[0] += batch.iter().sum::<f32>();
        })?;
    } // `on_device` is dropped here: its memory is reused once the kernel is done

    assert_eq!(total.to_vec::<f32>()?, [500_000.0]);
    Ok(())
}

/// Starts a copy to the device. The event says when it is done.
fn upload(batch: &PinnedBuffer, transfer: &Stream) -> Result<(Buffer, Event)> {
    let _guard = StreamGuard::new(transfer)?; // the current stream of this thread, to the end of the function
    let mut on_device = Buffer::allocate(batch.len(), None)?;
    on_device.copy_from_pinned(0, batch, 0..batch.len())?;
    let arrived = Event::new();
    arrived.record(None)?;
    Ok((on_device, arrived))
}
