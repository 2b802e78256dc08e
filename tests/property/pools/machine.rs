//! Runs a program on the allocator and on the model, and compares the two after every step.
#![allow(unsafe_code)] // `Graph::replay`

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;

use accelerator_conformance::{Call, Controls, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, CaptureMode, DevicePtr, Error, Graph, MemPool, MemPoolId, MemPoolOptions,
    MemPoolRequests, MemPoolRoute, PoolCheckpoint, Stream,
};

use super::model::{Applies, CAPTURED, Model, Pending, Segment};
use super::{Op, Requests, STREAMS};

pub(crate) struct Machine {
    accelerator: &'static Accelerator<Sim>,
    streams: Vec<Stream<Sim>>,
    held: [bool; STREAMS],
    pools: Vec<MemPool<Sim>>,
    routes: Vec<(u64, MemPoolRoute)>,
    allocations: BTreeMap<u64, Allocation<Sim>>,
    /// The users of each allocation, and whether all of their use was recorded in captures.
    users: BTreeMap<u64, BTreeMap<usize, bool>>,
    checkpoints: Vec<Saved>,
    /// The graph that is captured, its route in the model, and the pools that it holds.
    capture: Option<(Graph<Sim>, u64, Vec<MemPoolId>)>,
    graphs: Vec<(Graph<Sim>, Vec<MemPoolId>)>,
    model: Model,
}

struct Saved {
    checkpoint: PoolCheckpoint,
    live: Vec<u64>,
    segments: Vec<(u64, Segment)>,
}

impl Machine {
    pub(crate) fn new(capacity: u64, settings: &str) -> Self {
        let config = AllocatorConfig::default().updated(settings).unwrap();
        let accelerator = Accelerator::new(Sim::new(capacity), 0, config).unwrap();
        let mut streams = vec![accelerator.default_stream()];
        streams.extend((1..STREAMS).map(|_| accelerator.stream(0).unwrap()));
        Self {
            accelerator,
            streams,
            held: [false; STREAMS],
            pools: Vec::new(),
            routes: Vec::new(),
            allocations: BTreeMap::new(),
            users: BTreeMap::new(),
            checkpoints: Vec::new(),
            capture: None,
            graphs: Vec::new(),
            model: Model::default(),
        }
    }

    pub(crate) fn step(&mut self, op: &Op) {
        let waits = self.waits();
        let (allocator, driver) = (self.accelerator.allocator(), self.accelerator.backend());
        let mut trimmed = None;
        match *op {
            Op::Allocate { bytes, stream } => return self.allocate(bytes, stream),
            Op::Free(nth) => self.chosen(nth).into_iter().for_each(|start| self.free(start)),
            Op::RecordUse { nth, stream } => {
                if let Some(start) = self.chosen(nth) {
                    allocator.record_use(&self.allocations[&start], self.streams[stream]).unwrap();
                    let is_captured = self.capture.is_some();
                    let users = self.users.entry(start).or_default();
                    users.entry(stream).and_modify(|captured| *captured &= is_captured).or_insert(is_captured);
                }
            }
            Op::Hold(stream) if !self.captures(stream) => {
                driver.hold(self.streams[stream].native());
                self.held[stream] = true;
            }
            Op::Release(stream) if !self.captures(stream) => {
                driver.release(self.streams[stream].native());
                self.held[stream] = false;
                self.model.over(|one| one == stream);
            }
            Op::Synchronize(stream) if !self.captures(stream) => {
                self.streams[stream].synchronize().unwrap();
                self.model.over(|one| one == stream);
            }
            Op::Hold(_) | Op::Release(_) | Op::Synchronize(_) => {}
            Op::EmptyCache => allocator.empty_cache().unwrap(),
            Op::FailAllocs(count) => driver.fail_allocs(count),
            Op::NewPool { use_on_oom, no_split } => self.new_pool(use_on_oom, no_split),
            Op::DropPool(nth) => self.drop_pool(nth),
            Op::Trim(nth) => trimmed = self.trim(nth),
            Op::EmptyPool(nth) => {
                let pools: Vec<_> = self.model.uses.keys().copied().collect();
                pools.get(nth % pools.len().max(1)).into_iter().for_each(|id| allocator.empty_pool_cache(*id).unwrap());
            }
            Op::Route { pool, requests } => self.begin_route(pool, requests),
            Op::EndRoute(nth) => self.end_route(nth),
            Op::Checkpoint(nth) => self.checkpoint(nth),
            Op::Restore(nth) => self.restore(nth),
            Op::BeginCapture(nth) => self.begin_capture(nth),
            Op::EndCapture => self.end_capture(),
            Op::Replay(nth) => {
                let graph = self.graphs.get(nth % self.graphs.len().max(1));
                // SAFETY: The simulated device has no bytes.
                graph.into_iter().for_each(|(graph, _)| unsafe { graph.replay(self.streams[0]) }.unwrap());
            }
            Op::DropGraph(nth) => self.drop_graph(nth),
        }
        self.look(waits, None, trimmed);
    }

