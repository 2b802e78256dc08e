//! Traces: lines of text. Operations are written as they are read, and come from the lines that they name.

use accelerator_cli::replay::Setup;
use accelerator_cli::trace::{Line, Source, live_at_peak, parse_line};

use super::text::check_message;

/// More lines only take longer.
const MOST_LINES: usize = 10_000;

pub fn run(data: &[u8]) {
    let Ok(source) = Source::from_bytes("a trace", data) else { return };
    let texts: Vec<_> = data.split(|byte| *byte == b'\n').map(String::from_utf8_lossy).collect();
    let is_plain = !(data.starts_with(b"\x1f\x8b") || data.starts_with(b"\x28\xb5\x2f\xfd"));
    let mut lines = Vec::new();
    for line in source.take(MOST_LINES) {
        match line {
            Ok(line) => {
                check(&line);
                if is_plain {
                    let text = &texts[line.number - 1];
                    let same = parse_line(text).map(|op| op.map(|op| op.to_string()));
                    assert_eq!(same, Ok(Some(line.op.to_string())), "not on line {}", line.number);
                }
                lines.push(line);
            }
            Err(error) => {
                check_message(&error.to_string());
                break;
            }
        }
    }
    live_at_peak(&lines);
    if let Ok(mut source) = Source::from_bytes("a trace", data)
        && let Err(error) = Setup::default().take_from(&mut source)
    {
        check_message(&error.to_string());
    }
}

/// An operation is written as a line that means the same. Texts are compared, since a fraction may be `NaN`.
fn check(line: &Line) {
    let written = line.op.to_string();
    let again = parse_line(&written).map(|op| op.map(|op| op.to_string()));
    assert_eq!(again, Ok(Some(written.clone())), "{:?}", line.op);
}
