use accelerator::{Buffer, Result, Stream, StreamGuard, current_stream, memory};

pub fn main() -> Result<()> {
    println!("on {}", current_stream(None)?.device());

    let weights = Buffer::from_slice(&[1.5f32; 1024], None)?; // `None`: the current device
    let mut copy = Buffer::allocate(weights.len(), None)?;

    let side = Stream::new(None)?; // its work runs beside that of the current stream
    side.wait_stream(&current_stream(None)?)?;
    let on_side = StreamGuard::new(&side)?; // `side` is the current stream from here on
    copy.copy_from(&weights)?;
    drop(on_side); // … to here
    drop(weights); // its memory is not reused before the copy is done

    current_stream(None)?.wait_stream(&side)?;
    assert_eq!(copy.to_vec::<f32>()?, [1.5; 1024]);
    println!("{}", memory::memory_summary_abbreviated(None)?);
    Ok(())
}
