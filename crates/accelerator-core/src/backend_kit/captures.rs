//! Captures of streams, for drivers that capture nothing themselves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sync::lock;
use crate::types::{DriverError, DriverErrorKind, DriverResult};

/// The captures that are in progress: which streams take part, and what each has captured.
///
/// A backend of a driver without stream capture keeps one for each device, and implements
/// [`Graphs`](crate::Graphs) with it. `N` is what the backend must know to submit one piece of work later.
///
/// The caller names streams by numbers, which it must not use again for other streams. A refused call changes nothing.
/// While no capture is in progress, only [`begin`](Self::begin) and [`end`](Self::end) take a lock.
///
/// ```
/// use accelerator_core::backend_kit::Captures;
///
/// # fn main() -> accelerator_core::DriverResult<()> {
/// let captures = Captures::new();
/// let (main, side) = (1, 2); // streams
/// captures.begin(main)?;
/// assert!(captures.record(main, || "copy in"));
/// let copied = captures.record_event(main);
/// assert!(captures.wait(side, copied.as_ref())?, "the side stream takes part from now on");
/// assert!(captures.record(side, || "kernel"));
/// let computed = captures.record_event(side);
/// assert!(captures.record(main, || "another kernel"));
/// captures.wait(main, computed.as_ref())?;
/// assert!(captures.record(main, || "copy out"));
///
/// let graph = captures.end(main)?;
/// assert!(graph.iter().map(|node| node.work).eq(["copy in", "kernel", "another kernel", "copy out"]));
/// assert_eq!(graph[3].after, [1, 2]);
/// assert!(!captures.record(main, || "this runs at once"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Captures<N> {
    /// How many captures are in progress, so that work takes no lock while there are none.
    in_progress: AtomicUsize,
    captures: Mutex<Vec<Capture<N>>>,
}

/// Work of a captured graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphNode<N> {
    /// The work.
    pub work: N,
    /// The places, in the list of [`Captures::end`], of the work that must be done first.
    pub after: Vec<usize>,
}

/// A record of an event in a capture. The event keeps it instead of an ordinary record.
#[derive(Clone, Debug)]
pub struct EventCapture {
    capture: u64,
    last: Vec<usize>,
}

#[derive(Debug)]
struct Capture<N> {
    number: u64,
    /// The stream that began it.
    origin: u64,
    /// Each comes after those that it depends on. A mark is one without work.
    nodes: Vec<GraphNode<Option<N>>>,
    /// The streams that take part. Whatever one captures next depends on these nodes.
    streams: BTreeMap<u64, Vec<usize>>,
    broken: bool,
}

impl<N> Captures<N> {
    /// Makes a list without captures.
    pub const fn new() -> Self {
        Self { in_progress: AtomicUsize::new(0), captures: Mutex::new(Vec::new()) }
    }

