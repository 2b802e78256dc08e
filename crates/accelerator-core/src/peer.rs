//! Copies between buffers of two devices.
#![allow(unsafe_code)] // `PeerCopies::copy_from`

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use crate::backend::{Backend, EventFlags, PeerCopies};
use crate::buffer::Buffer;
use crate::operator::{Operator, OperatorKind, report_operator};
use crate::stream::Stream;
use crate::types::{DriverError, DriverErrorKind, DriverResult, MIB, Result, check_bounds};

/// The number of bytes that are copied through the host at a time.
const STEP: u64 = 16 * MIB;

/// The time between two questions of whether a stream is idle.
const PAUSE: Duration = Duration::from_millis(1);

impl<B: Backend> Buffer<B> {
    /// Copies all of `source`, on another device of the same kind, to the start of this buffer. The copy runs on
    /// `stream`, a stream of this buffer's device, after the work submitted so far to `source_stream`, a stream of the
    /// source's device. Later work of `source_stream` runs after the copy. If the driver cannot copy between the
    /// devices, the bytes go through the host, which waits. PyTorch: `copy_device_to_device`.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds) if the source is longer;
    /// [`DeviceMismatch`](crate::Error::DeviceMismatch) if a stream and its buffer belong to different devices;
    /// [`Driver`](crate::Error::Driver), after which the bytes of this buffer are unspecified: some of them may have
    /// been copied.
    pub fn copy_from_peer(&mut self, source: &Self, stream: Stream<B>, source_stream: Stream<B>) -> Result<()> {
        check_bounds(0, source.len(), self.len())?;
        let uses = (self.begin_use(stream)?, source.begin_use(source_stream)?);
        let peers = stream.backend().peer_copies().zip(source_stream.backend().peer_copies());
        let copied = peers.map(|peers| directly(peers, self, stream, source, source_stream));
        drop(uses); // the observers may pause the memory
        match copied {
            Some(Err(error)) if error.kind == DriverErrorKind::Unsupported => {}
            Some(copied) => {
                self.device().driver_result(copied)?;
                if !source.is_empty() {
                    report_operator(|| Operator::on(stream, OperatorKind::CopyFromPeer, source.len()));
                }
                return Ok(());
            }
            None => {}
        }
        let mut bytes = vec![0; source.len().min(STEP) as usize];
        for offset in (0..source.len()).step_by(STEP as usize) {
            let part = &mut bytes[..(source.len() - offset).min(STEP) as usize];
            source.read(offset, part, source_stream)?;
            self.write(offset, part, stream)?;
        }
        Ok(())
    }
}

fn directly<B: Backend>(
    (peers, peers_of_source): (&dyn PeerCopies<B>, &dyn PeerCopies<B>),
    destination: &Buffer<B>,
    stream: Stream<B>,
    source: &Buffer<B>,
    source_stream: Stream<B>,
) -> DriverResult<()> {
    let (Some(to), Some(from), Some(len)) = (destination.ptr(), source.ptr(), NonZeroU64::new(source.len())) else {
        return Ok(());
    };
    follow(peers, stream, source_stream)?;
    let backend = stream.backend();
    // What can fail comes first, as far as possible: once the copy is submitted, the source must stay as it is.
    let is_captured = backend.is_capturing(stream.native())?;
    let copied = backend.event(EventFlags::default())?;
    // SAFETY: Both ranges start at buffers of at least `len` bytes, which are not reused until their streams are done.
    // The source's stream waits for the copy, or else the host does. A captured copy runs in replays, whose caller
    // answers for both.
    unsafe { peers.copy_from(to, source_stream.backend(), from, len, stream.native()) }?;
    let recorded = backend.record(&copied, stream.native());
    let followed = recorded.and_then(|()| peers_of_source.wait(source_stream.native(), &copied));
    // A captured copy does not run now, so that there is nothing to wait for.
    followed.or_else(|error| if is_captured { Err(error) } else { wait_until_over(stream) })
}

/// Waits on the host for the work of a stream. If that fails, the work may go on, and no other stream knows of it. So
/// it is over on return even then, unless the device is lost.
///
/// # Errors
/// Those of the wait, and of the work.
fn wait_until_over<B: Backend>(stream: Stream<B>) -> DriverResult<()> {
    let (backend, native) = (stream.backend(), stream.native());
    // A question would break a capture that another thread has begun meanwhile.
    let is_idle = || Ok(!backend.is_capturing(native)? && backend.is_idle(native)?);
    let is_lost = |error: DriverError| error.kind == DriverErrorKind::DeviceLost;
    backend.synchronize(native).inspect_err(|_| {
        while !is_idle().unwrap_or_else(is_lost) {
            thread::sleep(PAUSE);
        }
    })
}

/// Makes later work of the stream wait for the work submitted so far to `other`, a stream of another device.
fn follow<B: Backend>(peers: &dyn PeerCopies<B>, stream: Stream<B>, other: Stream<B>) -> DriverResult<()> {
    let event = other.backend().event(EventFlags::default())?;
    other.backend().record(&event, other.native())?;
    peers.wait(stream.native(), &event)
}
