//! What a function writes to a path, without the file system: a disk would be far too slow.

use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::path::Path;

use accelerator_tracker::FileError;
use accelerator_tracker::tracker::TrackerStats;

/// It may not fit into a pipe.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Returns the bytes that `save` writes.
pub(crate) fn saved(
    stats: &TrackerStats,
    save: impl Fn(&TrackerStats, &Path) -> Result<(), FileError>,
) -> Result<Vec<u8>, TooLong> {
    /// What a pipe has room for.
    const ROOM: usize = 1 << 16;
    /// The most that a character, and a line without its name, are written as.
    const CHARACTER: usize = 6;
    const LINE: usize = 256;
    let names = stats.operators.iter().map(|one| &one.name).chain(stats.markers.iter().map(|one| &one.name));
    let names = names.chain(&stats.device).map(|name| name.len() * CHARACTER + LINE);
    if names.sum::<usize>() + LINE > ROOM {
        return Err(TooLong);
    }
    let (mut reader, writer) = pipe().unwrap();
    save(stats, Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd()))).unwrap();
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    Ok(bytes)
}
