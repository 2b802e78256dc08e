//! A buffer of a program, and what its bytes must be.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use accelerator_core::{Buffer, Error, MemPoolId, Result, Stream};

use super::device::Adversary;

/// The bytes at each end and in the middle that are written and compared. Memory in between is only claimed.
const PART: u64 = 64;

/// The bytes of all blocks of a program, and the most that there ever were.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) current: AtomicI64,
    pub(crate) peak: AtomicI64,
}

/// A buffer, with the value of each of its parts.
pub(crate) struct Owned {
    pub(crate) buffer: Buffer<Adversary>,
    pub(crate) pool: Option<MemPoolId>,
    /// The value of every byte of each part; `None` if it is unknown.
    values: Vec<Option<u8>>,
    tally: Arc<Tally>,
}

impl Owned {
    pub(crate) fn new(buffer: Buffer<Adversary>, pool: Option<MemPoolId>, tally: &Arc<Tally>) -> Self {
        let values = vec![None; parts(buffer.len()).len()];
        let size = buffer.block_size() as i64;
        let current = tally.current.fetch_add(size, Ordering::Relaxed) + size;
        tally.peak.fetch_max(current, Ordering::Relaxed);
        Self { buffer, pool, values, tally: Arc::clone(tally) }
    }

    /// Returns the parts, as offsets and lengths.
    pub(crate) fn parts(&self) -> Vec<(u64, u64)> {
        parts(self.buffer.len())
    }

    /// Sets what all parts must be.
    pub(crate) fn set(&mut self, value: Option<u8>) {
        self.values.fill(value);
    }

    /// Sets what one part must be.
    pub(crate) fn set_part(&mut self, part: usize, value: Option<u8>) {
        self.values[part] = value;
    }

    /// What the first part must be.
    pub(crate) fn first(&self) -> Option<u8> {
        self.values[0]
    }

    /// Notes that another buffer of the same length was copied here.
    pub(crate) fn copied_from(&mut self, source: &Self) {
        self.values.clone_from(&source.values);
    }

    /// Whether work that starts now on a stream comes after all conflicting work on the buffer.
    pub(crate) fn is_ordered(&self, stream: Stream<Adversary>, writes: bool) -> bool {
        let at = self.buffer.ptr();
        at.is_none_or(|at| stream.backend().is_ordered(at, self.buffer.len(), writes, stream.native()))
    }

    /// Runs a kernel on the whole buffer, which writes a value to all parts or only reads.
    pub(crate) fn kernel(&self, value: Option<u8>, stream: Stream<Adversary>) -> Result<()> {
        let Some(at) = self.buffer.ptr() else { return Ok(()) };
        let _use = self.buffer.begin_use(stream)?;
        // SAFETY: The range is the whole buffer, and the stream was recorded as a user, so its memory is not reused
        // before the work is done.
        #[allow(unsafe_code, reason = "a kernel of the simulated device")]
        let run = unsafe { stream.backend().kernel((at, self.buffer.len()), &self.parts(), value, stream.native()) };
        run.map_err(|source| Error::Driver { device: self.buffer.device(), source })
    }

    /// Compares the bytes with what they must be.
    pub(crate) fn check(&self, stream: Stream<Adversary>) -> Result<()> {
        for ((offset, len), value) in self.parts().into_iter().zip(&self.values) {
            let mut bytes = vec![0; len as usize];
            self.buffer.read(offset, &mut bytes, stream)?;
            let wrong = value.and_then(|value| Some((value, bytes.iter().position(|byte| *byte != value)?)));
            if let Some((value, place)) = wrong {
                let (at, found) = (offset + place as u64, bytes[place]);
                panic!("byte {at} of a buffer of {} is {found}, and {value} was written", self.buffer.len());
            }
        }
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.tally.current.fetch_sub(self.buffer.block_size() as i64, Ordering::Relaxed);
    }
}

fn parts(len: u64) -> Vec<(u64, u64)> {
    match len {
        0..192 => vec![(0, len)],
        _ => vec![(0, PART), (len / 2 / PART * PART, PART), (len - PART, PART)],
    }
}
