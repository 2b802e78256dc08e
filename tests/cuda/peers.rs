//! Two devices.

use accelerator_core::{Accelerator, Error, MIB};
use accelerator_cuda::Cuda;
use libtest_mimic::{Failed, Trial};

use crate::rig::{self, Outcome, check_all_gone, device_numbered, give_back, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("peers::copies::seed_1", SEED_1, copies),
        trial("peers::copies::seed_2", SEED_2, copies),
        trial("peers::copies::seed_3", SEED_3, copies),
        trial("peers::facade::seed_1", SEED_1, facade),
        trial("peers::facade::seed_2", SEED_2, facade),
        trial("peers::access", SEED_1, access),
        trial("peers::wrong_stream", SEED_1, wrong_stream),
        trial("peers::every_call_in_turn", SEED_1, every_call_in_turn),
    ]
}

const SEED_1: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "2")];
const SEED_3: &[(&str, &str)] = &[("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_SEED", "3")];

type Device = &'static Accelerator<Cuda>;

fn two() -> Result<(Device, Device), Failed> {
    Ok((device_numbered(0)?, device_numbered(1)?))
}

/// The copy comes behind what the source's stream was given before, and ahead of what it is given after.
fn copies() -> Outcome {
    let (here, there) = two()?;
    for round in 0..40 {
        let (from, to) = if round % 2 == 0 { (here, there) } else { (there, here) };
        let (source_stream, stream) = (from.stream(0)?, to.stream(0)?);
        let mut source = from.allocate(MIB + round, source_stream)?;
        let mut destination = to.allocate(2 * MIB, stream)?;
        source.fill(round as u8, source_stream)?;
        destination.copy_from(&source, stream)?;
        source.fill(0xee, source_stream)?;
        drop(source);
        from.allocate(MIB + round, source_stream)?.fill(0xdd, source_stream)?; // the same memory again
        let mut read = vec![0; (MIB + round) as usize];
        destination.read(0, &mut read, stream)?;
        assert!(read.iter().all(|byte| *byte == round as u8), "round {round}");
    }
    give_back(here)?;
    check_all_gone(there)
}

/// The facade's copies come behind the current streams, whichever streams the buffers are of.
fn facade() -> Outcome {
    use accelerator::{Buffer, Stream, StreamGuard};

    for round in 0..20 {
        let mut source = Buffer::allocate(MIB, 0)?;
        let mut destination = Buffer::allocate(MIB, 1)?;
        source.fill(1)?;
        let side = Stream::new(0, 0)?;
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
    assert_eq!(rig::calls_of("cuMemcpyPeerAsync"), 20);
    Ok(())
}

fn access() -> Outcome {
    let (here, there) = two()?;
    assert!(here.backend().enable_peer_access(there.backend())?);
    let calls = rig::calls();
    assert!(here.backend().enable_peer_access(there.backend())?);
    assert!(here.backend().enable_peer_access(here.backend())?);
    assert_eq!(rig::calls(), calls, "each pair is tried once");
    Ok(())
}

fn wrong_stream() -> Outcome {
    let (here, there) = two()?;
    let source = here.allocate(100, here.default_stream())?;
    let mut destination = there.allocate(100, there.default_stream())?;
    let refused = destination.copy_from(&source, here.default_stream());
    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    let mut short = there.allocate(50, there.default_stream())?;
    let refused = short.copy_from(&source, there.default_stream());
    assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
    Ok(())
}

/// Whatever call of a copy fails, the source is not reused before the copy is done.
fn every_call_in_turn() -> Outcome {
    let (here, there) = two()?;
    let (source_stream, stream) = (here.stream(0)?, there.stream(0)?);
    for call in 1..20 {
        let mut source = here.allocate(MIB, source_stream)?;
        let mut destination = there.allocate(MIB, stream)?;
        destination.fill(1, stream)?;
        source.fill(2, source_stream)?;
        rig::fail_at(call, 1);
        let copied = destination.copy_from(&source, stream);
        rig::clear_faults();
        source.fill(3, source_stream)?;
        drop(source);
        here.allocate(MIB, source_stream)?.fill(4, source_stream)?;
        let mut read = vec![0; MIB as usize];
        destination.read(0, &mut read, stream)?;
        let whole = |byte: u8| read.iter().all(|read| *read == byte);
        assert!(whole(2) || (copied.is_err() && whole(1)), "call {call}: {copied:?}, {}", read[0]);
    }
    give_back(here)?;
    check_all_gone(there)
}
