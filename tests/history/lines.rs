//! Histories as lines that do not depend on stream numbering.

use std::collections::HashMap;

use accelerator_cli::convert::{Options, Written, convert};
use accelerator_tracker::snapshot::MemorySnapshot;
use libtest_mimic::Failed;

/// Converts a snapshot to a trace.
pub(crate) fn trace_of(mut snapshot: &MemorySnapshot, options: &Options) -> Result<String, Failed> {
    let mut trace = String::new();
    convert(&mut snapshot, options, &mut |written| {
        match written {
            Written::Operation(op) => trace += &format!("{op}\n"),
            Written::Comment(text) => trace += &format!("# {text}\n"),
        }
        Ok(())
    })?;
    Ok(trace)
}

/// Numbers streams by first appearance, and removes snapshot entries.
pub(crate) fn canonical(lines: &[String]) -> Vec<String> {
    let mut numbers = HashMap::from([("0".to_owned(), 0)]);
    let mut number = |stream: &str| {
        let next = numbers.len();
        *numbers.entry(stream.to_owned()).or_insert(next)
    };
    let renumbered = |line: &String| {
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["segment", _, "at", _, "size", _, "stream", stream, ..] => {
                let stream = number(stream);
                Some(line.replacen(&format!("stream {}", words[7]), &format!("stream {stream}"), 1))
            }
            ["snapshot" | "setting", ..] => None,
            [action, address, size, stream] => Some(format!("{action} {address} {size} {}", number(stream))),
            _ => Some(line.clone()),
        }
    };
    lines.iter().filter_map(renumbered).collect()
}

/// Extracts the program's own calls from such lines. Each has an allocation number in place of an address.
pub(crate) fn calls(lines: &[String]) -> Vec<String> {
    let mut numbers = HashMap::new();
    let mut calls = Vec::new();
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let [action @ ("alloc" | "free_requested"), address, size, stream] = *words else {
            continue;
        };
        if action == "alloc" {
            numbers.insert(address, calls.len());
        }
        calls.push(format!("{action} {} {size} {stream}", numbers[address]));
    }
    calls
}

/// Extracts the lines of segments and blocks.
pub(crate) fn layout(lines: &[String]) -> &[String] {
    let start = lines.iter().position(|line| line.starts_with("segment ")).unwrap_or(lines.len());
    &lines[start..]
}

/// Fails at the first difference.
pub(crate) fn same(expected: &[String], found: &[String]) -> Result<(), Failed> {
    for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
        if expected != found {
            return Err(format!("line {}\nrecorded: {expected}\nreplayed: {found}", number + 1).into());
        }
    }
    match expected.len() == found.len() {
        true => Ok(()),
        false => Err(format!("{} lines were recorded, {} replayed", expected.len(), found.len()).into()),
    }
}

/// Removes the request that free blocks last served.
pub(crate) fn without_stale(lines: &[String]) -> Vec<String> {
    let without = |line: &String| match line.split_once(" requested ") {
        Some((block, _)) if line.ends_with(" inactive") => format!("{block} inactive"),
        _ => line.clone(),
    };
    lines.iter().map(without).collect()
}

/// Returns the segments without addresses, sorted.
pub(crate) fn segments(lines: &[String]) -> Vec<String> {
    let mut segments: Vec<String> = Vec::new();
    for line in without_stale(layout(lines)) {
        match line.split_once(" size ") {
            Some((_, rest)) if line.starts_with("segment") => {
                segments.push(rest.split(" counter").next().unwrap_or_default().to_owned());
            }
            _ => segments.last_mut().expect("a segment before its blocks").push_str(&format!("\n{line}")),
        }
    }
    segments.sort();
    segments
}
