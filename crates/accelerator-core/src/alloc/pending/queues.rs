//! One queue of events for each stream, so that a slow stream does not hold back the others.

use std::collections::VecDeque;

use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::BlockId;
use crate::types::StreamId;

/// A freed block of the device, and the arena that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingBlock {
    pub(crate) arena: ArenaId,
    pub(crate) block: BlockId,
}

/// The queues, by the stream that uses the blocks, each from its oldest event. Empty queues are kept, to reuse their
/// memory.
///
/// The order of the streams decides which neighbours merge first, which is visible in the accumulated `inactive_split`
/// statistics. PyTorch uses the order of a hash table by stream handle, which doubles when it is half full. To get
/// equal statistics, we use the same order, with the handles that streams have on the simulated device that we compare
/// with.
pub(crate) struct EventQueues<E, T = PendingBlock> {
    queues: Vec<Queue<E, T>>,
    /// The logarithm of the table's size.
    bits: u32,
}

struct Queue<E, T> {
    user: StreamId,
    /// The slot in the hash table.
    slot: u64,
    events: VecDeque<(E, T)>,
}

impl<E, T> Default for EventQueues<E, T> {
    fn default() -> Self {
        Self { queues: Vec::new(), bits: 0 }
    }
}

impl<E, T> EventQueues<E, T> {
    /// Returns the queues in order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut VecDeque<(E, T)>> {
        self.queues.iter_mut().map(|queue| &mut queue.events)
    }

    /// Returns the streams with events, each with the block of its oldest event.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = (StreamId, &T)> {
        self.queues.iter().filter_map(|queue| queue.events.front().map(|(_, block)| (queue.user, block)))
    }

    #[inline(always)]
    pub(crate) fn push_back(&mut self, user: StreamId, event: E, block: T) {
        self.queue(user).push_back((event, block));
    }

    /// Puts an event that is not complete back at the front of its queue.
    pub(crate) fn put_back(&mut self, user: StreamId, event: E, block: T) {
        self.queue(user).push_front((event, block));
    }

    /// Removes and returns the oldest event of the stream.
    pub(crate) fn pop(&mut self, user: StreamId) -> Option<(E, T)> {
        self.queues.iter_mut().find(|queue| queue.user == user)?.events.pop_front()
    }

    #[inline(always)]
    fn queue(&mut self, user: StreamId) -> &mut VecDeque<(E, T)> {
        let place = self.queues.iter().position(|queue| queue.user == user);
        let place = match place.filter(|place| self.keeps(*place)) {
            Some(place) => place,
            None => self.fill(user, place),
        };
        &mut self.queues[place].events
    }

    /// Returns whether a queue has events, or would [return](Self::fill) to the same place.
    #[inline(always)]
    fn keeps(&self, place: usize) -> bool {
        let Queue { slot, events, .. } = &self.queues[place];
        let is_before = |next: &Queue<E, T>| *slot < next.slot;
        !events.is_empty() || !self.is_too_full(self.queues.len()) && self.queues.get(place + 1).is_none_or(is_before)
    }

    /// Returns whether the table is too full for another queue beside so many.
    #[inline(always)]
    fn is_too_full(&self, filled: usize) -> bool {
        2 * (filled + 1) > 1 << self.bits
    }

    /// Prepares a queue for its first event: moves it to the place that a new queue would get. Returns its index.
    #[inline(never)]
    fn fill(&mut self, user: StreamId, mut place: Option<usize>) -> usize {
        let filled = || self.queues.iter().filter(|queue| !queue.events.is_empty()).count();
        // With few queues, there is no need to count the filled ones.
        if self.is_too_full(self.queues.len()) && self.is_too_full(filled()) {
            self.bits = (self.bits + 1).max(2);
            for queue in &mut self.queues {
                queue.slot = slot(queue.user, self.bits);
            }
            self.queues.sort_by_key(|queue| queue.slot);
            place = self.queues.iter().position(|queue| queue.user == user);
        }
        let slot = place.map_or_else(|| slot(user, self.bits), |place| self.queues[place].slot);
        let events = match place {
            // It would return to the same place.
            Some(place) if self.queues.get(place + 1).is_none_or(|next| next.slot > slot) => return place,
            Some(place) => self.queues.remove(place).events,
            None => VecDeque::new(),
        };
        let place = self.queues.partition_point(|queue| queue.slot <= slot);
        self.queues.insert(place, Queue { user, slot, events });
        place
    }
}

