//! Copies between buffers of two devices.
#![allow(unsafe_code)] // `PeerCopies::copy_from`

use std::num::NonZeroU64;

use crate::backend::{Backend, EventFlags, PeerCopies};
use crate::buffer::Buffer;
use crate::operator::{Operator, OperatorKind, report_operator};
use crate::stream::Stream;
use crate::types::{DriverErrorKind, DriverResult, MIB, Result, check_bounds};

/// The number of bytes that are copied through the host at a time.
const STEP: u64 = 16 * MIB;

impl<B: Backend> Buffer<B> {
    /// Copies all of `source`, on another device of the same kind, to the start of this buffer. The copy runs on
    /// `stream`, a stream of this buffer's device, after the work submitted so far to `source_stream`, a stream of the
    /// source's device. Later work of `source_stream` runs after the copy. If the driver cannot copy between the
    /// devices, the bytes go through the host, which waits. PyTorch: `copy_device_to_device`.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds) if the source is longer;
    /// [`DeviceMismatch`](crate::Error::DeviceMismatch) if a stream and its buffer belong to different devices;
    /// [`Driver`](crate::Error::Driver), after which a part may have arrived.
    pub fn copy_from_peer(&mut self, source: &Self, stream: Stream<B>, source_stream: Stream<B>) -> Result<()> {
        check_bounds(0, source.len(), self.len())?;
        let _uses = (self.begin_use(stream)?, source.begin_use(source_stream)?);
        let peers = stream.backend().peer_copies().zip(source_stream.backend().peer_copies());
        match peers.map(|peers| directly(peers, self, stream, source, source_stream)) {
            Some(Err(error)) if error.kind == DriverErrorKind::Unsupported => {}
            Some(copied) => return self.device().driver_result(copied),
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
    // SAFETY: Both ranges start at buffers of at least `len` bytes, which are not reused until their streams are done.
    // The source's stream waits for the copy, or else the host does.
    unsafe { peers.copy_from(to, source_stream.backend(), from, len, stream.native()) }?;
    follow(peers_of_source, source_stream, stream)
        .or_else(|error| stream.backend().synchronize(stream.native()).and(Err(error)))?;
    report_operator(|| Operator::on(stream, OperatorKind::CopyFromPeer, len.get()));
    Ok(())
}

/// Makes later work of the stream wait for the work submitted so far to `other`, a stream of another device.
fn follow<B: Backend>(peers: &dyn PeerCopies<B>, stream: Stream<B>, other: Stream<B>) -> DriverResult<()> {
    let event = other.backend().event(EventFlags::default())?;
    other.backend().record(&event, other.native())?;
    peers.wait(stream.native(), &event)
}
