//! Pickles, written as operations.

/// Returns pickle operations. Each character is one byte, and `'text'` is a string. So `K1` is the number 49, and `q1`
/// memorises as 49.
pub(crate) fn operations(written: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, piece) in written.split('\'').enumerate() {
        if index % 2 == 0 {
            bytes.extend(piece.chars().filter(|c| *c != ' ').map(|c| c as u8));
        } else {
            bytes.extend([0x8c, piece.len() as u8]);
            bytes.extend(piece.bytes());
        }
    }
    bytes
}
