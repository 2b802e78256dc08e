//! Two devices.

use accelerator_core::{Backend, DriverErrorKind, EventFlags, MIB};
use accelerator_xpu::Xpu;
use libtest_mimic::Trial;

use crate::control;
use crate::programs::peers;
use crate::rig::{Outcome, simulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("peers::copies::seed_1", SEED_1, peers::copies::<Xpu>),
        simulated("peers::copies::seed_2", SEED_2, peers::copies::<Xpu>),
        simulated("peers::copies::seed_3", SEED_3, peers::copies::<Xpu>),
        simulated("peers::copies_through_the_host", APART, peers::copies::<Xpu>),
        simulated("peers::facade", SEED_1, peers::facade::<Xpu>),
        simulated("peers::are_direct", SEED_1, direct),
        simulated("peers::reach", SEED_1, reach),
        simulated("peers::do_not_reach", APART, do_not_reach),
        simulated("peers::wrong_stream", SEED_1, peers::wrong_stream::<Xpu>),
        simulated("peers::events_are_recorded_on_their_own_device", SEED_1, own_events),
        simulated("peers::every_call_in_turn", SEED_1, || peers::every_call_in_turn::<Xpu>(29, true)),
        simulated("peers::every_call_in_turn_through_the_host", APART, || peers::every_call_in_turn::<Xpu>(29, false)),
    ]
}

const SEED_1: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "1")];
const SEED_2: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "2")];
const SEED_3: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_SEED", "3")];
const APART: &[(&str, &str)] = &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_PEERS", "0")];

/// A direct copy is one command, and the host does not wait.
fn direct() -> Outcome {
    let (here, there) = peers::two::<Xpu>()?;
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
    let (here, there) = peers::two::<Xpu>()?;
    assert_eq!(here.backend().native().2, there.backend().native().2, "one context for all devices");
    for (one, other) in [(here, there), (there, here), (here, here)] {
        assert!(one.backend().can_access_peer(other.backend())?);
    }
    Ok(())
}

fn own_events() -> Outcome {
    let (here, there) = peers::two::<Xpu>()?;
    for flags in [EventFlags::default(), EventFlags::TIMING] {
        let event = here.backend().event(flags)?;
        for device in [here, there] {
            let refused = device.backend().record(&event, there.default_stream().native());
            assert_eq!(refused.map_err(|error| error.kind), Err(DriverErrorKind::InvalidArgument));
        }
        here.backend().record(&event, here.default_stream().native())?;
        here.backend().wait_host(&event)?;
    }
    Ok(())
}

fn do_not_reach() -> Outcome {
    let (here, there) = peers::two::<Xpu>()?;
    assert!(!here.backend().can_access_peer(there.backend())?);
    assert!(here.backend().can_access_peer(here.backend())?);
    let (len, peers) = (std::num::NonZeroU64::MIN, here.backend().peer_copies().ok_or("it has no peer copies")?);
    let [to, from] = [here, there].map(|device| device.backend().alloc(len).unwrap());
    // SAFETY: Both are that long, and the call is refused anyway.
    #[allow(unsafe_code)]
    let refused = unsafe { peers.copy_from(to, there.backend(), from, len, here.default_stream().native()) };
    let refused = refused.unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::Unsupported, "zeDeviceCanAccessPeer"));
    Ok(())
}
