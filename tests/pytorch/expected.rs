//! Our own versions of the output that `_memory_viz.py` prints for a snapshot.

use std::fmt::Write;

use accelerator_tracker::snapshot::{
    Block, BlockState, Frame, MemorySnapshot, Segment, Setting, TraceAction, TraceEntry,
};

pub(crate) fn memory(snapshot: &MemorySnapshot) -> String {
    let blocks = |segment: &Segment| blocks(&format!("stream_{}", segment.stream), &segment.blocks);
    snapshot.segments.iter().map(blocks).collect()
}

pub(crate) fn segments(snapshot: &MemorySnapshot) -> String {
    snapshot.segments.iter().map(|segment| blocks(&of_segment(segment), &segment.blocks)).collect()
}

/// Returns the comparison of two segment lists that differ in one segment.
pub(crate) fn compare(before: &Segment, after: &Segment) -> String {
    let addresses = format!("only_before = [{}]\nonly_after = [{}]\n", before.address, after.address);
    let of = |when: &str, segment: &Segment| blocks(&format!("{when};{}", of_segment(segment)), &segment.blocks);
    addresses + &of("only_before", before) + &of("only_after", after)
}

fn of_segment(segment: &Segment) -> String {
    format!("stream_{};seg_{}", segment.stream, segment.address)
}

fn blocks(prefix: &str, blocks: &[Block]) -> String {
    let mut lines = String::new();
    for block in blocks {
        let state = match block.state {
            BlockState::Allocated | BlockState::Aliased => "active_allocated",
            BlockState::PendingFree => "active_awaiting_free",
            BlockState::Inactive => "inactive",
        };
        let frames: Vec<_> =
            block.frames.iter().rev().filter(|frame| is_shown(frame)).map(|frame| place(frame)).collect();
        let frames = if block.frames.is_empty() { "<non-python>".to_owned() } else { frames.join(";") };
        writeln!(lines, "{prefix};{state};{frames} {}", block.requested_size).unwrap();
        let gaps = block.size as i64 - block.requested_size as i64;
        if gaps != 0 {
            writeln!(lines, "{prefix};{state};<gaps> {gaps}").unwrap();
        }
    }
    lines
}

fn place(frame: &Frame) -> String {
    format!("{}:{}:{}", frame.filename.rsplit('/').next().unwrap(), frame.line, frame.name)
}

/// Whether a frame is printed. Frames of the interpreter, the dispatcher and program start-up are omitted; these names
/// cover our snapshots.
fn is_shown(frame: &Frame) -> bool {
    let names = ["PyEval_", "_start"];
    !names.iter().any(|name| frame.name.contains(name)) && !frame.filename.contains("core/boxing")
}

fn bytes(number: u64) -> String {
    let mut number = number as f64;
    for unit in ["", "Ki", "Mi", "Gi", "Ti"] {
        if number < 1024.0 {
            return format!("{number:.1}{unit}B");
        }
        number /= 1024.0;
    }
    format!("{number:.1}PiB")
}

const PAGE: u64 = 20 << 20;

/// Returns how full the segments are, with a letter for each 20 MiB page.
pub(crate) fn segsum(snapshot: &MemorySnapshot) -> String {
    let mut out = format!("Summary of segments >= {} in size\n", bytes(PAGE));
    let active = |segment: &Segment| -> u64 {
        let active = segment.blocks.iter().filter(|block| block.state == BlockState::Allocated);
        active.map(|block| block.size).sum()
    };
    let mut sorted: Vec<_> = snapshot.segments.iter().collect();
    sorted.sort_by_key(|segment| (segment.total_size, active(segment)));
    let (mut reserved, mut allocated, mut external, mut internal) = (0, 0, 0, 0);
    for segment in sorted {
        let used = segment.blocks.iter().filter(|block| block.state == BlockState::Allocated);
        let requested: u64 = used.map(|block| block.requested_size).sum();
        let (inside, outside) = (active(segment) - requested, segment.total_size - active(segment));
        reserved += segment.total_size;
        allocated += requested;
        external += outside;
        internal += inside;
        if segment.total_size >= PAGE {
            let stream = match segment.stream {
                0 => String::new(),
                stream => format!(" stream_{stream}"),
            };
            let total = bytes(segment.total_size);
            writeln!(out, "[{}] {total} allocated, {} free{stream}", pages(segment), free(outside, inside)).unwrap();
        }
    }
    writeln!(out, "segments: {}", snapshot.segments.len()).unwrap();
    writeln!(out, "total_reserved: {}\ntotal_allocated: {}", bytes(reserved), bytes(allocated)).unwrap();
    writeln!(out, "total_free: {}", free(external, internal)).unwrap();
    out
}

