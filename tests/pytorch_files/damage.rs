//! Truncated and modified real files. Reading them gives an error or a snapshot, quickly, and does nothing else.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::time::{Duration, Instant};

use accelerator_tracker::snapshot::{Collector, MemorySnapshot, visit};
use accelerator_tracker::tracker::TrackerStats;
use accelerator_tracker::{FileError, Limits};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::ages::read;
use crate::foreign::refusal;
use crate::real::data;

/// An intact file takes a fiftieth of this on a slow machine, without optimisation.
const LONGEST: Duration = Duration::from_secs(10);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("damage::cut_short_anywhere", cut_short),
        Trial::test("damage::something_behind_the_end", longer),
        Trial::test("damage::changed_anywhere", changed),
        Trial::test("damage::nothing_but_noise", noise),
        Trial::test("damage::a_reader_that_fails_once", failing_once),
    ]
}

fn files() -> Vec<Vec<u8>> {
    let files = ["tiny_transformer.snapshot.pickle", "tiny_transformer.tracker.pickle"];
    files.map(|file| std::fs::read(data(file)).unwrap()).into()
}

fn cut_short() -> Result<(), Failed> {
    for file in files() {
        // Truncate at every byte of the first operations, and then in steps of a prime number of bytes.
        let lengths = (0..1000).chain((1000..file.len()).step_by(9973)).chain([file.len() - 1]);
        for length in lengths {
            let refused = refusal(&file[..length]);
            let here = refused.starts_with(&format!("at byte {length}: the pickle ends in the middle of"));
            assert!(here || length == 0, "{length}: {refused}");
        }
    }
    Ok(())
}

fn longer() -> Result<(), Failed> {
    for mut file in files() {
        let end = file.len();
        file.extend(b"\n");
        assert_eq!(refusal(&file), format!("at byte {end}: the pickle ends before this byte, but the file continues"));
    }
    Ok(())
}

fn changed() -> Result<(), Failed> {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for file in files() {
        let whole = read(&file).ok();
        let (mut refused, mut different) = (0, 0);
        for _ in 0..60 {
            let mut bytes = file.clone();
            // Half of the changes are near the beginning, where more depends on each byte.
            let range = if rng.next_u32().is_multiple_of(2) { bytes.len() } else { 3000 };
            for _ in 0..=rng.next_u32() % 3 {
                let place = rng.next_u64() as usize % range;
                bytes[place] = rng.next_u32() as u8;
            }
            match timed(&bytes) {
                Err(_) => refused += 1,
                Ok(snapshot) => different += u32::from(Some(snapshot) != whole),
            }
        }
        assert!(refused > 10, "{refused} of 60");
        assert!(whole.is_none() || different > 3, "{different} of 60");
    }
    Ok(())
}

fn noise() -> Result<(), Failed> {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    // With these bytes, constructing operations occur more often than with arbitrary bytes.
    let likely = b"(]})lde01234NaasuutqhpK\x94\x85\x86\x87\x88\x89\x8c\x8f\x90\x91\x93Rb\x80\x04.";
    for length in 1..3000 {
        let mut bytes = vec![0x80, 4];
        for _ in 0..length % 200 {
            let random = rng.next_u32();
            let any = random as u8;
            bytes.push(if random & 0x700 == 0 { any } else { likely[usize::from(any) % likely.len()] });
        }
        let _ = timed(&bytes);
    }
    Ok(())
}

/// A reader that fails once, at a place, and then goes on.
struct FailingOnce<'a> {
    before: &'a [u8],
    failure: Option<ErrorKind>,
    after: &'a [u8],
}

impl Read for FailingOnce<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.before.read(buffer)?, self.failure) {
            (0, Some(kind)) => {
                self.failure = None;
                Err(kind.into())
            }
            (0, None) => self.after.read(buffer),
            (count, _) => Ok(count),
        }
    }
}

/// An interrupted read is repeated, as the standard library does. After any other error, nothing is read.
fn failing_once() -> Result<(), Failed> {
    let [snapshot, tracker] = &files()[..] else { panic!() };
    failing_anywhere(snapshot, |reader| {
        let mut collector = Collector::new(Limits::default());
        visit(reader, "failing.pickle", &mut collector).map(|()| collector.snapshot)
    })?;
    failing_anywhere(tracker, |reader| TrackerStats::load_from(reader, "failing.pickle", Limits::default()))
}

fn failing_anywhere<T: PartialEq>(
    file: &[u8],
    read: impl Fn(&mut dyn BufRead) -> Result<T, FileError>,
) -> Result<(), Failed> {
    let whole = read(&mut &*file)?;
    for place in (0..50).chain((50..file.len()).step_by(9973)) {
        let (before, after) = file.split_at(place);
        let failing = |kind| read(&mut BufReader::new(FailingOnce { before, failure: Some(kind), after }));
        assert!(failing(ErrorKind::Interrupted)? == whole, "{place}");
        let refused = failing(ErrorKind::TimedOut).err().map(|error| error.to_string());
        assert!(refused.as_ref().is_some_and(|refused| refused.contains("timed out")), "{place}: {refused:?}");
    }
    Ok(())
}

fn timed(bytes: &[u8]) -> Result<MemorySnapshot, Failed> {
    let start = Instant::now();
    let result = read(bytes);
    assert!(start.elapsed() < LONGEST, "{}", bytes.escape_ascii());
    result
}
