//! Many streams at once.

use accelerator_core::{Backend, StreamKind};

use super::bytes;
use super::rig::Rig;
use crate::outcome::Outcome;

const STREAMS: usize = 40;

pub(super) fn many_streams<B: Backend>(rig: &Rig<B>) -> Outcome {
    rig.step(&"a device has 33 streams or more, of every priority, and each does its own work in order");
    let (least, greatest) = rig.backend.properties().stream_priorities;
    let mut lines = Vec::new();
    for number in 0..STREAMS {
        let priority = (greatest..=least).cycle().nth(number).unwrap_or(0);
        let stream = rig.stream_of(StreamKind::Side { priority })?;
        lines.push((stream, rig.alloc(65_536)?, rig.pinned(65_536, 0)?));
    }
    for round in 0..4 {
        for (number, (stream, device, host)) in lines.iter().enumerate() {
            rig.fill(*device, number as u8 ^ 0x80, stream)?;
            rig.fill(*device, number as u8 + round, stream)?;
            rig.copy(*host, *device, stream)?;
        }
        for (number, (stream, _, host)) in lines.iter().enumerate() {
            rig.synchronize(stream)?;
            bytes::all(host.bytes(), number as u8 + round)
                .map_err(|difference| format!("the work of one of {STREAMS} streams is not in order: {difference}"))?;
        }
    }
    Ok(())
}
