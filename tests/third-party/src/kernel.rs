use accelerator_cli::{Launched, Saxpy};

use crate::sample::Sample;

/// The kernel of `accel verify`.
///
/// # Errors
/// A pointer into no allocation.
pub fn saxpy(launch: Saxpy<Sample>) -> Launched {
    let Saxpy { backend, stream, a, x, y, count, .. } = launch;
    let bytes = count * size_of::<f32>();
    let (x, y) = (backend.memory.range("saxpy", x, bytes)?, backend.memory.range("saxpy", y, bytes)?);
    stream.submit(move || {
        let x = x.with(|x| x.to_vec());
        y.with(|y| {
            for (y, x) in y.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
                *y = (f32::from_ne_bytes(*y) + a * f32::from_ne_bytes(*x)).to_ne_bytes();
            }
        });
    });
    Ok(())
}
