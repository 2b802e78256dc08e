//! Which stream may touch each physical byte, and in which order: the judge of the allocator.
//!
//! The shadow decides by what the host knows and what streams wait for, never by what happens to be done already. So a
//! race is found in every run in which it is possible, however the work was scheduled.

use std::collections::BTreeMap;
use std::ops::Range;

use super::clock::Clock;

/// Memory with bytes of its own, wherever it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Memory {
    /// An allocation of device memory, by its address.
    Allocation(u64),
    /// Pages, by their handle.
    Pages(u64),
    /// Pinned memory of the host, by its address.
    Host(u64),
}

/// A range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) memory: Memory,
    /// From the start of the memory.
    pub(crate) range: Range<u64>,
    /// The address at which it is touched.
    pub(crate) address: u64,
}

/// A range that an operation touches, and whether it writes there.
pub(crate) type Touch = (Span, bool);

/// An operation that touches a range.
#[derive(Debug)]
struct Access {
    range: Range<u64>,
    addresses: Range<u64>,
    stream: usize,
    number: u64,
    writes: bool,
    what: &'static str,
    /// Whether it was captured: it runs only with a launch, which is an access of its own.
    captured: bool,
}

/// The streams of a device, and the accesses that the host has not been told are over.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// For each stream, what comes before its next operation.
    streams: Vec<Clock>,
    /// The same while work is captured: waits in a capture order captured work alone.
    captured: Vec<Clock>,
    /// What the host has been told is over: by an event, or by waiting for a stream.
    told: Clock,
    accesses: BTreeMap<Memory, Vec<Access>>,
    /// What no correct allocator does.
    pub(crate) found: Vec<String>,
}

impl Shadow {
    pub(crate) fn add_stream(&mut self) -> usize {
        self.streams.push(Clock::default());
        self.streams.len() - 1
    }

    /// Begins a capture. A device has one at a time.
    pub(crate) fn begin_capture(&mut self) {
        self.captured.clone_from(&self.streams);
    }

    /// Ends the capture, and forgets what it captured: a launch counts on its own.
    pub(crate) fn end_capture(&mut self) {
        self.accesses.values_mut().for_each(|accesses| accesses.retain(|access| !access.captured));
    }

    fn clock(&mut self, stream: usize, captured: bool) -> &mut Clock {
        let clocks = if captured { &mut self.captured } else { &mut self.streams };
        &mut clocks[stream]
    }

    /// Adds an operation to a stream. `captured`: to what it captures.
    pub(crate) fn submit(&mut self, stream: usize, captured: bool, what: &'static str, touches: &[Touch]) {
        let number = self.clock(stream, captured).tick(stream);
        for (span, writes) in touches {
            let addresses = span.address..span.address + (span.range.end - span.range.start);
            let (range, writes) = (span.range.clone(), *writes);
            let told = &self.told;
            let accesses = self.accesses.entry(span.memory).or_default();
            accesses.retain(|access| access.captured || access.number > told.of(access.stream));
            accesses.push(Access { range, addresses, stream, number, writes, what, captured });
        }
    }

    /// Returns what comes before the next operation of a stream.
    pub(crate) fn now(&self, stream: usize, captured: bool) -> Clock {
        let clocks = if captured { &self.captured } else { &self.streams };
        let mut now = clocks[stream].clone();
        now.join(&self.told);
        now
    }

    /// Makes later operations of a stream come after a point.
    pub(crate) fn wait(&mut self, stream: usize, captured: bool, point: &Clock) {
        self.clock(stream, captured).join(point);
    }

    /// Notes that the host has been told that everything before a point is over.
    pub(crate) fn tell(&mut self, point: &Clock) {
        self.told.join(point);
    }

    /// Notes that nothing before a point accesses host memory any more, although the host is not told that it is over.
    pub(crate) fn leave_host(&mut self, point: &Clock) {
        let of_host = self.accesses.iter_mut().filter(|(memory, _)| matches!(memory, Memory::Host(_)));
        of_host.for_each(|(_, accesses)| accesses.retain(|access| access.number > point.of(access.stream)));
    }

    /// Notes that all work is over.
    pub(crate) fn tell_all(&mut self) {
        self.streams.iter().for_each(|clock| self.told.join(clock));
    }

    /// Whether work that starts now on a stream comes after all conflicting accesses of these bytes.
    pub(crate) fn is_ordered(&self, stream: usize, spans: &[Span], writes: bool) -> bool {
        let now = self.now(stream, false);
        let conflicts = |access: &&Access| writes || access.writes;
        !spans
            .iter()
            .flat_map(|span| self.of(span))
            .filter(conflicts)
            .any(|access| access.number > now.of(access.stream))
    }

    /// Checks that nobody may touch bytes any more that the allocator gives to a stream.
    pub(crate) fn hand_out(&mut self, stream: usize, captured: bool, spans: &[Span]) {
        let now = self.now(stream, captured);
        self.check(spans, &now, &format!("is given to stream {stream}"));
    }

    /// Checks that nobody may touch bytes any more that the host gets for itself.
    pub(crate) fn hand_out_to_host(&mut self, spans: &[Span]) {
        let told = self.told.clone();
        self.check(spans, &told, "is given to the host");
    }

    fn check(&mut self, spans: &[Span], before: &Clock, what: &str) {
        let late = |access: &&Access| access.number > before.of(access.stream);
        let found = spans.iter().find_map(|span| Some((span, self.of(span).find(late)?)));
        if let Some((span, access)) = found {
            let text = format!("{:#x?} of {:?} {what}, while {}", span.range, span.memory, access.described());
            self.found.push(text);
        }
    }

    /// Checks that the host knows all work at these addresses to be over, before they lose their memory.
    pub(crate) fn unmap(&mut self, addresses: &Range<u64>) {
        let touches = |access: &&Access| overlap(&access.addresses, addresses);
        let late = |access: &&Access| access.captured || access.number > self.told.of(access.stream);
        let found = self.accesses.values().flatten().filter(touches).find(late);
        if let Some(access) = found {
            let text = format!("{addresses:#x?} is unmapped, while {}", access.described());
            self.found.push(text);
        }
    }

    /// Forgets memory that has gone back to the device.
    pub(crate) fn forget(&mut self, memory: Memory) {
        self.accesses.remove(&memory);
    }

    fn of(&self, span: &Span) -> impl Iterator<Item = &Access> {
        let accesses = self.accesses.get(&span.memory).into_iter().flatten();
        accesses.filter(|access| overlap(&access.range, &span.range))
    }
}

impl Access {
    fn described(&self) -> String {
        let Self { range, stream, number, what, .. } = self;
        let verb = if self.writes { "write" } else { "read" };
        format!("stream {stream} may still {verb} {range:#x?} of it: {what}, operation {number} of that stream")
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