impl<E> EventQueues<E> {
    pub(crate) fn blocks(&self) -> impl Iterator<Item = PendingBlock> {
        self.queues.iter().flat_map(|queue| queue.events.iter().map(|(_, block)| *block))
    }

    /// Removes all events of one block from the queues.
    pub(crate) fn take_all_of(&mut self, chosen: PendingBlock) -> Vec<(StreamId, E)> {
        let mut taken = Vec::new();
        for Queue { user, events, .. } in &mut self.queues {
            for (event, block) in std::mem::take(events) {
                match block == chosen {
                    true => taken.push((*user, event)),
                    false => events.push_back((event, block)),
                }
            }
        }
        taken
    }
}

/// Returns the slot of a stream in a table of `1 << bits` slots, by Fibonacci hashing. PyTorch: `fibonacci_hash_policy`
/// on `c10::Stream::hash`.
fn slot(stream: StreamId, bits: u32) -> u64 {
    const DEVICE_TYPE: u64 = 1 << 56;
    const FIRST_HANDLE: u64 = 0x2000_0000_0000;
    let hash = match u64::from(stream.get()) {
        0 => DEVICE_TYPE,
        number => DEVICE_TYPE | (FIRST_HANDLE + 256 * (number - 1)),
    };
    hash.wrapping_mul(11_400_714_819_323_198_485) >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// The same table without empty queues, as described above.
    #[derive(Default)]
    struct Plain {
        queues: Vec<(StreamId, Vec<u64>)>,
        bits: u32,
    }

    impl Plain {
        fn push_back(&mut self, user: StreamId, event: u64) {
            if let Some((_, events)) = self.queues.iter_mut().find(|(stream, _)| *stream == user) {
                return events.push(event);
            }
            if 2 * (self.queues.len() + 1) > 1 << self.bits {
                self.bits = (self.bits + 1).max(2);
                self.queues.sort_by_key(|(stream, _)| slot(*stream, self.bits));
            }
            let own = slot(user, self.bits);
            let place = self.queues.partition_point(|(stream, _)| slot(*stream, self.bits) <= own);
            self.queues.insert(place, (user, vec![event]));
        }

        fn pop(&mut self, user: StreamId) -> Option<u64> {
            let place = self.queues.iter().position(|(stream, _)| *stream == user)?;
            let event = self.queues[place].1.remove(0);
            if self.queues[place].1.is_empty() {
                self.queues.remove(place);
            }
            Some(event)
        }
    }

    #[test]
    fn queues_that_are_empty_change_no_order() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let (mut queues, mut plain) = (EventQueues::<u64, ()>::default(), Plain::default());
            let streams = 1 + random.u64(..40);
            for event in 0..600 {
                let user = StreamId(random.u64(..streams) as u32);
                if random.bool() {
                    queues.push_back(user, event, ());
                    plain.push_back(user, event);
                } else {
                    assert_eq!(queues.pop(user).map(|(event, ())| event), plain.pop(user));
                }
                let events = queues.iter_mut().map(|events| events.iter().map(|(event, ())| *event).collect());
                let filled: Vec<Vec<u64>> = events.filter(|events: &Vec<u64>| !events.is_empty()).collect();
                let expected: Vec<Vec<u64>> = plain.queues.iter().map(|(_, events)| events.clone()).collect();
                assert_eq!(filled, expected, "seed {seed}, event {event}");
            }
        }
    }
}
