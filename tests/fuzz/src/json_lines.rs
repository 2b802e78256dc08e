//! Lines of JSON, our own format of a tracker. What is accepted means what a naive reading of each line says, and a
//! file that is cut off is refused.

use accelerator_tracker::Limits;
use accelerator_tracker::tracker::TrackerStats;
use serde_json::Value;

use super::text::check_message;

const HEADER: &[u8] =
    b"{\"format\":\"accelerator-tracker\",\"version\":1,\"device\":null,\"total_memory\":null,\"start\":null}\n";

pub fn run(data: &[u8]) {
    let header = if data.starts_with(b"{\"") { &b""[..] } else { HEADER };
    let file = [header, data].concat();
    let stats = match load(&file) {
        Ok(stats) => stats,
        Err(error) => return check_message(&error),
    };
    check_contents(&file, &stats);
    // The last line is the one that says that the file is whole.
    let last = file.trim_ascii_end().iter().rposition(|byte| *byte == b'\n').map_or(0, |line_end| line_end + 1);
    for end in [last, last.saturating_sub(1), last / 2] {
        assert!(load(&file[..end]).is_err(), "{end} of {} bytes are read", file.len());
    }
}

fn load(file: &[u8]) -> Result<TrackerStats, String> {
    let limits = Limits { memory: 1 << 22, line: 1 << 12, ..Limits::default() };
    TrackerStats::load_from(file, "a file", limits).map_err(|error| error.to_string())
}

fn check_contents(file: &[u8], stats: &TrackerStats) {
    // Strings that are ignored need not be Unicode, for which the other reader refuses the line.
    let lines = file.strip_suffix(b"\n").unwrap_or(file).split(|byte| *byte == b'\n').map(serde_json::from_slice);
    let Ok(values) = lines.collect::<Result<Vec<Value>, _>>() else { return };
    let start = &values[0]["start"];
    assert_eq!(start.is_null(), stats.start.is_none());
    assert_eq!(start["reserved"].as_u64(), stats.start.map(|start| start.reserved));
    assert_eq!(values[0]["total_memory"].as_u64(), stats.total_memory);
    let of_kind = |kind: &str| {
        let kind = Value::from(kind);
        values[1..].iter().filter(move |value| value["kind"] == kind).collect::<Vec<_>>()
    };
    let operators = of_kind("operator");
    assert_eq!(operators.len(), stats.operators.len());
    for (value, operator) in operators.into_iter().zip(&stats.operators) {
        assert_eq!(value["name"], operator.name);
        assert_eq!(value["allocated"], operator.memory.allocated);
        assert_eq!(value["active"], operator.memory.active);
        assert_eq!(value["reserved"], operator.memory.reserved);
        assert_eq!(value["time_ns"].as_u64(), operator.time.map(|time| time.as_nanos() as u64));
    }
    let markers = of_kind("marker");
    assert_eq!(markers.len(), stats.markers.len());
    for (value, marker) in markers.into_iter().zip(&stats.markers) {
        assert_eq!((&value["name"], &value["position"]), (&marker.name.clone().into(), &marker.position.into()));
        assert!(marker.position <= stats.operators.len());
    }
    let ends = of_kind("end");
    assert_eq!((ends.len(), &ends[0]["num_alloc_retries"]), (1, &stats.num_alloc_retries.into()));
}
