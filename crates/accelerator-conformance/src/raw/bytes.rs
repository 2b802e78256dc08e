//! Comparing bytes: the first difference and how many there are, never the bytes themselves.

use std::fmt;

/// How bytes differ from those that were expected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    count: usize,
    of: usize,
    first: usize,
    is: u8,
    expected: u8,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, of, first, is, expected } = self;
        let (count, of) = (grouped(*count), grouped(*of));
        write!(f, "{count} of {of} bytes are wrong, the first at {}: {is}, not {expected}", grouped(*first))
    }
}

impl Difference {
    /// Returns the place of the first byte that differs.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// Says the same of bytes that should have been written by then.
    pub(crate) fn not_there_yet(&self) -> String {
        format!("{} of {} bytes were not there yet", grouped(self.count), grouped(self.of))
    }
}

/// Bytes are compared in chunks of this length: whole chunks that are equal are found quickly.
const CHUNK: usize = 4096;

/// Compares bytes with those that are expected.
pub(crate) fn equal(bytes: &[u8], expected: &[u8]) -> Result<(), Difference> {
    assert_eq!(bytes.len(), expected.len());
    compare(bytes, bytes.chunks(CHUNK).zip(expected.chunks(CHUNK)))
}

/// Checks that all bytes have this value.
pub(crate) fn all(bytes: &[u8], value: u8) -> Result<(), Difference> {
    let expected = [value; CHUNK];
    compare(bytes, bytes.chunks(CHUNK).map(|chunk| (chunk, &expected[..chunk.len()])))
}

fn compare<'a>(bytes: &[u8], chunks: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<(), Difference> {
    let mut found: Option<Difference> = None;
    for (number, (chunk, expected)) in chunks.enumerate() {
        if chunk == expected {
            continue;
        }
        let differing = chunk.iter().zip(expected).enumerate().filter(|(_, (is, expected))| is != expected);
        for (place, (is, expected)) in differing {
            let (first, of) = (number * CHUNK + place, bytes.len());
            let new = Difference { count: 0, of, first, is: *is, expected: *expected };
            found.get_or_insert(new).count += 1;
        }
    }
    found.map_or(Ok(()), Err)
}

/// Writes a number with a comma between each three digits.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns bytes of which each differs from its neighbours, and which do not repeat after a power of two.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|place| (place % 251) as u8 ^ seed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_and_the_first_is_named() {
        let mut bytes = vec![7; 10_000];
        assert_eq!(all(&bytes, 7), Ok(()));
        (bytes[5_000], bytes[9_999]) = (8, 9);
        let difference = all(&bytes, 7).unwrap_err();
        assert_eq!(difference.to_string(), "2 of 10,000 bytes are wrong, the first at 5,000: 8, not 7");
        assert_eq!(difference.not_there_yet(), "2 of 10,000 bytes were not there yet");
        assert_eq!(equal(&bytes, &[7; 10_000]), Err(difference));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 67_108_864].map(grouped), ["0", "999", "1,000", "67,108,864"]);
    }
}
