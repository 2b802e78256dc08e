/// A name as it may be shown: names come from files, and some characters hide, reverse or break what stands around them.
pub(crate) fn printable(name: &str) -> String {
    let shown = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => {
            '\u{fffd}'
        }
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c if c.is_control() => ' ',
        c => c,
    };
    name.chars().map(shown).collect()
}

/// A power of two in bytes: `512 B`, `2 MiB`.
pub(crate) fn power(power: u32) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    format!("{} {}", 1u64 << (power % 10), UNITS[(power / 10).min(6) as usize])
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_have_units() {
        assert_eq!([0, 9, 10, 39, 63].map(power), ["1 B", "512 B", "1 KiB", "512 GiB", "8 EiB"]);
    }

    #[test]
    fn names_cannot_hide_or_reverse_text() {
        assert_eq!(printable("a\u{202e}b\0c\u{7f}\u{200b}\u{ffff}é"), "a\u{fffd}b c \u{fffd}\u{fffd}é");
    }
}
