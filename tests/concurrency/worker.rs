//! A thread of the stress test: its blocks and its operations.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::time::Instant;

use accelerator_conformance::{Controls, Sim};
use accelerator_core::{Accelerator, Allocation, AllocatorConfig, Backend, Buffer, DevicePtr, Error, KIB, MIB, Stream};
use accelerator_host::Host;
use fastrand::Rng;

use super::tally::{Held, Holding, Totals};

/// A backend whose streams can be made to run late, so that freed memory waits for them.
pub(crate) trait Late: Backend {
    fn delay(scratch: &mut Buffer<Self>);
    fn resume(scratch: &mut Buffer<Self>);
}

impl Late for Sim {
    fn delay(scratch: &mut Buffer<Self>) {
        scratch.accelerator().backend().hold(scratch.stream().native());
    }

    fn resume(scratch: &mut Buffer<Self>) {
        scratch.accelerator().backend().release(scratch.stream().native());
    }
}

impl Late for Host {
    fn delay(scratch: &mut Buffer<Self>) {
        scratch.fill(7, scratch.stream()).unwrap();
    }

    fn resume(_: &mut Buffer<Self>) {}
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) until: Instant,
    pub(crate) resets_peaks: bool,
}

/// Blocks on their way to another thread. The mailbox is a holder with its own peaks, like a thread.
pub(crate) struct Mailbox<B: Backend> {
    blocks: Vec<Allocation<B>>,
    pub(crate) holding: Holding,
}

impl<B: Backend> Default for Mailbox<B> {
    fn default() -> Self {
        Self { blocks: Vec::new(), holding: Holding::default() }
    }
}

impl<B: Backend> Mailbox<B> {
    pub(crate) fn held(&self) -> Vec<Held> {
        self.blocks.iter().map(Held::of).collect()
    }

    pub(crate) fn finish(self, accelerator: &Accelerator<B>) {
        self.blocks.into_iter().for_each(|block| accelerator.allocator().free(block).unwrap());
    }
}

/// Settings that a thread switches between.
pub(crate) type SettingsList = &'static [&'static str];

/// PyTorch's policy.
pub(crate) const PYTORCH: SettingsList =
    &["", "max_split_size_mb:20", "roundup_power2_divisions:4", "device_side_reuse:True", "caching:False"];

/// Mostly the policy `compact`.
pub(crate) const COMPACT: SettingsList = &[
    "policy:compact",
    "policy:compact,roundup_power2_divisions:4",
    "policy:compact,device_side_reuse:True",
    "policy:compact,expandable_segments:True",
    "policy:compact,caching:False",
    "policy:pytorch",
    "policy:pytorch,expandable_segments:True",
];

/// The state of a thread that persists across rounds.
pub(crate) struct Worker<B: Backend> {
    accelerator: &'static Accelerator<B>,
    number: usize,
    settings: SettingsList,
    /// The thread's own stream, and the shared ones.
    streams: [Stream<B>; 3],
    random: Rng,
    blocks: Vec<Allocation<B>>,
    scratch: Buffer<B>,
    pub(crate) holding: Holding,
    pub(crate) totals: Totals,
    pub(crate) operations: u64,
}

impl<B: Late> Worker<B> {
    pub(crate) fn new(
        accelerator: &'static Accelerator<B>,
        number: usize,
        shared: [Stream<B>; 2],
        settings: SettingsList,
    ) -> Self {
        let own = accelerator.dedicated_stream(0).unwrap();
        let scratch = accelerator.allocate(64 * KIB, own).unwrap();
        let mut worker = Self {
            accelerator,
            number,
            settings,
            streams: [own, shared[0], shared[1]],
            random: Rng::with_seed(number as u64),
            blocks: Vec::new(),
            scratch,
            holding: Holding::default(),
            totals: Totals::default(),
            operations: 0,
        };
        let scratch = worker.scratch_held();
        worker.totals.allocated(scratch);
        worker.holding.add(scratch);
        worker
    }

    /// Returns its blocks.
    pub(crate) fn held(&self) -> Vec<Held> {
        self.blocks.iter().map(Held::of).chain([self.scratch_held()]).collect()
    }

