//! Two devices.

use accelerator_core::{Accelerator, Error, MIB};
use libtest_mimic::Failed;

use super::process::Outcome;
use super::simulated::{Simulated, check_all_gone, device_numbered, give_back};

type Device<B> = &'static Accelerator<B>;

pub(crate) fn two<B: Simulated>() -> Result<(Device<B>, Device<B>), Failed> {
    Ok((device_numbered(0)?, device_numbered(1)?))
}

/// A copy runs after earlier work of the source's stream and before later work.
pub(crate) fn copies<B: Simulated>() -> Outcome {
    let (here, there) = two::<B>()?;
    for round in 0..40 {
        let (from, to) = if round % 2 == 0 { (here, there) } else { (there, here) };
        let (source_stream, stream) = (from.stream(0)?, to.stream(0)?);
        let mut source = from.allocate(MIB + round, source_stream)?;
        let mut destination = to.allocate(2 * MIB, stream)?;
        source.fill(round as u8, source_stream)?;
        destination.copy_from(&source, stream)?;
        source.fill(0xee, source_stream)?;
        drop(source);
        from.allocate(MIB + round, source_stream)?.fill(0xdd, source_stream)?; // reuses the same memory
        let mut read = vec![0; (MIB + round) as usize];
        destination.read(0, &mut read, stream)?;
        assert!(read.iter().all(|byte| *byte == round as u8), "round {round}");
    }
    give_back(here)?;
    check_all_gone(there)
}

/// The facade's copies are ordered by the current streams, whichever streams the buffers belong to.
pub(crate) fn facade<B: Simulated>() -> Outcome {
    use accelerator::{Buffer, Stream, StreamGuard};

    for round in 0..20 {
        let mut source = Buffer::allocate(MIB, 0)?;
        let mut destination = Buffer::allocate(MIB, 1)?;
        assert_eq!(source.device().to_string(), format!("{}:0", B::KIND));
        source.fill(1)?;
        let side = Stream::new(0)?;
        side.wait_stream(&accelerator::current_stream(0)?)?;
        let guard = StreamGuard::new(&side)?;
        source.fill(2 + round)?;
        destination.copy_from(&source)?;
        source.fill(3 + round)?;
        drop(source);
        drop(guard);
        let mut again = Buffer::allocate(MIB, 0)?;
        again.fill(0xee)?;
        assert_eq!(destination.to_vec::<u8>()?, vec![2 + round; MIB as usize], "round {round}");
    }
    Ok(())
}

pub(crate) fn wrong_stream<B: Simulated>() -> Outcome {
    let (here, there) = two::<B>()?;
    let source = here.allocate(100, here.default_stream())?;
    let mut destination = there.allocate(100, there.default_stream())?;
    let refused = destination.copy_from(&source, here.default_stream());
    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    let mut short = there.allocate(50, there.default_stream())?;
    let refused = short.copy_from(&source, there.default_stream());
    assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
    Ok(())
}

/// Whichever of a copy's calls fails, the source is not reused before the copy is done. A direct copy succeeds exactly
/// if it is made.
pub(crate) fn every_call_in_turn<B: Simulated>(calls: u64, is_direct: bool) -> Outcome {
    let (here, there) = two::<B>()?;
    let (source_stream, stream) = (here.stream(0)?, there.stream(0)?);
    for call in 1..=calls {
        let mut source = here.allocate(MIB, source_stream)?;
        let mut destination = there.allocate(MIB, stream)?;
        destination.fill(1, stream)?;
        source.fill(2, source_stream)?;
        B::fail_at(call, B::REFUSED);
        let copied = destination.copy_from(&source, stream);
        B::clear_faults();
        source.fill(3, source_stream)?;
        drop(source);
        here.allocate(MIB, source_stream)?.fill(4, source_stream)?;
        let mut read = vec![0; MIB as usize];
        destination.read(0, &mut read, stream)?;
        let whole = |byte: u8| read.iter().all(|read| *read == byte);
        let is_right = whole(if copied.is_ok() { 2 } else { 1 }) || (!is_direct && whole(2));
        assert!(is_right, "call {call}: {copied:?}, {}", read[0]);
    }
    give_back(here)?;
    check_all_gone(there)
}
