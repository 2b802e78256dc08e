//! Two devices.

use accelerator_core::{Backend, DriverErrorKind, Error, MIB};
use libtest_mimic::{Failed, Trial};

use crate::control::{self, REFUSED};
use crate::rig::{Device, Outcome, check_all_gone, device_numbered, give_back, simulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("peers::copies::seed_1", SEED_1, copies),
        simulated("peers::copies::seed_2", SEED_2, copies),
        simulated("peers::copies::seed_3", SEED_3, copies),
        simulated("peers::copies_through_the_host", APART, copies),
        simulated("peers::facade", SEED_1, facade),
        simulated("peers::are_direct", SEED_1, direct),
        simulated("peers::reach", SEED_1, reach),
        simulated("peers::do_not_reach", APART, do_not_reach),
        simulated("peers::wrong_stream", SEED_1, wrong_stream),
        simulated("peers::every_call_in_turn", SEED_1, every_call_in_turn),
        simulated("peers::every_call_in_turn_through_the_host", APART, every_call_in_turn),
    ]
}

const SEED_1: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "2")];
const SEED_3: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "3")];
const APART: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_PEERS", "0")];

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
        assert_eq!(source.device().to_string(), "xpu:0");
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
    Ok(())
}

/// One command, and no wait of the host.
fn direct() -> Outcome {
    let (here, there) = two()?;
    let (mut source, mut destination) =
        (there.allocate(MIB, there.default_stream())?, here.allocate(MIB, here.default_stream())?);
    source.fill(5, there.default_stream())?;
    let made = || ["zeCommandListAppendMemoryCopy", "zeEventHostSynchronize"].map(control::calls_of);
    let [copies, waits] = made();
    destination.copy_from(&source, here.default_stream())?;
    assert_eq!(made(), [copies + 1, waits]);
    let mut read = [0; 100];
    destination.read(0, &mut read, here.default_stream())?;
    assert_eq!(read, [5; 100]);
    Ok(())
}

fn reach() -> Outcome {
    let (here, there) = two()?;
    assert_eq!(here.backend().native().2, there.backend().native().2, "one context for all devices");
    for (one, other) in [(here, there), (there, here), (here, here)] {
        assert!(one.backend().can_access_peer(other.backend())?);
    }
    Ok(())
}

fn do_not_reach() -> Outcome {
    let (here, there) = two()?;
    assert!(!here.backend().can_access_peer(there.backend())?);
    assert!(here.backend().can_access_peer(here.backend())?);
    let (len, peers) =
        (std::num::NonZeroU64::MIN, here.backend().peer_copies().ok_or("it has no peer copies")?);
    let [to, from] = [here, there].map(|device| device.backend().alloc(len).unwrap());
    // SAFETY: Both are as long; the call refuses anyway.
    #[allow(unsafe_code)]
    let refused = unsafe { peers.copy_from(to, there.backend(), from, len, here.default_stream().native()) };
    let refused = refused.unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::Unsupported, "zeDeviceCanAccessPeer"));
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
    for call in 1..30 {
        let mut source = here.allocate(MIB, source_stream)?;
        let mut destination = there.allocate(MIB, stream)?;
        destination.fill(1, stream)?;
        source.fill(2, source_stream)?;
        control::fail_at(call, REFUSED);
        let copied = destination.copy_from(&source, stream);
        control::clear_faults();
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
