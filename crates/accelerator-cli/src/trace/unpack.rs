//! Decompresses input as it is read, up to a limit.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use accelerator_core::MIB;
use accelerator_tracker::Limits;
use accelerator_tracker::limits::LimitError;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The largest window of a zstd frame, which is also the default limit of the program `zstd`. The decoder keeps a whole
/// window in memory.
const LARGEST_WINDOW: u64 = 128 * MIB;

/// Returns the decompressed bytes of plain, gzip or zstd input. The format is detected from the first bytes.
pub(super) fn unpacked(mut input: impl BufRead + 'static, limits: Limits) -> io::Result<Box<dyn BufRead>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

    let mut start = Vec::new();
    input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start)?;
    let (gzip, zstd) = (start.starts_with(&GZIP), start.starts_with(&ZSTD));
    let whole = Cursor::new(start).chain(input);
    if !gzip && !zstd {
        return Ok(Box::new(whole));
    }
    let packed = Rc::new(Cell::new(0));
    let whole = Counted { input: whole, count: Rc::clone(&packed) };
    let unpacked: Box<dyn Read> = match gzip {
        true => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
        false => Box::new(ZstdFrames::new(whole, limits)?),
    };
    Ok(Box::new(BufReader::new(Limited { unpacked, packed, count: 0, limits })))
}

/// Counts the bytes that are read from a reader.
struct Counted<R> {
    input: R,
    count: Rc<Cell<u64>>,
}

impl<R: BufRead> Counted<R> {
    fn add(&self, bytes: usize) {
        self.count.set(self.count.get() + bytes as u64);
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.add(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
        self.add(count);
    }
}

/// Fails once the decompressed bytes exceed the limit.
struct Limited {
    unpacked: Box<dyn Read>,
    packed: Rc<Cell<u64>>,
    count: u64,
    limits: Limits,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.unpacked.read(buffer)?;
        self.count += count as u64;
        let packed = self.packed.get();
        let limit = self.limits.may_unpack_to(packed);
        match self.count > limit {
            true => Err(io::Error::other(LimitError::Unpacked { packed, limit })),
            false => Ok(count),
        }
    }
}

/// A zstd file: a sequence of frames up to the end of the input.
struct ZstdFrames<R: BufRead> {
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
    limits: Limits,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(input: R, limits: Limits) -> io::Result<Self> {
        let mut decoder = FrameDecoder::new();
        let limit = if limits.memory == u64::MAX { u64::MAX } else { limits.memory.min(LARGEST_WINDOW) };
        decoder.set_max_window_size(limit);
        match StreamingDecoder::new_with_decoder(input, decoder) {
            Ok(frame) => Ok(Self { frame: Some(frame), limits }),
            Err(FrameDecoderError::WindowSizeTooBig { requested: window, max: limit }) => {
                Err(io::Error::other(LimitError::Window { window, limit }))
            }
            Err(_) => Err(broken()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(buffer).map_err(|_| broken())?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut input) = self.frame.take().map(StreamingDecoder::into_inner) else { break };
            if !input.fill_buf()?.is_empty() {
                *self = Self::new(input, self.limits)?;
            }
        }
        Ok(0)
    }
}

fn broken() -> io::Error {
    io::Error::other("a zstd frame is damaged or truncated")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Decompresses bytes. Returns the number of decompressed bytes, or why decompression failed.
    fn unpack(bytes: Vec<u8>, limits: Limits) -> io::Result<usize> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&bytes)?;
        let mut content = Vec::new();
        unpacked(Cursor::new(encoder.finish()?), limits)?.read_to_end(&mut content)?;
        assert!(content == bytes);
        Ok(content.len())
    }

    #[test]
    fn a_file_unpacks_to_a_size_or_to_a_hundred_times_its_own() {
        const SIZE: usize = 1 << 20;
        let limits = Limits { unpacked: 1 << 18, ..Limits::default() };
        let error = unpack(vec![0; SIZE], limits).unwrap_err();
        let Some(LimitError::Unpacked { packed, limit }) = LimitError::of(&error) else { panic!("{error}") };
        assert_eq!(*limit, limits.unpacked.max(100 * packed));
        assert!(error.to_string().ends_with(" decompress to more than 256.00 KiB"), "{error}");
        assert_eq!(unpack(vec![0; SIZE], Limits { unpacked: SIZE as u64, ..limits }).unwrap(), SIZE);
        assert_eq!(unpack(vec![0; SIZE], Limits::NONE).unwrap(), SIZE);
        // Data that compresses less well may be of any size.
        let mixed = (0..SIZE as u32 / 4).flat_map(u32::to_le_bytes).collect();
        assert_eq!(unpack(mixed, limits).unwrap(), SIZE);
    }

    #[test]
    fn a_window_could_be_larger_than_the_memory_limit() {
        // A frame with a window of 1 MiB, and one block with one byte.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 0x50, 9, 0, 0, b'x'];
        let read = |memory| {
            let mut content = String::new();
            unpacked(Cursor::new(frame), Limits { memory, ..Limits::default() })?.read_to_string(&mut content)?;
            io::Result::Ok(content)
        };
        assert_eq!(read(MIB).unwrap(), "x");
        let error = read(MIB - 1).unwrap_err();
        assert_eq!(LimitError::of(&error), Some(&LimitError::Window { window: MIB, limit: MIB - 1 }), "{error}");
    }
}
