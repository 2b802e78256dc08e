//! The device, what is allocated on it, and the choice of the next step.

use std::cell::Cell;
use std::collections::BTreeMap;

use accelerator_conformance::{Call, Controls, Faulty, Sim};
use accelerator_core::{
    Accelerator, Allocation, AllocatorConfig, ContextsOf, DriverErrorKind, Graph, MIB, MemPoolId, MemPoolRoute,
    PoolCheckpoint, Recording, Statistics, Stream,
};

use super::bytes::Bytes;

pub(super) type Driver = Faulty<Sim>;

/// The last one is the one that is captured.
pub(super) const STREAMS: usize = 4;

const SETTINGS: [&str; 12] = [
    "",
    "expandable_segments:True",
    "expandable_segments:False",
    "caching:False",
    "caching:True",
    "max_split_size_mb:20",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6,throw_on_cudamalloc_oom:True",
    "device_side_reuse:True",
    "reclaim_live_pools:True",
    "graph_capture_record_stream_reuse:True",
    "large_segment_size_mb:11,max_split_size_mb:12",
];

const FAILING: [Call; 12] = [
    Call::Alloc,
    Call::Event,
    Call::Record,
    Call::Wait,
    Call::IsComplete,
    Call::WaitHost,
    Call::Synchronize,
    Call::Reserve,
    Call::Create,
    Call::Map,
    Call::Unmap,
    Call::MemoryInfo,
];

const KINDS: [DriverErrorKind; 3] = [DriverErrorKind::OutOfMemory, DriverErrorKind::Other, DriverErrorKind::DeviceLost];

/// How many steps are between two walks of the allocator, which take most of the time.
const WALK: usize = 8;

/// Memory from `raw_alloc`.
pub(super) struct Raw {
    pub(super) ptr: <Driver as accelerator_core::Backend>::Ptr,
    pub(super) requested: u64,
}

pub(super) struct Machine {
    pub(super) accelerator: &'static Accelerator<Driver>,
    pub(super) streams: Vec<Stream<Driver>>,
    pub(super) live: Vec<Allocation<Driver>>,
    pub(super) raw: Vec<Raw>,
    /// Where something was allocated before.
    pub(super) freed: Vec<<Driver as accelerator_core::Backend>::Ptr>,
    pub(super) pools: [MemPoolId; 3],
    /// The uses of each pool by the program itself, without those of routes and graphs.
    pub(super) uses: BTreeMap<MemPoolId, u32>,
    pub(super) routes: Vec<MemPoolRoute>,
    pub(super) checkpoints: Vec<PoolCheckpoint>,
    pub(super) capture: Option<Graph<Driver>>,
    pub(super) graphs: Vec<Graph<Driver>>,
    /// Whether a request got no memory.
    pub(super) has_failed: Cell<bool>,
    /// Whether settings were changed.
    pub(super) is_configured: bool,
    /// The number of steps so far.
    steps: usize,
    /// The statistics when the accumulated values were last reset.
    pub(super) reset: Statistics,
}

impl Machine {
    pub(super) fn new(bytes: &mut Bytes) -> Self {
        let capacity = bytes.one_of(&[64 * MIB, 26 * MIB, 301 * MIB + 512, 2048 * MIB]);
        let settings = bytes.one_of(&["", "expandable_segments:True", "policy:compact", "max_split_size_mb:20"]);
        let config = AllocatorConfig::default().updated(settings).unwrap();
        // Devices live for ever. A pool of 32 streams would make each of them ten times as large.
        let accelerator = Accelerator::new(Faulty::new(Sim::default()).with_memory(capacity), 0, config).unwrap();
        let mut streams = vec![accelerator.default_stream()];
        streams.extend((1..STREAMS).map(|_| accelerator.dedicated_stream(0).unwrap()));
        Self {
            accelerator,
            streams,
            live: Vec::new(),
            raw: Vec::new(),
            freed: Vec::new(),
            pools: [MemPoolId::new(0, 7001), MemPoolId::new(0, 7002), MemPoolId::new(7003, 0)],
            uses: BTreeMap::new(),
            routes: Vec::new(),
            checkpoints: Vec::new(),
            capture: None,
            graphs: Vec::new(),
            has_failed: Cell::new(false),
            is_configured: false,
            steps: 0,
            reset: accelerator.allocator().statistics(),
        }
    }

    pub(super) fn step(&mut self, bytes: &mut Bytes) {
        let injected = self.driver().injected();
        match bytes.byte() % 48 {
            0..=9 => self.allocate(bytes),
            10..=16 => self.free(bytes),
            17..=19 => self.record_use(bytes),
            20..=21 => self.raw_alloc(bytes),
            22 => self.raw_free(bytes),
            23 => self.raw_misuse(bytes),
            24 => self.allocate_at(bytes),
            25 | 26 => self.hold(bytes),
            27 => self.release(bytes),
            28 => self.synchronize(bytes),
            29 => {
                let emptied = self.allocator().empty_cache();
                self.allow(emptied.err(), injected);
            }
            30 => self.reset(bytes),
            31 => {
                let settings = bytes.one_of(&SETTINGS);
                self.is_configured = true;
                let config = self.allocator().config().updated(settings);
                // `large_segment_size_mb` may not fit to what was set before.
                config.into_iter().for_each(|config| self.allocator().set_config(config));
            }
            32 => self.allocator().set_memory_fraction(bytes.one_of(&[1.0, 0.5, 0.0, 0.9])).unwrap(),
            33 => self.driver().fail_call(1 + u64::from(bytes.byte() % 16), bytes.one_of(&KINDS)),
            34 => self.driver().fail_next(bytes.one_of(&FAILING), bytes.one_of(&KINDS)),
            35 => self.driver().clear_failures(),
            36 => self.driver().set_capacity(u64::from(bytes.byte()) * 4 * MIB),
            37 => self.record_history(bytes),
            38 => self.check_snapshot(),
            39 => self.retain_pool(bytes),
            40 => self.release_pool(bytes),
            41 => self.begin_route(bytes, injected),
            42 => self.end_route(bytes),
            43 => self.change_pool(bytes, injected),
            44 => self.checkpoint(bytes, injected),
            45 => self.restore(bytes, injected),
            46 => self.begin_or_end_capture(bytes, injected),
            _ => self.drop_graph(bytes),
        }
        self.check();
        self.steps += 1;
        if self.steps.is_multiple_of(WALK) {
            self.allocator().check();
        }
    }

    fn reset(&mut self, bytes: &mut Bytes) {
        match bytes.flag() {
            true => self.allocator().reset_peak_statistics(),
            false => {
                self.allocator().reset_accumulated_statistics();
                self.reset = self.allocator().statistics();
            }
        }
    }

    fn record_history(&mut self, bytes: &mut Bytes) {
        let recording = Recording { max_entries: bytes.below(8), contexts: ContextsOf::All, capture: None };
        self.allocator().record_history(bytes.flag().then_some(recording));
        let history = self.allocator().history();
        assert!(history.entries.len() <= 8);
    }

    pub(super) fn allocator(&self) -> &'static accelerator_core::CachingAllocator<Driver> {
        self.accelerator.allocator()
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.accelerator.backend()
    }
}
