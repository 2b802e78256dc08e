use accelerator_core::{Buffer, Stream};
use accelerator_host::{Host, launch};

use super::Launched;

pub(crate) fn saxpy(a: f32, x: &Buffer<Host>, y: &mut Buffer<Host>, stream: Stream<Host>) -> Launched {
    launch(stream, (x.slice::<f32>()?, y.slice_mut::<f32>()?), move |(x, y): (&[f32], &mut [f32])| {
        for (x, y) in x.iter().zip(y) {
            *y += a * x;
        }
    })?;
    Ok(())
}
