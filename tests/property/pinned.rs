//! Random programs on pinned host memory, compared with a naive model after every step: a list of blocks, and sums over
//! it. It has no queues or size classes, and derives from the sizes what a block may serve.

use std::collections::HashMap;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{Accelerator, AllocatorConfig, MIB, PinnedBuffer, Stat, Stream};
use proptest::prelude::{Just, Strategy, any, prop_oneof};

use super::check;

const STREAMS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Allocate(u64),
    Free(usize),
    RecordUse(usize, usize),
    Hold(usize),
    Release(usize),
    EmptyCache,
    ResetPeak,
    Configure { round: u64, cached: u64 },
}

fn programs() -> impl Strategy<Value = Vec<Op>> {
    let size = prop_oneof![Just(0), 1..5_000_u64, 1..(4 * MIB), (0..22_u32).prop_map(|power| 1 << power)];
    let limit = || prop_oneof![Just(u64::MAX), Just(0), Just(MIB), Just(2 * MIB)];
    let op = prop_oneof![
        8 => size.prop_map(Op::Allocate),
        6 => any::<usize>().prop_map(Op::Free),
        5 => (any::<usize>(), 0..STREAMS).prop_map(|(nth, stream)| Op::RecordUse(nth, stream)),
        1 => (0..STREAMS).prop_map(Op::Hold),
        1 => (0..STREAMS).prop_map(Op::Release),
        1 => Just(Op::EmptyCache),
        1 => Just(Op::ResetPeak),
        1 => (limit(), limit()).prop_map(|(round, cached)| Op::Configure { round, cached }),
    ];
    proptest::collection::vec(op, 1..150)
}

/// The state of a block.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Live {
        users: Vec<usize>,
    },
    /// Freed, with the streams that still use it.
    Pending {
        users: Vec<usize>,
        held: Vec<usize>,
    },
    /// Free since this step.
    Free {
        since: usize,
    },
    GivenBack,
}

#[derive(Debug)]
struct Block {
    size: u64,
    state: State,
}

#[derive(Debug, Default)]
struct Model {
    blocks: Vec<Block>,
    held: [bool; STREAMS],
    clock: usize,
    /// Uses in the order in which their blocks were freed: block and stream.
    uses: Vec<(usize, usize)>,
    /// By class size: current bytes, peak bytes, cumulative bytes.
    classes: HashMap<u64, [i64; 3]>,
    round: u64,
    cached: u64,
    driver: [i64; 2],
}

impl Model {
    /// Returns the number of the block that serves a request, and whether the driver must allocate it.
    fn allocate(&mut self, bytes: u64) -> (usize, bool) {
        self.look_at_events();
        let rounds = bytes <= self.round && bytes <= self.cached;
        let size = if rounds { bytes.next_power_of_two() } else { bytes };
        let free = self.blocks.iter().enumerate().filter_map(|(number, block)| match block.state {
            State::Free { since } if block.size >= size && class(block.size) == class(size) => Some((since, number)),
            _ => None,
        });
        let (number, made) = match free.max() {
            Some((_, number)) => (number, false),
            None => {
                self.blocks.push(Block { size, state: State::GivenBack });
                self.driver[0] += 1;
                (self.blocks.len() - 1, true)
            }
        };
        self.blocks[number].state = State::Live { users: Vec::new() };
        let [now, peak, ever] = self.classes.entry(class(size)).or_default();
        let size = self.blocks[number].size as i64;
        (*now, *ever) = (*now + size, *ever + size);
        *peak = (*peak).max(*now);
        (number, made)
    }

    fn free(&mut self, number: usize) {
        let State::Live { users } = self.blocks[number].state.clone() else { panic!("not live") };
        let held: Vec<_> = users.iter().copied().filter(|user| self.held[*user]).collect();
        self.uses.extend(users.iter().map(|user| (number, *user)));
        match users.is_empty() {
            true => self.available(number),
            false => self.blocks[number].state = State::Pending { users, held },
        }
    }

    /// Polls the events: removes finished uses in order, for each stream up to its first unfinished use.
    fn look_at_events(&mut self) {
        let mut stuck = [false; STREAMS];
        for (number, user) in std::mem::take(&mut self.uses) {
            let State::Pending { users, held } = &mut self.blocks[number].state else { panic!("not pending") };
            if stuck[user] || held.contains(&user) {
                stuck[user] = true;
                self.uses.push((number, user));
                continue;
            }
            users.retain(|other| *other != user);
            if users.is_empty() {
                self.available(number);
            }
        }
    }

    fn available(&mut self, number: usize) {
        let size = self.blocks[number].size;
        self.clock += 1;
        if let Some([now, ..]) = self.classes.get_mut(&class(size)) {
            *now -= size as i64;
        }
        self.blocks[number].state = match size <= self.cached {
            true => State::Free { since: self.clock },
            false => self.give_back(),
        };
    }

    fn give_back(&mut self) -> State {
        self.driver[1] += 1;
        State::GivenBack
    }

    fn empty_cache(&mut self) {
        self.look_at_events();
        for number in 0..self.blocks.len() {
            if matches!(self.blocks[number].state, State::Free { .. }) {
                self.blocks[number].state = self.give_back();
            }
        }
    }

