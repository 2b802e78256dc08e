use accelerator_core::{
    Accelerator, Backend, Buffer, Bytes, DriverErrorKind, Error, MIB, PinnedBuffer, Result, Stream,
};

use super::report::{Checked, Outcome};
use super::section::Progress;
use super::timing::Effort;
use crate::markdown::Table;

const SIZES: [u64; 3] = [MIB, 16 * MIB, 256 * MIB];

/// Measures copies between the host and the device and within the device, and checks that the bytes arrive.
pub(super) fn measure<B: Backend>(accelerator: &'static Accelerator<B>, quick: bool, progress: &Progress) -> Checked {
    match Rig::new(accelerator, 1).and_then(|mut rig| rig.bytes_arrive()) {
        Err(Error::Driver { source, .. }) if source.kind == DriverErrorKind::Unsupported => {
            return Ok(Outcome::NotRun(format!("copies are not supported: {source}")));
        }
        tried => tried?,
    };
    let free = accelerator.memory_info()?.free;
    let sizes = if quick { &SIZES[..2] } else { &SIZES };
    let mut table =
        Table::new(["GB/s", "host to device", "from pinned", "device to host", "to pinned", "device to device"]);
    let mut wrong = Vec::new();
    for size in sizes.iter().copied().filter(|size| *size <= free / 4) {
        progress.at(Bytes(size).to_string());
        let mut rig = match Rig::new(accelerator, size) {
            // Some machines can pin only little memory, which is not the device's fault.
            Err(Error::HostOutOfMemory(_)) if size > SIZES[0] => {
                table.add([Bytes(size).to_string(), "cannot be pinned".to_owned()]);
                break;
            }
            rig => rig?,
        };
        if !rig.bytes_arrive()? {
            wrong.push(format!("{} copied to the device and back were changed", Bytes(size)));
        }
        let speeds = rig.speeds(Effort::new(quick))?;
        table.add(std::iter::once(Bytes(size).to_string()).chain(speeds.map(|speed| format!("{speed:.2}"))));
    }
    let emptied = accelerator.allocator().empty_cache().and(accelerator.host_allocator().empty_cache());
    wrong.extend(emptied.err().map(|error| error.to_string()));
    Ok(Outcome::of(
        format!("{table}\nThe best of several copies, timed on the host until complete. 1 GB is 10⁹ bytes.\n"),
        wrong,
    ))
}

/// The buffers between which bytes are copied.
struct Rig<B: Backend> {
    stream: Stream<B>,
    pageable: Vec<u8>,
    pinned: PinnedBuffer<B>,
    first: Buffer<B>,
    second: Buffer<B>,
}

impl<B: Backend> Rig<B> {
    fn new(accelerator: &'static Accelerator<B>, size: u64) -> Result<Self> {
        let stream = accelerator.default_stream();
        Ok(Self {
            stream,
            pageable: (0..size).map(|place| (place % 251) as u8).collect(),
            pinned: accelerator.allocate_host(size)?,
            first: accelerator.allocate(size, stream)?,
            second: accelerator.allocate(size, stream)?,
        })
    }

    /// Returns whether bytes arrive unchanged, first through ordinary memory and then, inverted, through pinned memory.
    fn bytes_arrive(&mut self) -> Result<bool> {
        let Self { stream, pageable, pinned, first, second } = self;
        let size = first.len();
        let mut back = vec![0; pageable.len()];
        first.write(0, pageable, *stream)?;
        second.copy_from(first, *stream)?;
        second.read(0, &mut back, *stream)?;
        let pageable_arrived = back == *pageable;

        let turned = pageable.iter().map(|byte| !byte);
        pinned.bytes_mut()?.iter_mut().zip(turned.clone()).for_each(|(byte, turned)| *byte = turned);
        first.copy_from_pinned(0, pinned, 0..size, *stream)?;
        second.copy_from(first, *stream)?;
        pinned.bytes_mut()?.fill(0);
        second.copy_to_pinned(0..size, pinned, 0, *stream)?;
        Ok(pageable_arrived && pinned.bytes()?.iter().copied().eq(turned))
    }

    /// Returns GB/s in each direction, in the order of the table.
    fn speeds(&mut self, effort: Effort) -> Result<[f64; 5]> {
        let Self { stream, pageable, pinned, first, second } = self;
        let (stream, size) = (*stream, first.len());
        let times = [
            effort.least(|| first.write(0, pageable, stream))?,
            effort.least(|| {
                first.copy_from_pinned(0, pinned, 0..size, stream)?;
                stream.synchronize()
            })?,
            effort.least(|| first.read(0, pageable, stream))?,
            effort.least(|| {
                first.copy_to_pinned(0..size, pinned, 0, stream)?;
                stream.synchronize()
            })?,
            effort.least(|| {
                second.copy_from(first, stream)?;
                stream.synchronize()
            })?,
        ];
        Ok(times.map(|time| size as f64 / 1e9 / time.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use accelerator_conformance::{Faulty, Sim};
    use accelerator_core::{AllocatorConfig, GIB};
    use accelerator_host::Host;

    use super::*;

    #[test]
    fn a_device_without_copies_is_not_measured_and_a_lost_one_has_failed() {
        let sim = Accelerator::new(Sim::default(), 0, AllocatorConfig::default()).unwrap();
        let Ok(Outcome::NotRun(why)) = measure(sim, true, &Progress::new()) else { panic!("it was run") };
        assert!(why.contains("addresses only"), "{why}");

        let lost = Faulty::new(Host::new(0, GIB));
        let lost = Accelerator::new(lost, 0, AllocatorConfig::default()).unwrap();
        lost.backend().set_lost(true);
        assert!(measure(lost, true, &Progress::new()).is_err());
    }

    #[test]
    fn copies_on_the_host_arrive_and_take_time() {
        let host = Accelerator::new(Host::new(0, GIB), 0, AllocatorConfig::default()).unwrap();
        let mut rig = Rig::new(host, 5000).unwrap();
        assert!(rig.bytes_arrive().unwrap());
        let speeds = rig.speeds(Effort::new(true)).unwrap();
        assert!(speeds.iter().all(|speed| (1e-6..1e4).contains(speed)), "{speeds:?}");
    }
}
