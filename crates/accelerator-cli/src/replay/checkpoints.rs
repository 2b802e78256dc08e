use std::collections::HashMap;

use accelerator_conformance::Controls;
use accelerator_core::{Allocation, DevicePtr, PoolCheckpoint, RestoreError};

use super::outcome::{Outcome, Place, ReplayError, Restored};
use super::replayer::{Live, Replayer};
use crate::trace::PoolName;

/// The state of a pool.
pub(super) struct Checkpoint {
    state: PoolCheckpoint,
    /// The numbers of the allocations by their addresses.
    ids: HashMap<u64, u64>,
    /// The numbers of requests that got no memory, whichever pool they were for.
    without_memory: Vec<u64>,
}

impl<B: Controls> Replayer<B> {
    pub(super) fn checkpoint(&mut self, pool: PoolName, name: &str) -> Result<(), ReplayError> {
        let state = self.accelerator.allocator().checkpoint_pool(pool.id())?;
        let live = self.live.iter();
        let without_memory = live.filter_map(|(id, live)| live.address().is_none().then_some(*id)).collect();
        let checkpoint = Checkpoint { state, ids: self.ids_in(pool), without_memory };
        self.checkpoints.insert((pool, name.to_owned()), checkpoint);
        Ok(())
    }

    pub(super) fn restore(&mut self, pool: PoolName, name: &str) -> Result<Outcome, ReplayError> {
        let allocator = self.accelerator.allocator();
        let before = self.ids_in(pool);
        let key = (pool, name.to_owned());
        let checkpoint = self.checkpoints.get(&key).ok_or_else(|| ReplayError::NoCheckpoint(pool, key.1.clone()))?;
        let is_taken = |id: &&u64| self.live.contains_key(id) && !before.values().any(|freed| freed == *id);
        if let Some(id) = checkpoint.ids.values().find(is_taken) {
            return Err(ReplayError::LiveAlready(*id));
        }
        let mut handed_over = Vec::with_capacity(before.len());
        for id in before.values() {
            if let Some(Live::Allocated(allocation)) = self.live.remove(id) {
                handed_over.push(allocation);
            }
        }
        let freed = places(&handed_over, &before);
        let restored = match allocator.restore_pool(&checkpoint.state, handed_over) {
            Ok(restored) => restored,
            Err(RestoreError { allocations, error }) => {
                self.live.extend(numbered(allocations, &before));
                return Err(error.into());
            }
        };
        let allocated = places(&restored, &checkpoint.ids);
        self.live.extend(numbered(restored, &checkpoint.ids));
        for id in &checkpoint.without_memory {
            self.live.entry(*id).or_insert(Live::Nothing);
        }
        let (pool, name) = (pool.id(), key.1);
        Ok(Outcome::Restored(Box::new(Restored { pool, name, freed, allocated })))
    }

    /// Returns the numbers of the allocations in a pool by their addresses.
    fn ids_in(&self, pool: PoolName) -> HashMap<u64, u64> {
        let ids: HashMap<_, _> = self.live.iter().filter_map(|(id, live)| Some((live.address()?, *id))).collect();
        let in_pool = self.accelerator.allocator().pool_allocations(pool.id());
        in_pool.into_iter().filter_map(|ptr| ids.get_key_value(&ptr.trace_address()).map(|(a, id)| (*a, *id))).collect()
    }
}

fn places<B: Controls>(allocations: &[Allocation<B>], ids: &HashMap<u64, u64>) -> Vec<Place> {
    let place = |allocation: &Allocation<B>| {
        let address = allocation.ptr().trace_address();
        let id = *ids.get(&address)?;
        Some((address, Place { id, offset: address.wrapping_sub(B::BASE), bytes: allocation.size() }))
    };
    let mut places: Vec<_> = allocations.iter().filter_map(place).collect();
    places.sort_unstable_by_key(|(address, _)| *address);
    places.into_iter().map(|(_, place)| place).collect()
}

/// Each allocation has a number, since all come from the trace.
fn numbered<B: Controls>(
    allocations: Vec<Allocation<B>>,
    ids: &HashMap<u64, u64>,
) -> impl Iterator<Item = (u64, Live<B>)> {
    let id = |allocation: &Allocation<B>| ids.get(&allocation.ptr().trace_address()).copied();
    allocations.into_iter().filter_map(move |allocation| Some((id(&allocation)?, Live::Allocated(allocation))))
}
