use std::fmt;

/// Formats a number like Python's `repr`, with the fewest digits that identify it: `16.0`, `1e-05`, `1e+16`.
pub(super) struct PythonFloat(pub(super) f64);

impl fmt::Display for PythonFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rust prints the same digits as Python, and uses an exponent for the same numbers. Python's exponents have a
        // sign and at least two digits.
        let text = format!("{:?}", self.0);
        match text.split_once('e') {
            None => f.write_str(&text),
            Some((digits, exponent)) => {
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |less| ('-', less));
                write!(f, "{}e{sign}{exponent:0>2}", digits.strip_suffix(".0").unwrap_or(digits))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PythonFloat;

    #[test]
    fn numbers_look_as_in_python() {
        for (number, text) in [
            (0.0, "0.0"),
            (16.0, "16.0"),
            (28.082_031_25, "28.08203125"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (1.0 / 1_048_576.0, "9.5367431640625e-07"),
            (0.00001, "1e-05"),
            (-3.0 / 1_048_576.0, "-2.86102294921875e-06"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
        ] {
            assert_eq!(PythonFloat(number).to_string(), text);
        }
    }
}
