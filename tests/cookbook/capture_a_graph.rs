use accelerator::host::{self, Host};
use accelerator::{Buffer, CaptureOptions, Graph, Result, graph, memory};

pub fn main() -> Result<()> {
    let mut input = Buffer::from_slice(&[0.0f32; 256], None)?;
    let mut output = Buffer::from_slice(&[0.0f32; 256], None)?;

    // Captured, not executed: copies, fills and kernels on the stream of the capture, and on streams that wait for it.
    let mut step = Graph::new(None)?;
    let capture = graph(&mut step, CaptureOptions::default())?;
    let mut scratch = Buffer::allocate(1024, None)?; // from the graph's own pool
    scratch.copy_from(&input)?;
    let (from, to) = (scratch.typed::<Host>()?.slice::<f32>()?, output.typed_mut::<Host>()?.slice_mut::<f32>()?);
    host::launch_repeatable(capture.stream().typed()?, (from, to), |(from, to)| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = 2.0 * from);
    })?;
    drop(scratch); // the graph keeps its memory
    capture.end()?;

    for number in [1.0f32, 2.0] {
        input.slice_mut()?.write(0, &[number; 256])?; // the same buffers each time, with other contents
        // SAFETY: `input` and `output` exist until `to_vec` has waited for the work, and no other stream uses them.
        unsafe { step.replay()? };
        assert_eq!(output.to_vec::<f32>()?, [2.0 * number; 256]);
    }

    // The memory goes back when the graph is gone.
    let pool = step.pool().unwrap_or_default();
    assert_eq!(memory::reserved_by_private_pools(None)?[&pool].all.current, 2 << 20);
    drop(step);
    memory::empty_cache()?;
    assert_eq!(memory::reserved_by_private_pools(None)?[&pool].all.current, 0);
    Ok(())
}