fn free(external: u64, internal: u64) -> String {
    let total = external + internal;
    match total {
        0 => bytes(0),
        _ => format!("{} ({:.1}% internal)", bytes(total), internal as f64 / total as f64 * 100.0),
    }
}

/// Returns a letter for a page of one block, and a digit or `*` for a page shared by several.
fn pages(segment: &Segment) -> String {
    let mut pages = vec![(b' ', 0.0f64); segment.total_size.div_ceil(PAGE) as usize];
    let (mut start, mut letter) = (0, b'a');
    for block in &segment.blocks {
        let end = start + block.requested_size;
        if block.state == BlockState::Allocated {
            for page in start / PAGE..end.div_ceil(PAGE) {
                let covered = end.min((page + 1) * PAGE) - start.max(page * PAGE);
                let (shown, filled) = &mut pages[page as usize];
                *filled += covered as f64 / PAGE as f64;
                *shown = if *shown == b' ' { letter } else { b"0123456789*"[(*filled * 10.0) as usize] };
            }
            letter = if letter == b'z' { b'a' } else { letter + 1 };
        }
        start += block.size;
    }
    pages.into_iter().map(|(shown, _)| char::from(shown)).collect()
}

/// Returns the history as lines that look like Python.
pub(crate) fn trace(snapshot: &MemorySnapshot) -> String {
    let mut out = String::new();
    for (device, entries) in snapshot.device_traces.iter().enumerate().filter(|(_, entries)| !entries.is_empty()) {
        writeln!(out, "Device {device} ----------------").unwrap();
        out += &history(&snapshot.segments, entries);
    }
    out
}

fn history(segments: &[Segment], entries: &[TraceEntry]) -> String {
    let mut out = format!("{} entries\n", entries.len());
    let (mut names, mut blocks, mut made) = (0u32, Vec::new(), Vec::new());
    let mut name = || {
        let (round, letter) = (names / 26, char::from(b'a' + (names % 26) as u8));
        names += 1;
        if round == 0 { letter.to_string() } else { format!("{letter}{round}") }
    };
    // PyTorch calls this the memory in use. It is the index of the last entry, plus or minus its bytes.
    let mut total = 0;
    for (number, entry) in (0i64..).zip(entries) {
        let TraceEntry { address, size, .. } = *entry;
        let known = |blocks: &[(u64, String)]| {
            let known = blocks.iter().rev().find(|(start, _)| *start == address);
            known.map_or(address.to_string(), |(_, name)| name.clone())
        };
        total = number;
        match entry.action {
            TraceAction::Alloc => {
                let name = name();
                let made = made.iter().map(|(start, size, name): &(u64, u64, String)| (*start, *size, name.clone()));
                let held = segments.iter().enumerate();
                let held = held.map(|(index, held)| (held.address, held.allocated_size, format!("seg_{index}")));
                let inside = made.chain(held).find(|(start, size, _)| (*start..start + size).contains(&address));
                let (start, _, segment) = inside.unwrap_or((0, 0, "MEM".to_owned()));
                writeln!(out, "{name} = {segment}[{}:{}]", address - start, bytes(size)).unwrap();
                blocks.push((address, name));
                total += size as i64;
            }
            TraceAction::FreeRequested => writeln!(out, "del {} # {}", known(&blocks), bytes(size)).unwrap(),
            TraceAction::FreeCompleted => {
                writeln!(out, "# free completed for {} {}", known(&blocks), bytes(size)).unwrap();
                total -= size as i64;
            }
            TraceAction::SegmentAlloc => {
                let name = name();
                writeln!(out, "{name} = cudaMalloc({address}, {})", bytes(size)).unwrap();
                made.push((address, size, name));
            }
            TraceAction::SegmentFree => {
                let made = made.iter().rev().find(|(start, ..)| *start == address);
                let name = made.map_or(address.to_string(), |(.., name)| name.clone());
                writeln!(out, "cudaFree({name}) # {}", bytes(size)).unwrap();
            }
            TraceAction::OutOfMemory { device_free } => {
                let (size, free) = (bytes(size), bytes(device_free));
                writeln!(out, "raise OutOfMemoryError # {size} requested, {free} free in CUDA").unwrap();
            }
            TraceAction::Other => {
                assert_eq!(entry.other[0].1, Setting::Text("annotate".into()));
                writeln!(out, "# annotate {}: {}", known(&blocks), entry.user_metadata).unwrap();
            }
            other => panic!("PyTorch prints {other:?} as a dictionary"),
        }
    }
    let total = if total < 0 { format!("-{}", bytes(total.unsigned_abs())) } else { bytes(total.unsigned_abs()) };
    out + &format!("TOTAL MEM: {total}")
}
