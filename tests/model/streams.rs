//! What each stream has completed, derived from its submitted work by rules that all devices obey. A stream works in
//! order. A stream that waits for another is blocked until the other has reached that point. When the host has waited
//! for a stream, the stream has completed, and so has everything that it waits for.

use super::program::STREAMS;

/// Whether a stream has reached a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Over {
    No,
    /// Not observable from outside.
    Perhaps,
    Yes,
}

/// A point in a stream's work: after this many pieces of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) stream: u32,
    pieces: usize,
}

/// A device's progress is not fully observable, so there are two models: one that has done the least possible, and one
/// that has done the most.
#[derive(Debug)]
pub(crate) struct Streams {
    least: Device,
    most: Device,
}

#[derive(Debug, Default)]
struct Device {
    streams: [Stream; STREAMS as usize],
    /// Whether it does everything possible.
    does_most: bool,
}

#[derive(Debug, Default)]
struct Stream {
    held: bool,
    work: Vec<Work>,
    done: usize,
    /// The number of pieces that the host has waited for.
    waited: usize,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Use,
    WaitFor(Point),
    MayWaitFor(Point),
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { least: Device::default(), most: Device { does_most: true, ..Device::default() } }
    }

    pub(crate) fn over(&self, point: Point) -> Over {
        match (self.least.is_past(point), self.most.is_past(point)) {
            (true, _) => Over::Yes,
            (false, true) => Over::Perhaps,
            (false, false) => Over::No,
        }
    }

    pub(crate) fn hold(&mut self, stream: u32) {
        self.change(|device| device.of(stream).held = true);
    }

    pub(crate) fn release(&mut self, stream: u32) {
        self.change(|device| device.of(stream).held = false);
    }

    /// Submits work to the stream and returns the point after it.
    pub(crate) fn work(&mut self, stream: u32) -> Point {
        self.change(|device| device.of(stream).work.push(Work::Use));
        self.least.end_of(stream)
    }

    /// Makes the stream wait for the point.
    pub(crate) fn wait(&mut self, stream: u32, point: Point) {
        self.change(|device| device.of(stream).work.push(Work::WaitFor(point)));
    }

    /// Records that the stream may wait for the point from now on.
    pub(crate) fn may_wait(&mut self, stream: u32, point: Point) {
        self.change(|device| device.of(stream).work.push(Work::MayWaitFor(point)));
    }

    /// Records that the host has waited for the point.
    pub(crate) fn waited(&mut self, point: Point) {
        self.change(|device| device.finish(point));
    }

    /// Records that the host has waited for the stream.
    pub(crate) fn synchronized(&mut self, stream: u32) {
        self.waited(self.least.end_of(stream));
    }

    /// Records that the host may have waited for any stream.
    pub(crate) fn may_have_waited(&mut self) {
        for stream in 0..STREAMS {
            self.most.finish(self.most.end_of(stream));
        }
    }

    fn change(&mut self, change: impl Fn(&mut Device)) {
        for device in [&mut self.least, &mut self.most] {
            change(device);
            device.go_on();
        }
    }
}

impl Device {
    fn of(&mut self, stream: u32) -> &mut Stream {
        &mut self.streams[stream as usize]
    }

    fn end_of(&self, stream: u32) -> Point {
        Point { stream, pieces: self.streams[stream as usize].work.len() }
    }

    fn is_past(&self, point: Point) -> bool {
        self.streams[point.stream as usize].done >= point.pieces
    }

    /// Does all work that is not blocked.
    fn go_on(&mut self) {
        while let Some(next) = self.streams.iter().position(|stream| self.may_go_on(stream)) {
            self.streams[next].done += 1;
        }
    }

    fn may_go_on(&self, stream: &Stream) -> bool {
        !stream.held
            && match stream.work.get(stream.done) {
                Some(Work::Use) => true,
                Some(Work::WaitFor(point)) => self.is_past(*point),
                Some(Work::MayWaitFor(point)) => self.does_most || self.is_past(*point),
                None => false,
            }
    }

    /// Does all work up to the point, held or not, and the work that it waits for.
    fn finish(&mut self, point: Point) {
        while self.of(point.stream).waited < point.pieces {
            let stream = &mut self.streams[point.stream as usize];
            stream.waited += 1;
            match stream.work[stream.waited - 1] {
                Work::WaitFor(other) => self.finish(other),
                Work::MayWaitFor(other) if self.does_most => self.finish(other),
                Work::MayWaitFor(_) | Work::Use => {}
            }
        }
        let stream = self.of(point.stream);
        stream.done = stream.done.max(point.pieces);
    }
}