    pub(crate) fn finish(mut self) {
        while !self.blocks.is_empty() {
            self.free();
        }
    }

    pub(crate) fn run(&mut self, mailboxes: &[Mutex<Mailbox<B>>], round: Round) {
        let own = &mailboxes[self.number];
        let next = &mailboxes[(self.number + 1) % mailboxes.len()];
        loop {
            self.operations += 1;
            if self.operations.is_multiple_of(64) && Instant::now() >= round.until {
                break;
            }
            match self.random.u64(..1000) {
                0..430 => self.allocate(),
                430..800 => self.free(),
                800..880 => self.record_use(),
                880..930 => self.hand_over(next),
                930..980 => self.receive(own),
                980..985 => B::delay(&mut self.scratch),
                985..991 => B::resume(&mut self.scratch),
                991..993 => self.streams[0].synchronize().unwrap(),
                993 => self.accelerator.allocator().empty_cache().unwrap(),
                994 => drop(self.accelerator.allocator().statistics()),
                995 => drop(self.accelerator.allocator().snapshot()),
                996 => self.set_config(),
                997 if round.resets_peaks => self.accelerator.allocator().reset_peak_statistics(),
                _ => std::thread::yield_now(),
            }
        }
        B::resume(&mut self.scratch);
    }

    fn allocate(&mut self) {
        let most = [4 * KIB, 4 * KIB, MIB, 12 * MIB][self.random.usize(..4)];
        let bytes = NonZeroU64::MIN.saturating_add(self.random.u64(..most));
        let stream = self.any_stream();
        match self.accelerator.allocator().allocate(bytes, stream) {
            Ok(allocation) => {
                self.totals.allocated(Held::of(&allocation));
                self.holding.add(Held::of(&allocation));
                self.blocks.push(allocation);
            }
            Err(Error::OutOfMemory(_)) => {
                self.totals.failed += 1;
                (0..self.blocks.len() / 2).for_each(|_| self.free());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&mut self) {
        let Some(chosen) = self.choose() else { return };
        let allocation = self.blocks.swap_remove(chosen);
        self.totals.freed(Held::of(&allocation));
        self.holding.remove(Held::of(&allocation));
        self.accelerator.allocator().free(allocation).unwrap();
    }

    fn record_use(&mut self) {
        let (chosen, user) = (self.choose(), self.any_stream());
        if let Some(chosen) = chosen {
            self.accelerator.allocator().record_use(&self.blocks[chosen], user).unwrap();
        }
    }

    /// Hands a block over. It always counts for at least one of the two holders, and briefly for both.
    fn hand_over(&mut self, mailbox: &Mutex<Mailbox<B>>) {
        let mut mailbox = mailbox.lock().unwrap();
        if mailbox.blocks.len() == 64 {
            return;
        }
        let Some(chosen) = self.choose() else { return };
        let allocation = self.blocks.swap_remove(chosen);
        mailbox.holding.add(Held::of(&allocation));
        self.holding.remove(Held::of(&allocation));
        mailbox.blocks.push(allocation);
    }

    fn receive(&mut self, mailbox: &Mutex<Mailbox<B>>) {
        let mut mailbox = mailbox.lock().unwrap();
        let Some(allocation) = mailbox.blocks.pop() else { return };
        self.holding.add(Held::of(&allocation));
        mailbox.holding.remove(Held::of(&allocation));
        self.blocks.push(allocation);
    }

    fn set_config(&mut self) {
        let settings = self.settings[self.random.usize(..self.settings.len())];
        self.accelerator.allocator().set_config(AllocatorConfig::default().updated(settings).unwrap());
    }

    fn choose(&mut self) -> Option<usize> {
        (!self.blocks.is_empty()).then(|| self.random.usize(..self.blocks.len()))
    }

    fn any_stream(&mut self) -> Stream<B> {
        self.streams[[0, 0, 0, 1, 2][self.random.usize(..5)]]
    }

    fn scratch_held(&self) -> Held {
        let address = self.scratch.ptr().unwrap().trace_address();
        Held { address, size: self.scratch.block_size(), requested: self.scratch.len() }
    }
}
