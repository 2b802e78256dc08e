use crate::grouped;

/// The quantity on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Bytes,
    Calls,
    /// Time in microseconds.
    Time,
}

/// An axis from 0 to a maximum: its unit and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) unit: &'static str,
    /// The values, and their labels in the unit.
    pub(super) ticks: Vec<(u64, String)>,
}

impl Scale {
    /// Creates a scale with at most about `wanted` ticks, at round values of the unit.
    pub(super) fn new(axis: Axis, greatest: u64, wanted: usize) -> Self {
        let (unit, size) = unit(axis, greatest);
        let whole = matches!(axis, Axis::Calls) || size == 1.0;
        let step = step(greatest as f64 / size, wanted, whole);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let values = (0..=wanted).map(|tick| tick as f64 * step).take_while(|value| value * size <= greatest as f64);
        let text = |value: f64| match axis {
            Axis::Calls => grouped(value as u64),
            Axis::Bytes | Axis::Time => format!("{value:.decimals$}"),
        };
        Self { unit, ticks: values.map(|value| ((value * size).round() as u64, text(value))).collect() }
    }
}

/// Returns the unit for values up to `greatest`, and the size of the unit.
fn unit(axis: Axis, greatest: u64) -> (&'static str, f64) {
    const BYTES: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    const TIMES: [(&str, f64); 5] = [("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("min", 6e7), ("h", 3.6e9)];
    match axis {
        Axis::Calls => ("", 1.0),
        Axis::Bytes => {
            let power = greatest.checked_ilog2().unwrap_or(0) / 10;
            (BYTES[power as usize], (1u64 << (10 * power)) as f64)
        }
        Axis::Time => {
            // 300 s is easier to read than 5 min.
            let suits = |(_, size): &&(&str, f64)| greatest as f64 >= if *size > 1e6 { 5.0 * size } else { *size };
            TIMES.iter().rev().find(suits).copied().unwrap_or(TIMES[0])
        }
    }
}

/// Returns 1, 2 or 5 times a power of ten, so that about `wanted` steps reach `greatest`.
fn step(greatest: f64, wanted: usize, whole: bool) -> f64 {
    let least = (greatest / wanted.max(1) as f64).max(if whole { 1.0 } else { f64::MIN_POSITIVE });
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|factor| factor * power).find(|step| *step >= least * 0.999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: Axis, greatest: u64, wanted: usize) -> (&'static str, Vec<String>) {
        let Scale { unit, ticks } = Scale::new(axis, greatest, wanted);
        assert!(ticks.iter().all(|(value, _)| *value <= greatest) && ticks.len() <= wanted + 1);
        (unit, ticks.into_iter().map(|(_, text)| text).collect())
    }

    #[test]
    fn ticks_are_round_in_the_unit() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(ticks(Axis::Bytes, 7 << 30, 5), ("GiB", texts(&["0", "2", "4", "6"])));
        assert_eq!(ticks(Axis::Bytes, 3 << 19, 5), ("MiB", texts(&["0.0", "0.5", "1.0", "1.5"])));
        assert_eq!(ticks(Axis::Bytes, 3, 5), ("bytes", texts(&["0", "1", "2", "3"])));
        assert_eq!(ticks(Axis::Bytes, 0, 5), ("bytes", texts(&["0"])));
        assert_eq!(ticks(Axis::Calls, 19_178, 4), ("", texts(&["0", "5,000", "10,000", "15,000"])));
        assert_eq!(ticks(Axis::Time, 2_500_000, 5), ("s", texts(&["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"])));
        assert_eq!(ticks(Axis::Time, 90_000_000, 5).0, "s");
        ticks(Axis::Bytes, u64::MAX, 5);
    }
}
