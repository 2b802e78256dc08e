//! Reads numbers in text and in bytes.

use super::fault::PickleFault;
use super::value::{Real, Value};

/// Reads a little-endian number in two's complement, of any length.
pub(super) fn of_bytes(bytes: &[u8]) -> Value {
    let Some(&last) = bytes.last() else { return Value::Integer(0) };
    let sign = if last & 0x80 == 0 { 0 } else { 0xff };
    // Sixteen bytes are more than enough to decide whether a number fits.
    if bytes.iter().skip(16).any(|&byte| byte != sign) {
        return Value::Huge;
    }
    let mut wide = [sign; 16];
    for (to, &from) in wide.iter_mut().zip(bytes) {
        *to = from;
    }
    if bytes.len() > 16 && (wide[15] ^ sign) & 0x80 != 0 {
        return Value::Huge;
    }
    of_wide(i128::from_le_bytes(wide))
}

/// Reads a decimal integer, such as `42` or `42L`; `00` and `01` are Booleans.
pub(super) fn of_text(text: &[u8], opcode: &'static str) -> Result<Value, PickleFault> {
    match text {
        b"00" => return Ok(Value::Flag(false)),
        b"01" => return Ok(Value::Flag(true)),
        _ => {}
    }
    let text = text.trim_ascii();
    let text = text.strip_suffix(b"L").unwrap_or(text);
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(PickleFault::Unreadable { opcode, what: "not a whole number" });
    }
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    Ok(number.map_or(Value::Huge, of_wide))
}

/// Reads a decimal float, such as `0.1`, `1e-05` or `nan`.
pub(super) fn float_of_text(text: &[u8], opcode: &'static str) -> Result<Value, PickleFault> {
    let number = str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    let number = number.ok_or(PickleFault::Unreadable { opcode, what: "not a number" })?;
    Ok(Value::Float(Real::new(number)))
}

/// Reads the number of a memo entry, in decimal.
pub(super) fn place_of_text(text: &[u8], opcode: &'static str) -> Result<u32, PickleFault> {
    let number = str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or(PickleFault::Unreadable { opcode, what: "not the number of a memo entry" })
}

fn of_wide(wide: i128) -> Value {
    match (i64::try_from(wide), u64::try_from(wide)) {
        (Ok(integer), _) => Value::Integer(integer),
        (_, Ok(unsigned)) => Value::Unsigned(unsigned),
        _ => Value::Huge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_twos_complement() {
        assert_eq!(of_bytes(&[]), Value::Integer(0));
        assert_eq!(of_bytes(&[0xff]), Value::Integer(-1));
        assert_eq!(of_bytes(&[0xff, 0]), Value::Integer(255));
        assert_eq!(of_bytes(&i64::MIN.to_le_bytes()), Value::Integer(i64::MIN));
        let mut above = u64::MAX.to_le_bytes().to_vec();
        above.push(0);
        assert_eq!(of_bytes(&above), Value::Unsigned(u64::MAX));
        above[8] = 1;
        assert_eq!(of_bytes(&above), Value::Huge);
        assert_eq!(of_bytes(&[0xff; 300]), Value::Integer(-1), "written long");
        assert_eq!(of_bytes(&[vec![0; 16], vec![1]].concat()), Value::Huge);
        assert_eq!(of_bytes(&[vec![0xff; 16], vec![0]].concat()), Value::Huge, "2^128 - 1, not -1");
    }

    #[test]
    fn texts_are_decimal() {
        let of = |text: &str| of_text(text.as_bytes(), "INT");
        assert_eq!(of("42").unwrap(), Value::Integer(42));
        assert_eq!(of("-42L").unwrap(), Value::Integer(-42));
        assert_eq!(of("01").unwrap(), Value::Flag(true));
        assert_eq!(of("18446744073709551615L").unwrap(), Value::Unsigned(u64::MAX));
        assert_eq!(of(&"9".repeat(400)).unwrap(), Value::Huge);
        for wrong in ["", "-", "L", "1.0", "0x1", "+1", "1 2"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