    fn release(&mut self, stream: usize) {
        self.held[stream] = false;
        for block in &mut self.blocks {
            if let State::Pending { held, .. } = &mut block.state {
                held.retain(|user| *user != stream);
            }
        }
    }
}

fn class(size: u64) -> u64 {
    size.next_power_of_two()
}

struct Machine {
    device: &'static Accelerator<Faulty<Sim>>,
    streams: Vec<Stream<Faulty<Sim>>>,
    model: Model,
    live: Vec<(usize, PinnedBuffer<Faulty<Sim>>)>,
    places: HashMap<usize, usize>,
}

impl Machine {
    fn new() -> Self {
        let device = Accelerator::new(Faulty::new(Sim::default()), 0, AllocatorConfig::default()).unwrap();
        let streams = (0..STREAMS).map(|_| device.dedicated_stream(0).unwrap()).collect();
        let model = Model { round: u64::MAX, cached: u64::MAX, ..Model::default() };
        Self { device, streams, model, live: Vec::new(), places: HashMap::new() }
    }

    fn step(&mut self, op: &Op) {
        let (device, host) = (self.device, self.device.host_allocator());
        match *op {
            Op::Allocate(0) => assert!(device.allocate_host(0).unwrap().ptr().is_none()),
            Op::Allocate(bytes) => {
                let before = device.backend().calls().of(Call::AllocHost);
                let pinned = device.allocate_host(bytes).unwrap();
                let asked = device.backend().calls().of(Call::AllocHost) - before;
                let (number, made) = self.model.allocate(bytes);
                assert_eq!(asked, u64::from(made), "whether the driver is called");
                let place = pinned.ptr().unwrap().as_ptr().addr();
                match made {
                    true => drop(self.places.insert(place, number)),
                    false => assert_eq!(self.places[&place], number, "another block"),
                }
                assert_eq!(pinned.block_size(), self.model.blocks[number].size);
                self.live.push((number, pinned));
            }
            Op::Free(nth) if !self.live.is_empty() => {
                let (number, pinned) = self.live.swap_remove(nth % self.live.len());
                drop(pinned);
                self.model.free(number);
            }
            Op::RecordUse(nth, stream) if !self.live.is_empty() => {
                let (number, pinned) = &self.live[nth % self.live.len()];
                pinned.record_use(self.streams[stream]).unwrap();
                if let State::Live { users } = &mut self.model.blocks[*number].state
                    && !users.contains(&stream)
                {
                    users.push(stream);
                }
            }
            Op::Free(_) | Op::RecordUse(..) => {}
            Op::Hold(stream) => {
                device.backend().hold(self.streams[stream].native());
                self.model.held[stream] = true;
            }
            Op::Release(stream) => {
                device.backend().release(self.streams[stream].native());
                self.model.release(stream);
            }
            Op::EmptyCache => {
                host.empty_cache().unwrap();
                self.model.empty_cache();
            }
            Op::ResetPeak => {
                host.reset_peak_statistics();
                self.model.classes.values_mut().for_each(|[now, peak, _]| *peak = *now);
            }
            Op::Configure { round, cached } => {
                let config = AllocatorConfig {
                    pinned_max_round_threshold: round,
                    pinned_max_cached_size: cached,
                    ..AllocatorConfig::default()
                };
                device.allocator().set_config(config);
                (self.model.round, self.model.cached) = (round, cached);
            }
        }
    }

    /// Frees everything.
    fn finish(mut self) {
        (0..STREAMS).for_each(|stream| self.step(&Op::Release(stream)));
        while !self.live.is_empty() {
            self.step(&Op::Free(0));
        }
        self.step(&Op::EmptyCache);
        self.check();
        assert_eq!(self.device.backend().live_host_allocations(), 0);
    }

    fn check(&self) {
        let statistics = self.device.host_allocator().statistics();
        let sum = |of: fn(&Block) -> bool| {
            self.model.blocks.iter().filter(|block| of(block)).map(|block| block.size as i64).sum::<i64>()
        };
        let active = |block: &Block| matches!(block.state, State::Live { .. } | State::Pending { .. });
        let Stat { current, peak, allocated, .. } = statistics.active_bytes;
        let classes = |place: usize| self.model.classes.values().map(|class| class[place]).sum::<i64>();
        assert_eq!(current, sum(active), "active bytes");
        assert_eq!([current, peak, allocated], [0, 1, 2].map(classes), "active bytes: current, peak, cumulative");
        let held = sum(|block| block.state != State::GivenBack);
        assert_eq!(statistics.allocated_bytes.current, held, "bytes from the driver");
        assert_eq!(self.device.backend().host_used(), held as u64, "bytes by the driver's own statistics");
        let calls = [statistics.allocations.allocated, statistics.allocations.freed];
        assert_eq!(calls, self.model.driver, "driver calls");
        assert_eq!(self.device.backend().misuses(), 0);
    }
}

#[test]
fn pinned_memory_equals_the_model() {
    check(300, programs(), |program| {
        let mut machine = Machine::new();
        for op in program {
            machine.step(op);
            machine.check();
        }
        machine.finish();
    });
}
