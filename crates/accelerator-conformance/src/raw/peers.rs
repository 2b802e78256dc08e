//! Copies from another device.
#![allow(unsafe_code)] // the backend's own methods

use accelerator_core::{Backend, DriverErrorKind};

use super::rig::{Rig, Span, length};
use crate::calls::Call;
use crate::outcome::Outcome;

/// Fills memory of the device `far` and copies it to `to`, on streams of the two devices. Waits until it is done, and
/// checks the bytes. Does nothing if the driver has no path between the devices.
pub(super) fn copy_from_peer<B: Backend>(
    (rig, to, stream): (&Rig<B>, Span<B::Ptr>, &B::Stream),
    (far, far_stream): (&Rig<B>, &B::Stream),
    value: u8,
) -> Outcome {
    let Some(peers) = rig.backend.peer_copies() else { return Ok(()) };
    let from = far.alloc(to.len)?;
    far.fill(from, value, far_stream)?;
    let filled = far.recorded(far_stream)?;
    rig.call(Call::Wait, || peers.wait(stream, &filled))?;
    let (dst, src, len) = (to.device(), from.device(), length(to.len));
    // SAFETY: Each rig keeps its memory until its streams are done, and the source is given back after the copy.
    let copied = rig.ask(Call::Copy, || unsafe { peers.copy_from(dst, far.backend, src, len, stream) });
    match copied {
        Ok(()) => rig.holds(to, value, stream, "`copy_from` of `peer_copies`, after its `wait`")?,
        Err(error) if error.kind == DriverErrorKind::Unsupported => far.synchronize(far_stream)?,
        Err(error) => return Err(format!("`copy_from` of `peer_copies` failed: {error}").into()),
    }
    far.dealloc(from);
    Ok(())
}
