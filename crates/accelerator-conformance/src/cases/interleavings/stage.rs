//! The state in which the two operations start.

use accelerator_core::{Allocation, AllocatorConfig, MIB, Result, Stream};

use super::super::Context;
use super::super::context::{Device, Driver, address};
use crate::controls::Controls;

/// The number of bytes that may be reserved: the whole device, or less if the settings say so.
pub(super) const LIMIT: u64 = 180 * MIB;

pub(super) type Blocks = Vec<Allocation<Driver>>;

/// A device and three streams.
pub(super) struct Scene {
    pub(super) device: Device,
    pub(super) own: Stream<Driver>,
    pub(super) other: Stream<Driver>,
    /// A held stream: memory that it uses stays in use.
    pub(super) slow: Stream<Driver>,
    config: AllocatorConfig,
    pub(super) is_compact: bool,
}

impl Clone for Scene {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Scene {}

/// The live blocks.
pub(super) struct Stage {
    /// For the operation that is stopped.
    pub(super) first: Blocks,
    /// For the operation that runs meanwhile: a small block, one that another stream used, and a whole segment.
    pub(super) second: Blocks,
    pub(super) kept: Blocks,
    /// The addresses of two freed blocks that other streams use.
    pub(super) pending: [u64; 2],
}

impl Stage {
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Allocation<Driver>> {
        self.first.iter().chain(&self.second).chain(&self.kept)
    }

    pub(super) fn into_blocks(self) -> impl Iterator<Item = Allocation<Driver>> {
        self.first.into_iter().chain(self.second).chain(self.kept)
    }
}

impl Scene {
    pub(super) fn new(context: &Context, settings: &str) -> Result<Self> {
        let config = context.config(settings)?;
        let device = context.device_with((LIMIT as f64 / config.memory_fraction) as u64, settings)?;
        let (other, slow) = (device.side_stream()?, device.side_stream()?);
        let (own, is_compact) = (device.default_stream(), context.is_compact());
        Ok(Self { device, own, other, slow, config, is_compact })
    }

    /// Sets up blocks of every kind: 40 MiB live, 74 MiB cached on two streams, and 40 MiB used by other streams, of
    /// which 12 MiB become free when their events are queried.
    pub(super) fn set(self) -> Result<Stage> {
        let Self { device, own, other, slow, .. } = self;
        device.hold(slow);
        let [small, shared] = [device.alloc(512)?, device.alloc(512)?];
        let [large, first] = [device.alloc(16 * MIB)?, device.alloc(18 * MIB)?];
        let kept = vec![device.alloc(512)?, device.alloc_on(512, other)?];
        let cached = [(24, own), (26, own), (24, other)];
        let cached = cached.map(|(mib, stream)| device.alloc_on(mib * MIB, stream));
        let [done, late] = [device.alloc(12 * MIB)?, device.alloc(28 * MIB)?];
        let pending = [address(&done), address(&late)];
        for (block, user) in [(&shared, slow), (&done, other), (&late, other), (&late, slow)] {
            device.allocator().record_use(block, user)?;
        }
        for block in cached {
            device.free(block?)?;
        }
        device.free_all([done, late])?;
        device.backend().settle();
        Ok(Stage { first: vec![first], second: vec![small, shared, large], kept, pending })
    }

    /// Undoes every change except those to the blocks.
    pub(super) fn reset(self) -> Result<()> {
        self.device.backend().release_all();
        self.device.backend().settle();
        self.device.allocator().set_config(self.config);
        self.device.allocator().set_memory_fraction(self.config.memory_fraction)
    }

    pub(super) fn alloc(self, stream: Stream<Driver>, bytes: u64, blocks: &mut Blocks) -> Result<()> {
        blocks.push(self.device.alloc_on(bytes, stream)?);
        Ok(())
    }

    pub(super) fn free(self, place: usize, blocks: &mut Blocks) -> Result<()> {
        self.device.free(blocks.swap_remove(place))
    }
}
