//! What operator observers receive.
#![allow(unsafe_code)] // launches a kernel

use std::sync::{Arc, Mutex};

use accelerator_core::{MIB, Operator, OperatorKind, OperatorObserver, observe_operators};
use accelerator_xpu::Argument;
use libtest_mimic::Trial;

use crate::native::SPIRV;
use crate::rig::{Outcome, device_numbered, simulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        simulated("operators::launches", &[], launches),
        simulated("operators::copies_between_devices", &[("ZE_SIM_DEVICES", "2")], copies),
        simulated(
            "operators::copies_between_devices_through_the_host",
            &[("ZE_SIM_DEVICES", "2"), ("ZE_SIM_PEERS", "0")],
            copies_through_the_host,
        ),
    ]
}

type Told = Arc<Mutex<Vec<Operator>>>;

/// Observes everything that the process submits. Each trial has its own process.
fn observed() -> (Told, OperatorObserver) {
    let told = Told::default();
    let list = Arc::clone(&told);
    (told, observe_operators(move |operator| list.lock().unwrap().push(*operator)))
}

fn kinds(told: &Told) -> Vec<(OperatorKind, u32, u64)> {
    told.lock().unwrap().iter().map(|told| (told.kind, told.device.index, told.bytes)).collect()
}

/// A launch that the driver refuses does not count.
fn launches() -> Outcome {
    let device = device_numbered(0)?;
    let stream = device.stream(0)?;
    let (x, y) = (device.allocate(400, stream)?, device.allocate(400, stream)?);
    // SAFETY: The example's kernel, which is valid.
    let mut kernel = unsafe { device.backend().module(SPIRV, c"") }?.kernel(c"saxpy")?;
    let (n, a) = (100_u32, 2.0_f32);
    let arguments = [Argument::value(&n), Argument::value(&a), Argument::Buffer(&x), Argument::Buffer(&y)];
    let (told, _observer) = observed();
    // SAFETY: The arguments match the kernel, and the buffers have that many elements.
    unsafe { kernel.launch(stream, [1, 1, 1], [128, 1, 1], &arguments) }?;
    // SAFETY: As before, and no group can have that many threads.
    let refused = unsafe { kernel.launch(stream, [1, 1, 1], [u32::MAX, 1, 1], &arguments) };
    assert!(refused.is_err());
    let expected = Operator::on(stream, OperatorKind::Launch, 0);
    assert_eq!(*told.lock().unwrap(), [expected]);
    Ok(())
}

/// A copy is reported once, for the device that it writes to.
fn copies() -> Outcome {
    let (here, there) = (device_numbered(0)?, device_numbered(1)?);
    let source = here.allocate(MIB, here.default_stream())?;
    let mut destination = there.allocate(2 * MIB, there.default_stream())?;
    let (told, _observer) = observed();
    destination.copy_from(&source, there.default_stream())?;
    assert_eq!(kinds(&told), [(OperatorKind::CopyFromPeer, 1, MIB)]);
    Ok(())
}

fn copies_through_the_host() -> Outcome {
    let (here, there) = (device_numbered(0)?, device_numbered(1)?);
    let source = here.allocate(MIB, here.default_stream())?;
    let mut destination = there.allocate(2 * MIB, there.default_stream())?;
    let (told, _observer) = observed();
    destination.copy_from(&source, there.default_stream())?;
    assert_eq!(kinds(&told), [(OperatorKind::CopyToHost, 0, MIB), (OperatorKind::CopyToDevice, 1, MIB)]);
    Ok(())
}
