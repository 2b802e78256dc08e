use std::fmt;

use super::scenario::Scenario;

/// Returns the header line.
pub(crate) fn header(repetitions: u32) -> String {
    let columns = "# scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops_per_rep";
    format!("{columns}  (api core, {repetitions} reps)")
}

/// The measurements of a scenario. They are printed as a line with the columns of PyTorch's benchmark.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(super) scenario: Scenario,
    pub(super) threads: usize,
    /// The wall time of each repetition, divided by the operations of all threads.
    pub(super) wall: Spread,
    /// The CPU time of the threads, divided in the same way.
    pub(super) cpu: Option<Spread>,
    /// Driver allocations in all repetitions.
    pub(super) device_allocs: i64,
    /// Operations in a repetition.
    pub(super) ops: u64,
}

/// Nanoseconds per operation, over the repetitions.
#[derive(Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Returns the spread of `values`, which must have at least one element.
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { least: values[0], median: values[values.len() / 2], most: values[values.len() - 1] }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, threads, wall, cpu, device_allocs, ops } = self;
        let Spread { least, median, most } = wall;
        let cpu = cpu.as_ref().map_or("-".to_owned(), |cpu| format!("{:.1}", cpu.median));
        let of_thread = median * *threads as f64;
        write!(f, "{scenario:<8} {threads} {median:9.1}  {least:9.1} {most:9.1}  {cpu:>9} {of_thread:9.1}  ")?;
        write!(f, "{device_allocs} {ops}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PyTorch's benchmark printed.
    const PYTORCH: &str = "\
# scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops_per_rep  (api raw, 3 reps)
small    2     649.2      611.3     700.0     1076.9    1298.5  0 256
";

    #[test]
    fn lines_are_those_of_pytorchs_benchmark() {
        let mut figures = Figures {
            scenario: Scenario::Small,
            threads: 2,
            wall: Spread::of(vec![700.0, 611.3, 649.23]),
            cpu: Some(Spread::of(vec![1.0, 1076.9, 2e9])),
            device_allocs: 0,
            ops: 256,
        };
        let text = format!("{}\n{figures}\n", header(3)).replace("api core", "api raw");
        assert_eq!(text, PYTORCH);
        figures.cpu = None;
        assert_eq!(figures.to_string(), PYTORCH.lines().last().unwrap().replace("1076.9", "     -"));
    }

    #[test]
    fn of_an_even_number_the_median_is_the_upper() {
        let Spread { least, median, most } = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!([least, median, most], [1.0, 3.0, 4.0]); // as in PyTorch's benchmark
    }
}
