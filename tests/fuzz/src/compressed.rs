//! Compressed traces, within small limits. Any bytes are unpacked in little memory. A text reads the same whether it is
//! compressed or not, and a compressed text that is cut off is never read to its end.

use std::io::Write;

use accelerator_cli::trace::Source;
use accelerator_tracker::Limits;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::memory::peak_of;
use super::text::check_message;

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

const LIMITS: Limits = Limits { memory: 1 << 20, line: 1 << 12, unpacked: 1 << 16 };
/// For the decoder's tables and window, and the lines.
const MOST_MEMORY: u64 = 4 << 20;

pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 5 {
        0 => check_any(rest.to_vec()),
        1 => check_any([GZIP, rest].concat()),
        2 => check_any([ZSTD, rest].concat()),
        3 => check_text(rest, gzip),
        _ => check_text(rest, |text| compress_to_vec(text, CompressionLevel::Fastest)),
    }
}

fn check_any(bytes: Vec<u8>) {
    let ((), peak) = peak_of(|| drop(lines(bytes)));
    assert!(peak <= MOST_MEMORY, "{peak} bytes of memory");
}

/// The first byte says where to cut the text in two, each compressed on its own, and the compressed text.
fn check_text(bytes: &[u8], compress: impl Fn(&[u8]) -> Vec<u8>) {
    let Some((place, text)) = bytes.split_first() else { return };
    if text.starts_with(GZIP) || text.starts_with(ZSTD) {
        return;
    }
    let at = |length: usize| usize::from(*place) * length / 256;
    let (first, second) = text.split_at(at(text.len()));
    assert_eq!(lines([compress(first), compress(second)].concat()), lines(text.to_vec()));
    let mut whole = compress(text);
    whole.truncate(at(whole.len()));
    if !whole.is_empty() {
        let read = lines(whole);
        assert!(read.last().is_some_and(Result::is_err), "cut off, but read to its end: {read:?}");
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Returns the lines up to the first error, and that error.
fn lines(bytes: Vec<u8>) -> Vec<Result<String, String>> {
    let message = |error: &dyn std::error::Error| {
        check_message(&error.to_string());
        Err(error.to_string())
    };
    let source = match Source::from_bytes_with("a trace", bytes, LIMITS) {
        Ok(source) => source,
        Err(error) => return vec![message(&error)],
    };
    let mut lines = Vec::new();
    for line in source {
        match line {
            Ok(line) => lines.push(Ok(format!("{} {}", line.number, line.op))),
            Err(error) => {
                lines.push(message(&error));
                break;
            }
        }
    }
    lines
}
