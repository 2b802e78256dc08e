#![allow(unsafe_code)] // memory of the backend

use std::slice;

use accelerator_conformance::AnyBackend;
use accelerator_core::{Buffer, Stream};
use accelerator_host::{Host, Touched};

use super::{Launched, Native};

pub(crate) fn saxpy(
    a: f32,
    x: &Buffer<AnyBackend>,
    y: &mut Buffer<AnyBackend>,
    stream: Stream<AnyBackend>,
) -> Launched {
    let Some(Native { backend, stream, x, y, count }) = Native::<Host>::of(x, y, stream)? else {
        return Ok(());
    };
    let bytes = count * size_of::<f32>();
    let touched = [Touched::new(x, bytes, false), Touched::new(y, bytes, true)];
    backend.run(stream, &touched, move || {
        // SAFETY: `x` is an aligned, initialised block of this many floats. Its use is recorded, so it is not reused
        // before the stream has finished with it. No work that writes to it runs at the same time.
        let x = unsafe { slice::from_raw_parts(x.as_ptr().cast::<f32>(), count) };
        // SAFETY: As above. `y` is a different block, and no other work on it runs at the same time.
        let y = unsafe { slice::from_raw_parts_mut(y.as_ptr().cast::<f32>(), count) };
        for (x, y) in x.iter().zip(y) {
            *y += a * x;
        }
    })?;
    Ok(())
}
