//! The model's derivation of stream progress, compared with a device.

use accelerator_conformance::{Controls, Faulty, FaultyEvent, FaultyStream, Sim};
use accelerator_core::{Backend, EventFlags, StreamKind};
use proptest::collection::vec;
use proptest::prelude::*;

use super::check;
use super::model::program::STREAMS;
use super::model::streams::{Over, Point, Streams};

/// Points are chosen by a number modulo their count. The model may not learn whether a step was taken.
#[derive(Clone, Debug)]
enum Op {
    Hold(u32),
    Release(u32),
    Work(u32),
    Wait { stream: u32, nth: usize },
    MayWait { stream: u32, nth: usize, waits: bool },
    WaitOnHost(usize),
    MayWaitOnHost { nth: usize, waits: bool },
    Synchronize(u32),
}

fn programs() -> impl Strategy<Value = Vec<Op>> {
    let stream = || 0..STREAMS;
    let nth = any::<usize>;
    let op = prop_oneof![
        3 => stream().prop_map(Op::Hold),
        3 => stream().prop_map(Op::Release),
        10 => stream().prop_map(Op::Work),
        6 => (stream(), nth()).prop_map(|(stream, nth)| Op::Wait { stream, nth }),
        1 => (stream(), nth(), any::<bool>()).prop_map(|(stream, nth, waits)| Op::MayWait { stream, nth, waits }),
        2 => nth().prop_map(Op::WaitOnHost),
        1 => (nth(), any::<bool>()).prop_map(|(nth, waits)| Op::MayWaitOnHost { nth, waits }),
        2 => stream().prop_map(Op::Synchronize),
    ];
    vec(op, 1..80)
}

struct Machine {
    device: Faulty<Sim>,
    streams: Vec<FaultyStream<Sim>>,
    points: Vec<(FaultyEvent<Sim>, Point)>,
    model: Streams,
    /// Whether the model had to guess.
    guessed: bool,
}

impl Machine {
    fn new() -> Self {
        let device = Faulty::new(Sim::default());
        let streams = (0..STREAMS).map(|_| device.stream(StreamKind::Default).unwrap()).collect();
        Self { device, streams, points: Vec::new(), model: Streams::new(), guessed: false }
    }

    fn step(&mut self, op: &Op) {
        let Self { device, streams, model, .. } = self;
        let native = |stream: u32| &streams[stream as usize];
        let chosen = |nth: usize| self.points.get(nth.checked_rem(self.points.len())?);
        match *op {
            Op::Hold(stream) => {
                device.hold(native(stream));
                model.hold(stream);
            }
            Op::Release(stream) => {
                device.release(native(stream));
                model.release(stream);
            }
            Op::Work(stream) => {
                let event = device.event(EventFlags::default()).unwrap();
                device.record(&event, native(stream)).unwrap();
                self.points.push((event, model.work(stream)));
            }
            Op::Wait { stream, nth } => {
                let Some((event, point)) = chosen(nth).filter(|(_, point)| point.stream != stream) else {
                    return;
                };
                device.wait(native(stream), event).unwrap();
                model.wait(stream, *point);
            }
            Op::MayWait { stream, nth, waits } => {
                let Some((event, point)) = chosen(nth).filter(|(_, point)| point.stream != stream) else {
                    return;
                };
                if waits {
                    device.wait(native(stream), event).unwrap();
                }
                model.may_wait(stream, *point);
                self.guessed = true;
            }
            Op::WaitOnHost(nth) => {
                let Some((event, point)) = chosen(nth) else { return };
                device.wait_host(event).unwrap();
                model.waited(*point);
            }
            Op::MayWaitOnHost { nth, waits } => {
                let Some((event, _)) = chosen(nth) else { return };
                if waits {
                    device.wait_host(event).unwrap();
                }
                model.may_have_waited();
                self.guessed = true;
            }
            Op::Synchronize(stream) => {
                device.synchronize(native(stream)).unwrap();
                model.synchronized(stream);
            }
        }
    }

    fn check(&self) {
        for (event, point) in &self.points {
            let is_over = self.device.is_complete(event).unwrap();
            match self.model.over(*point) {
                Over::No => assert!(!is_over, "{point:?}"),
                Over::Perhaps => assert!(self.guessed, "{point:?}"),
                Over::Yes => assert!(is_over, "{point:?}"),
            }
        }
    }
}

#[test]
fn the_streams_of_a_device_equal_the_model() {
    check(1000, programs(), |program| {
        let mut machine = Machine::new();
        for op in program {
            machine.step(op);
            machine.check();
        }
    });
}
