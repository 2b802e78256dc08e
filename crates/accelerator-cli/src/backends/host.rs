#![allow(unsafe_code)] // memory of the backend

use std::slice;

use accelerator_host::{Host, Touched};

use super::{CAPACITY, Launched, Offered, Saxpy};

pub(super) fn offered() -> Offered<Host> {
    Offered::new()
        .about("The host's memory, reserved but not touched")
        .variables(&["ACCELERATOR_HOST_DEVICES", "ACCELERATOR_HOST_CAPACITY", "ACCELERATOR_HOST_INHERITED"])
        .open(|capacity| Ok(Host::new(0, capacity.unwrap_or(CAPACITY))))
        .kernel(saxpy)
}

fn saxpy(Saxpy { backend, stream, a, x, y, count }: Saxpy<Host>) -> Launched {
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
