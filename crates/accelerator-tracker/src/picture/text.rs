/// Formats a power of two in bytes, such as `512 B` or `2 MiB`.
pub(crate) fn power(power: u32) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    format!("{} {}", 1u64 << (power % 10), UNITS[(power / 10).min(6) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_have_units() {
        assert_eq!([0, 9, 10, 39, 63].map(power), ["1 B", "512 B", "1 KiB", "512 GiB", "8 EiB"]);
    }
}
