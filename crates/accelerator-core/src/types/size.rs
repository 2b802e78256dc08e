use std::fmt;

/// 1,024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1,048,576 bytes.
pub const MIB: u64 = 1 << 20;
/// 1,073,741,824 bytes.
pub const GIB: u64 = 1 << 30;

/// A number of bytes, shown for people: `512 bytes`, `1.50 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        match self.0.checked_ilog2().unwrap_or(0) / 10 {
            0 => write!(f, "{} bytes", self.0),
            power => {
                let size = self.0 as f64 / (1u64 << (10 * power)) as f64;
                write!(f, "{size:.2} {}", UNITS[power as usize - 1])
            }
        }
    }
}

/// Reads a size as people write it: `16GiB`, `512 MiB`, `1.5G`, `4096`. Units are powers of 1,024.
///
/// Returns `None` for anything else, including negative numbers and sizes of 2⁶⁴ bytes or more.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 1,
        "k" | "kib" | "kb" => KIB,
        "m" | "mib" | "mb" => MIB,
        "g" | "gib" | "gb" => GIB,
        "t" | "tib" | "tb" => GIB << 10,
        "p" | "pib" | "pb" => GIB << 20,
        "e" | "eib" | "eb" => GIB << 30,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_in_the_unit_that_suits_them() {
        assert_eq!(Bytes(0).to_string(), "0 bytes");
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(1024).to_string(), "1.00 KiB");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(Bytes(20 * MIB).to_string(), "20.00 MiB");
        assert_eq!(Bytes(16 * GIB).to_string(), "16.00 GiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16.00 EiB");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("16GiB", 16 * GIB),
            (" 512 MiB ", 512 * MIB),
            ("1.5G", GIB * 3 / 2),
            ("15 EiB", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.2.3", "4 apples", "1e9", "99999999999 T", "16EiB", "18446744073709551616"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