    /// Begins to capture a stream. There is no [`CaptureMode`](crate::CaptureMode), since no other call can break such
    /// a capture.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) if the stream takes part in a capture already.
    pub fn begin(&self, stream: u64) -> DriverResult<()> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut captures = lock(&self.captures);
        if captures.iter().any(|capture| capture.streams.contains_key(&stream)) {
            return Err(refused("begin", "the stream captures already: end that capture first"));
        }
        captures.push(Capture {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            origin: stream,
            nodes: Vec::new(),
            streams: BTreeMap::from([(stream, Vec::new())]),
            broken: false,
        });
        self.in_progress.store(captures.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Ends the capture that a stream takes part in, and returns the captured work. Each piece comes after all that it
    /// depends on, so the backend may also submit them to one stream in this order.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument)
    /// * if the stream takes part in no capture,
    /// * if another stream began the capture,
    /// * if another stream captured work that this stream has not waited for,
    /// * after [`invalidate`](Self::invalidate).
    ///
    /// The capture is over then, too.
    pub fn end(&self, stream: u64) -> DriverResult<Vec<GraphNode<N>>> {
        let capture = self.take(|capture| capture.streams.contains_key(&stream));
        let capture = capture.ok_or_else(|| refused("end", "the stream does not capture"))?;
        if capture.broken {
            return Err(refused("end", "a call that cannot be captured has broken the capture"));
        }
        if capture.origin != stream {
            return Err(refused("end", "another stream began the capture: end it on that stream"));
        }
        if !capture.is_joined() {
            let why = "another stream captured work that this stream has not waited for: record an event after that \
                       work, and let this stream wait for it before the end";
            return Err(refused("end", why));
        }
        Ok(capture.into_nodes())
    }

    /// Ends the capture that this stream began, if there is one. For a stream that is dropped.
    pub fn abandon(&self, stream: u64) {
        if self.any() {
            drop(self.take(|capture| capture.origin == stream));
        }
    }

    /// Makes the end of the capture fail that the stream takes part in, if it does. For calls that the backend can
    /// neither capture nor refuse.
    pub fn invalidate(&self, stream: u64) {
        self.with(stream, |capture| capture.broken = true);
    }

    /// Returns whether the stream takes part in a capture.
    #[inline]
    pub fn is_capturing(&self, stream: u64) -> bool {
        self.capture_of(stream).is_some()
    }

    /// Returns the number of the capture that the stream takes part in, which no other capture of the process has.
    #[inline]
    pub fn capture_of(&self, stream: u64) -> Option<u64> {
        self.with(stream, |capture| capture.number)
    }

    /// Refuses a call that cannot be captured, such as waiting for the stream on the host.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) if the stream takes part in a capture.
    pub fn refuse_captured(&self, stream: u64, call: &'static str) -> DriverResult<()> {
        match self.is_capturing(stream) {
            true => Err(refused(call, "this cannot be captured: do it before the capture, or after its end")),
            false => Ok(()),
        }
    }

    /// Captures work, after everything else that the stream has captured. Returns whether it did: otherwise the stream
    /// takes part in no capture, and the work must be submitted.
    #[inline]
    pub fn record(&self, stream: u64, work: impl FnOnce() -> N) -> bool {
        self.with(stream, |capture| capture.push(stream, Some(work()))).is_some()
    }

    /// Returns what an event keeps that is recorded on the stream now, or `None` if the stream takes part in no
    /// capture.
    #[inline]
    pub fn record_event(&self, stream: u64) -> Option<EventCapture> {
        self.with(stream, |capture| EventCapture { capture: capture.number, last: capture.last(stream).clone() })
    }

    /// Makes what the stream captures from now on depend on an event: on its record in a capture, or on an ordinary one
    /// (`None`). A stream that takes part in no capture joins that of the event. Returns whether the wait is captured:
    /// otherwise it must be submitted. Waiting for an event that was never recorded does nothing, so it needs no call.
    ///
    /// # Errors
    /// [`InvalidArgument`](DriverErrorKind::InvalidArgument) if the event was recorded outside the stream's capture, or
    /// in a capture that is over.
    pub fn wait(&self, stream: u64, event: Option<&EventCapture>) -> DriverResult<bool> {
        let Some(event) = event else {
            return match self.is_capturing(stream) {
                true => {
                    Err(refused("wait", "the event was recorded outside the capture that the stream takes part in"))
                }
                false => Ok(false),
            };
        };
        let mut captures = lock(&self.captures);
        let own = captures.iter().find(|capture| capture.streams.contains_key(&stream));
        if own.is_some_and(|own| own.number != event.capture) {
            return Err(refused("wait", "the event was recorded in another capture than the stream takes part in"));
        }
        let Some(capture) = captures.iter_mut().find(|capture| capture.number == event.capture) else {
            return Err(refused("wait", "the event was recorded in a capture that is over: record it again"));
        };
        let last = capture.streams.entry(stream).or_default();
        last.extend_from_slice(&event.last);
        last.sort_unstable();
        last.dedup();
        Ok(true)
    }

    /// Implements [`Graphs::mark`](crate::Graphs::mark). No stream must wait for a mark before the end.
    pub fn mark(&self, stream: u64) -> Option<u64> {
        let mark = self.with(stream, |capture| (!capture.last(stream).is_empty()).then(|| capture.push(stream, None)));
        mark.flatten().map(|node| node as u64)
    }

    /// Implements [`Graphs::precede`](crate::Graphs::precede).
    pub fn precede(&self, marks: &[u64], stream: u64) -> Vec<bool> {
        let before = self.with(stream, |capture| capture.before(stream)).unwrap_or_default();
        let precedes = |mark: &u64| usize::try_from(*mark).ok().and_then(|mark| before.get(mark).copied());
        marks.iter().map(|mark| precedes(mark).unwrap_or(false)).collect()
    }

    /// Whether a capture is in progress. A thread that knows of a capture sees it here.
    #[inline(always)]
    fn any(&self) -> bool {
        self.in_progress.load(Ordering::Relaxed) > 0
    }

    /// Calls `f` with the capture that the stream takes part in.
    #[inline(always)]
    fn with<T>(&self, stream: u64, f: impl FnOnce(&mut Capture<N>) -> T) -> Option<T> {
        if self.any() { self.with_locked(stream, f) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn with_locked<T>(&self, stream: u64, f: impl FnOnce(&mut Capture<N>) -> T) -> Option<T> {
        lock(&self.captures).iter_mut().find(|capture| capture.streams.contains_key(&stream)).map(f)
    }

    /// Removes a capture, so that its work is dropped without the lock.
    fn take(&self, is_it: impl Fn(&Capture<N>) -> bool) -> Option<Capture<N>> {
        let mut captures = lock(&self.captures);
        let place = captures.iter().position(is_it)?;
        let capture = captures.swap_remove(place);
        self.in_progress.store(captures.len(), Ordering::Relaxed);
        Some(capture)
    }
}

impl<N> Default for Captures<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N> Capture<N> {
    /// The nodes that whatever the stream captures next depends on.
    fn last(&mut self, stream: u64) -> &mut Vec<usize> {
        self.streams.entry(stream).or_default()
    }

    /// Adds a node after what the stream has captured, and returns its place.
    fn push(&mut self, stream: u64, work: Option<N>) -> usize {
        let node = self.nodes.len();
        let after = std::mem::replace(self.last(stream), vec![node]);
        self.nodes.push(GraphNode { work, after });
        node
    }

    /// Returns for each node whether it precedes everything that the stream captures from now on.
    fn before(&self, stream: u64) -> Vec<bool> {
        let mut before = vec![false; self.nodes.len()];
        for &last in self.streams.get(&stream).into_iter().flatten() {
            before[last] = true;
        }
        for (place, node) in self.nodes.iter().enumerate().rev().filter(|(_, node)| !node.after.is_empty()) {
            if before[place] {
                node.after.iter().for_each(|&earlier| before[earlier] = true);
            }
        }
        before
    }

    /// Whether the stream that began the capture has waited for all work that was captured.
    fn is_joined(&self) -> bool {
        self.before(self.origin).iter().zip(&self.nodes).all(|(joined, node)| *joined || node.work.is_none())
    }

    /// Returns the nodes without the marks: work depends on what a mark depends on instead.
    fn into_nodes(self) -> Vec<GraphNode<N>> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut instead: Vec<Vec<usize>> = Vec::with_capacity(self.nodes.len());
        for GraphNode { work, after } in self.nodes {
            let mut after: Vec<usize> = after.iter().flat_map(|&earlier| instead[earlier].iter().copied()).collect();
            after.sort_unstable();
            after.dedup();
            match work {
                Some(work) => {
                    instead.push(vec![nodes.len()]);
                    nodes.push(GraphNode { work, after });
                }
                None => instead.push(after),
            }
        }
        nodes
    }
}

impl EventCapture {
    /// Returns the error of a query of such an event, or of waiting for it on the host.
    pub const fn unanswered(&self, call: &'static str) -> DriverError {
        let why = "the event was recorded in a capture, so no work reaches it: record it outside of captures first";
        refused(call, why)
    }
}

const fn refused(call: &'static str, why: &'static str) -> DriverError {
    DriverError::refused(DriverErrorKind::InvalidArgument, call, why)
}

#[cfg(test)]
mod tests;
