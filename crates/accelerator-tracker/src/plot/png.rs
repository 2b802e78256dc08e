use std::io::{self, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// Encodes a picture with three bytes per pixel as PNG.
pub(super) fn encode(pixels: &[u8], width: u32, height: u32) -> io::Result<Vec<u8>> {
    const RGB_OF_8_BITS: [u8; 5] = [8, 2, 0, 0, 0];
    const UP: u8 = 2; // each byte is the difference from the byte above, since many rows of a chart are equal

    let line = 3 * width as usize;
    let mut data = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut above = vec![0; line];
    for row in pixels.chunks_exact(line.max(1)) {
        data.write_all(&[UP])?;
        let differences: Vec<_> = row.iter().zip(&above).map(|(byte, above)| byte.wrapping_sub(*above)).collect();
        data.write_all(&differences)?;
        above.copy_from_slice(row);
    }
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend(RGB_OF_8_BITS);

    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &data.finish()?);
    chunk(&mut file, b"IEND", &[]);
    Ok(file)
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    let mut checksum = Crc::new();
    checksum.update(kind);
    checksum.update(data);
    file.extend((data.len() as u32).to_be_bytes());
    file.extend(kind);
    file.extend(data);
    file.extend(checksum.sum().to_be_bytes());
}
