//! The memory used to read a file: a small part of the limit for real files, and never more than the limit for hostile
//! ones.

use std::path::Path;

use accelerator_tracker::limits::LimitError;
use accelerator_tracker::snapshot::{Collector, MemorySnapshot, visit_with};
use accelerator_tracker::tracker::TrackerStats;
use accelerator_tracker::{FileError, Limits, PickleError, PickleFault};
use libtest_mimic::{Failed, Trial};

use crate::real::data;

const MIB: u64 = 1 << 20;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("limits::a_small_pickle_took_a_hundred_times_its_size", small_pickles),
        Trial::test("limits::a_snapshot_took_thirty_times_its_file", small_entries),
        Trial::test("limits::real_files_take_a_small_part", real_files),
    ]
}

fn limited(memory: u64) -> Limits {
    Limits { memory, ..Limits::default() }
}

/// Two megabytes of empty dictionaries. The limit depends on the file's size and is reported. Without a limit, the file
/// is read to its end.
fn small_pickles() -> Result<(), Failed> {
    let pickle = [&b"\x80\x04"[..], &vec![b'}'; 2 * MIB as usize], b"."].concat();
    let read = |limits| visit_with(&*pickle, "hostile.pickle", &mut Collector::new(limits), limits);
    let refused = read(Limits::default()).unwrap_err();
    let told = refused.to_string();
    let FileError::Pickle { source: PickleError { offset, fault }, .. } = refused else {
        return Err(told.into());
    };
    let PickleFault::TooLarge(LimitError::Memory { limit }) = fault else { return Err(told.into()) };
    assert_eq!(limit, 64 * MIB + 32 * offset, "{told}");
    assert!(told.ends_with("MiB of memory") && told.contains(": at byte "), "{told}");
    let damaged = read(Limits::NONE).unwrap_err().to_string();
    assert!(damaged.contains("STOP cannot be applied to more than one value"), "{damaged}");
    Ok(())
}

/// Entries of ten bytes, which are small in the pickle but have many fields in memory.
fn small_entries() -> Result<(), Failed> {
    const ENTRIES: usize = 50_000;
    let words = b"\x80\x04\x8c\x06actionq\x010\x8c\x08snapshotq\x020";
    let before = b"}(\x8c\x08segments]\x8c\x0ddevice_traces](](";
    let pickle = [&words[..], before, &b"}(h\x01h\x02u".repeat(ENTRIES), b"eeu."].concat();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("hostile.pickle");
    std::fs::write(&path, &pickle)?;
    let refused = MemorySnapshot::read_with(&path, limited(4 * MIB)).unwrap_err().to_string();
    let expected = format!("{}: its contents take more than 4.00 MiB of memory", path.display());
    assert_eq!(refused, expected);
    let whole = MemorySnapshot::read(&path)?;
    assert_eq!(whole.device_traces[0].len(), ENTRIES);
    Ok(())
}

/// The minimum memory for reading each file is at most half of the limit for its size.
fn real_files() -> Result<(), Failed> {
    let read = |file: &Path, limits| MemorySnapshot::read_with(file, limits).map(drop);
    let load = |file: &Path, limits| TrackerStats::load_with(file, limits).map(drop);
    type Read = fn(&Path, Limits) -> Result<(), FileError>;
    let files: [(&str, Read); 2] =
        [("tiny_transformer.snapshot.pickle", read), ("tiny_transformer.tracker.pickle", load)];
    for (file, read) in files {
        let path = data(file);
        let size = std::fs::metadata(&path)?.len();
        let (mut too_little, mut enough) = (0, 32 * size);
        read(&path, limited(enough))?;
        while enough - too_little > 1024 {
            let middle = (enough + too_little) / 2;
            match read(&path, limited(middle)) {
                Ok(()) => enough = middle,
                Err(_) => too_little = middle,
            }
        }
        println!("{file}: {size} bytes, read with {enough} bytes of memory");
        assert!(enough < 16 * size, "{file} of {size} bytes takes {enough}");
    }
    Ok(())
}