    fn allocate(&mut self, bytes: u64, stream: usize) {
        let (waits, helping) = (self.waits(), self.model.helping.clone());
        let expected = self.model.expected(stream);
        let requested = NonZeroU64::new(bytes).unwrap();
        let result = self.accelerator.allocator().allocate(requested, self.streams[stream]);
        self.look(waits, Some(expected), None);
        let allocation = match result {
            Ok(allocation) => allocation,
            Err(Error::OutOfMemory(_)) => return,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(allocation.requested(), requested);
        let block = range(&allocation);
        let pool = self.model.segment_of(&block).pool;
        let is_borrowed = expected.is_default() && helping.contains(&pool);
        assert!(pool == expected || is_borrowed, "{block:?} is of {pool} instead of {expected}");
        self.model.allocated(block.clone());
        self.allocations.insert(block.start, allocation);
        self.check_pools();
    }

    fn free(&mut self, start: u64) {
        let allocation = self.allocations.remove(&start).unwrap();
        let block = range(&allocation);
        let users = self.users.remove(&start).unwrap_or_default();
        let own = self.streams.iter().position(|stream| *stream == allocation.stream()).unwrap();
        self.accelerator.allocator().free(allocation).unwrap();
        self.model.live.remove(&start);
        let others = users.into_iter().filter(|(user, _)| *user != own).collect::<Vec<_>>();
        let captured = self.capture.is_some() && !others.is_empty() && !self.reuses_in_captures();
        // A captured use is no reason to wait if the free is captured, too.
        let real = others.into_iter().filter(|(_, is_captured)| !(*is_captured && self.capture.is_some()));
        let users = real.map(|(user, _)| user).filter(|user| self.held[*user] && !self.captures(*user)).collect();
        let pending = Pending { block, users, captured };
        if pending.captured || !pending.users.is_empty() {
            self.model.pending.push(pending);
        }
    }

    fn new_pool(&mut self, use_on_oom: bool, no_split: bool) {
        let options = MemPoolOptions { use_on_oom, no_split, ..MemPoolOptions::default() };
        let pool = MemPool::new(self.accelerator, options).unwrap();
        assert_eq!(self.model.uses_of(pool.id()), 0, "a number is used again");
        self.model.add_use(pool.id());
        if use_on_oom {
            self.model.helping.insert(pool.id());
        }
        self.pools.push(pool);
    }

    fn drop_pool(&mut self, nth: usize) {
        if self.pools.is_empty() {
            return;
        }
        let pool = self.pools.remove(nth % self.pools.len());
        self.model.remove_use(pool.id());
        self.model.helping.remove(&pool.id());
    }

    fn trim(&mut self, nth: usize) -> Option<MemPoolId> {
        let pool = self.pools.get(nth % self.pools.len().max(1))?;
        let trimmed = pool.trim();
        let is_refused = self.capture.is_some() || self.is_held_by_a_graph(pool.id());
        match trimmed {
            Ok(()) => assert!(!is_refused, "{pool:?} was trimmed"),
            Err(Error::MemPool { .. }) => assert!(is_refused, "{pool:?} was not trimmed"),
            Err(error) => panic!("{error}"),
        }
        (!is_refused).then(|| pool.id())
    }

    fn begin_route(&mut self, nth: usize, requests: Requests) {
        let Some(pool) = self.pools.get(nth % self.pools.len().max(1)) else { return };
        let id = pool.id();
        let to = match requests {
            Requests::All => MemPoolRequests::All,
            Requests::Stream(stream) => MemPoolRequests::Stream(self.streams[stream]),
            Requests::ThisThread => MemPoolRequests::ThisThread,
            Requests::Even => MemPoolRequests::Where(Box::new(|stream| stream.get().is_multiple_of(2))),
        };
        let route = self.accelerator.allocator().begin_allocate_to_pool(id, to).unwrap();
        self.model.add_use(id);
        if let Some((_, _, held)) = self.capture.as_mut().filter(|(_, _, held)| !held.contains(&id)) {
            held.push(id);
            self.model.add_use(id);
        }
        self.routes.push((self.model.begin(id, Applies::To(requests)), route));
    }

    fn end_route(&mut self, nth: usize) {
        if self.routes.is_empty() {
            return;
        }
        let (number, route) = self.routes.remove(nth % self.routes.len());
        self.accelerator.allocator().end_allocate_to_pool(route);
        let pool = self.model.end(number);
        self.model.remove_use(pool);
    }

    fn checkpoint(&mut self, nth: usize) {
        let Some(pool) = self.pools.get(nth % self.pools.len().max(1)) else { return };
        let id = pool.id();
        let is_captured = |pending: &Pending| pending.captured && self.model.segment_of(&pending.block).pool == id;
        let must_fail = self.model.pending.iter().any(is_captured);
        match self.accelerator.allocator().checkpoint_pool(id) {
            Ok(checkpoint) => {
                assert!(!must_fail, "a checkpoint with blocks that a capture uses");
                self.model.awaited(id);
                let segments = self.model.segments.iter().filter(|(_, segment)| segment.pool == id);
                let segments = segments.map(|(address, segment)| (*address, *segment)).collect();
                self.checkpoints.push(Saved { checkpoint, live: self.model.live_in(id), segments });
            }
            // What a capture does not use is waited for.
            Err(Error::MemPool { .. }) => assert!(self.capture.is_some(), "no checkpoint without a capture"),
            Err(error) => panic!("{error}"),
        }
    }

    fn restore(&mut self, nth: usize) {
        let Some(saved) = self.checkpoints.get(nth % self.checkpoints.len().max(1)) else { return };
        let id = saved.checkpoint.pool();
        let now = self.model.live_in(id);
        let live: Vec<_> = now.iter().map(|start| self.allocations.remove(start).unwrap()).collect();
        let has_memory = saved.segments.iter().all(|(address, of)| self.model.segments.get(address) == Some(of));
        // A pool without segments may have been forgotten.
        let can = has_memory && self.capture.is_none();
        match self.accelerator.allocator().restore_pool(&saved.checkpoint, live) {
            Ok(restored) => {
                assert!(can, "set back to memory that is gone");
                assert!(restored.iter().map(|one| range(one).start).eq(saved.live.iter().copied()), "other blocks");
                for start in now {
                    self.model.live.remove(&start);
                    self.users.remove(&start);
                }
                self.model.awaited(id);
                for allocation in restored {
                    self.model.allocated(range(&allocation));
                    self.allocations.insert(range(&allocation).start, allocation);
                }
            }
            Err(failed) => {
                assert!(matches!(failed.error, Error::MemPool { .. }), "{failed:?}");
                assert!(!can || self.model.uses_of(id) == 0, "not set back: {failed:?}");
                assert_eq!(failed.allocations.len(), now.len());
                let back = failed.allocations.into_iter().map(|allocation| (range(&allocation).start, allocation));
                self.allocations.extend(back);
            }
        }
    }

    fn begin_capture(&mut self, nth: Option<usize>) {
        if self.capture.is_some() {
            return;
        }
        let of_graphs = self.graphs.iter().filter_map(|(graph, _)| graph.pool());
        let shared: Vec<_> = self.pools.iter().map(MemPool::id).chain(of_graphs).collect();
        let shared = nth.and_then(|nth| shared.get(nth % shared.len().max(1))).copied();
        let mut graph = Graph::new(self.accelerator).unwrap();
        graph.capture_begin(self.streams[CAPTURED], shared, CaptureMode::default()).unwrap();
        let id = graph.pool().unwrap();
        assert!(shared.is_none_or(|shared| shared == id));
        self.model.add_use(id);
        let route = self.model.begin(id, Applies::ToTheCapture);
        self.capture = Some((graph, route, vec![id]));
    }

    fn end_capture(&mut self) {
        let Some((mut graph, route, held)) = self.capture.take() else { return };
        graph.capture_end().unwrap();
        self.model.end(route);
        self.model.capture_over();
        self.graphs.push((graph, held));
    }

    fn drop_graph(&mut self, nth: usize) {
        if !self.graphs.is_empty() {
            let (_, held) = self.graphs.remove(nth % self.graphs.len());
            held.into_iter().for_each(|pool| self.model.remove_use(pool));
        }
    }

    /// Compares the allocator with the model after a step. `grown`: the pool that may have taken memory.
    fn look(&mut self, waits: u64, grown: Option<MemPoolId>, trimmed: Option<MemPoolId>) {
        #[cfg(debug_assertions)]
        self.accelerator.allocator().check();
        if self.waits() > waits {
            self.model.over(|_| true);
        }
        let segments = self.accelerator.allocator().snapshot().segments;
        let held: Vec<_> = self.graphs.iter().flat_map(|(_, held)| held).copied().collect();
        let in_capture = self.capture.iter().flat_map(|(_, _, held)| held).copied();
        let held: Vec<_> = held.into_iter().chain(in_capture).collect();
        let oversize = self.accelerator.allocator().config().max_split_size < u64::MAX;
        let may_go = |pool: MemPoolId| {
            pool.is_default() || trimmed == Some(pool) || (oversize && grown == Some(pool) && !held.contains(&pool))
        };
        self.model.compare(&segments, grown.unwrap_or_default(), may_go);
        if grown.is_none() {
            self.check_pools();
        }
    }

    /// Checks what is told about each pool.
    fn check_pools(&self) {
        let allocator = self.accelerator.allocator();
        let reserved = self.model.reserved();
        assert_eq!(reserved.values().sum::<u64>(), self.accelerator.backend().used(), "what the driver gave");
        let told = allocator.reserved_by_private_pools();
        for (id, uses) in &self.model.uses {
            assert_eq!(allocator.pool_uses(*id), *uses, "uses of {id}");
            let expected = reserved.get(id).copied().unwrap_or(0);
            assert_eq!(told.get(id).map_or(0, |stat| stat.all.current), expected as i64, "bytes of {id}");
            let live: Vec<_> = allocator.pool_allocations(*id).iter().map(|ptr| ptr.trace_address()).collect();
            assert_eq!(live, self.model.live_in(*id), "allocations of {id}");
        }
        let statistics = allocator.statistics();
        assert_eq!(statistics.allocation.all.current, self.model.live.len() as i64);
    }

    /// Gives everything back, and checks that the driver has it.
    pub(crate) fn finish(mut self) {
        self.accelerator.backend().fail_allocs(0);
        self.end_capture();
        (0..STREAMS).for_each(|stream| self.step(&Op::Release(stream)));
        while !self.allocations.is_empty() {
            self.step(&Op::Free(0));
        }
        while !(self.routes.is_empty() && self.pools.is_empty() && self.graphs.is_empty()) {
            [Op::EndRoute(0), Op::DropPool(0), Op::DropGraph(0)].iter().for_each(|op| self.step(op));
        }
        self.step(&Op::EmptyCache);
        assert_eq!(self.accelerator.backend().used(), 0, "the driver has everything back");
        assert!(self.model.segments.is_empty());
        let uses = self.model.uses.keys().filter(|id| self.accelerator.allocator().checkpoint_pool(**id).is_ok());
        assert_eq!(uses.count(), 0, "the pools are forgotten");
    }

    fn chosen(&self, nth: usize) -> Option<u64> {
        self.allocations.keys().nth(nth.checked_rem(self.allocations.len())?).copied()
    }

    fn captures(&self, stream: usize) -> bool {
        self.capture.is_some() && stream == CAPTURED
    }

    fn reuses_in_captures(&self) -> bool {
        self.accelerator.allocator().config().graph_capture_record_stream_reuse
    }

    fn is_held_by_a_graph(&self, pool: MemPoolId) -> bool {
        let ended = self.graphs.iter().any(|(_, held)| held.contains(&pool));
        ended || self.capture.as_ref().is_some_and(|(_, _, held)| held.contains(&pool))
    }

    /// How often the allocator waited for events, on the host or the device.
    fn waits(&self) -> u64 {
        let calls = self.accelerator.backend().calls();
        calls.of(Call::WaitHost) + calls.of(Call::Wait)
    }
}

fn range(allocation: &Allocation<Sim>) -> Range<u64> {
    let start = allocation.ptr().trace_address();
    start..start + allocation.size()
}
