//! Reads strings, including those of the oldest protocol, which are written with escapes.

use std::sync::Arc;

use super::fault::PickleFault;
use super::value::Body;

/// Reads a string of any later protocol.
pub(super) fn of_utf8(bytes: Vec<u8>, opcode: &'static str) -> Result<Body, PickleFault> {
    let text = String::from_utf8(bytes).map_err(|_| PickleFault::Unreadable { opcode, what: "not UTF-8" })?;
    Ok(Body::Text(text.into()))
}

/// Reads a string of Python 2, which consists of bytes. It becomes text if it is valid UTF-8.
pub(super) fn of_bytes(bytes: Vec<u8>) -> Body {
    match String::from_utf8(bytes) {
        Ok(text) => Body::Text(text.into()),
        Err(error) => Body::Bytes(error.into_bytes().into()),
    }
}

/// Reads the text of `UNICODE`: Latin-1, with `\uXXXX` and `\UXXXXXXXX` for other characters.
pub(super) fn of_raw_unicode(bytes: &[u8], opcode: &'static str) -> Result<Body, PickleFault> {
    let wrong = |what| PickleFault::Unreadable { opcode, what };
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        let digits = match (first, tail.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(*first));
                rest = tail;
                continue;
            }
        };
        let code = tail.get(1..1 + digits).and_then(hexadecimal);
        let code = code.ok_or(wrong("incomplete escape sequence"))?;
        text.push(char::from_u32(code).ok_or(wrong("half of a surrogate pair"))?);
        rest = &tail[1 + digits..];
    }
    Ok(Body::Text(Arc::from(text)))
}

/// Reads the text of `STRING`: in quotes, with Python's escapes.
pub(super) fn of_quoted(line: &[u8], opcode: &'static str) -> Result<Body, PickleFault> {
    let wrong = |what| PickleFault::Unreadable { opcode, what };
    let inner = match line.trim_ascii() {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return Err(wrong("string without quotes")),
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, tail) = tail.split_first().ok_or(wrong("incomplete escape sequence"))?;
        rest = tail;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'\'' | b'"' => *escape,
            b'x' => {
                let code = tail.get(..2).and_then(hexadecimal).ok_or(wrong("incomplete escape sequence"))?;
                rest = &tail[2..];
                code as u8
            }
            _ => return Err(wrong("unknown escape sequence")),
        });
    }
    Ok(of_bytes(bytes))
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let mut digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
    digits.try_fold(0u32, |code, digit| code.checked_mul(16)?.checked_add(digit?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: Result<Body, PickleFault>) -> String {
        match body.unwrap() {
            Body::Text(text) => text.to_string(),
            _ => "no text".to_owned(),
        }
    }

    #[test]
    fn escapes_are_pythons() {
        assert_eq!(text(of_raw_unicode(b"a\\u005c\xe9\\u20ac\\U0001f600\\n", "UNICODE")), "a\\é€😀\\n");
        assert!(of_raw_unicode(b"\\u12", "UNICODE").is_err());
        assert!(of_raw_unicode(b"\\ud800", "UNICODE").is_err());
        assert!(of_raw_unicode(b"\\U11111111", "UNICODE").is_err());
        assert_eq!(text(of_quoted(b"'a\\n\\x41\\'\\\\'", "STRING")), "a\nA'\\");
        assert_eq!(text(of_quoted(b"'\\t\\r\\\"'", "STRING")), "\t\r\"");
        assert_eq!(text(of_quoted(b"\"\"", "STRING")), "");
        for wrong in [&b"'"[..], b"a", b"'a\"", b"'\\'", b"'\\x4'", b"'\\q'"] {
            assert!(of_quoted(wrong, "STRING").is_err(), "{wrong:?}");
        }
    }
}
