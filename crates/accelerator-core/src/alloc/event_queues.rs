//! One queue of events per stream, so that a slow stream holds back no other.

use std::collections::VecDeque;

use super::block::BlockId;
use crate::types::StreamId;

/// A freed block of the device, and the stream that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingBlock {
    pub(super) arena: StreamId,
    pub(super) block: BlockId,
}

/// The queues by the stream that uses the blocks, each from its oldest event. Empty ones stay, for their memory.
///
/// The order in which streams are gone through decides which neighbours merge first, and that shows in the accumulated
/// `inactive_split` statistics. PyTorch's order is that of a hash table by stream handle, which doubles when it is half
/// full. Ours is the same, with the handles that streams have on the device that we compare with, so that those
/// statistics are equal too.
pub(crate) struct EventQueues<E, T = PendingBlock> {
    queues: Vec<(StreamId, VecDeque<(E, T)>)>,
    /// The logarithm of the table's size.
    bits: u32,
}

impl<E, T> EventQueues<E, T> {
    pub(crate) const fn new() -> Self {
        Self { queues: Vec::new(), bits: 0 }
    }

    /// The queues in order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut VecDeque<(E, T)>> {
        self.queues.iter_mut().map(|(_, queue)| queue)
    }

    /// What the oldest event of each stream is for.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = (StreamId, &T)> {
        self.queues.iter().filter_map(|(user, queue)| queue.front().map(|(_, block)| (*user, block)))
    }

    pub(crate) fn push_back(&mut self, user: StreamId, event: E, block: T) {
        self.queue(user).push_back((event, block));
    }

    /// Puts an event that is not complete back to where it was.
    pub(crate) fn put_back(&mut self, user: StreamId, event: E, block: T) {
        self.queue(user).push_front((event, block));
    }

    /// The oldest event of the stream.
    pub(crate) fn pop(&mut self, user: StreamId) -> Option<(E, T)> {
        self.queues.iter_mut().find(|(stream, _)| *stream == user)?.1.pop_front()
    }

    fn queue(&mut self, user: StreamId) -> &mut VecDeque<(E, T)> {
        let place = self.queues.iter().position(|(stream, _)| *stream == user);
        let place = match place.filter(|place| !self.queues[*place].1.is_empty()) {
            Some(place) => place,
            None => {
                let empty = place.map(|place| self.queues.remove(place).1);
                self.add(user, empty.unwrap_or_default())
            }
        };
        &mut self.queues[place].1
    }

    /// Enters a queue that is empty still, as if it had not been there. Its place.
    fn add(&mut self, user: StreamId, queue: VecDeque<(E, T)>) -> usize {
        let filled = self.queues.iter().filter(|(_, queue)| !queue.is_empty()).count();
        if 2 * (filled + 1) > 1 << self.bits {
            self.bits = (self.bits + 1).max(2);
            let bits = self.bits;
            self.queues.sort_by_key(|(stream, _)| slot(*stream, bits));
        }
        let slot_of_user = slot(user, self.bits);
        let place = self.queues.partition_point(|(stream, _)| slot(*stream, self.bits) <= slot_of_user);
        self.queues.insert(place, (user, queue));
        place
    }
}

impl<E> EventQueues<E> {
    pub(super) fn blocks(&self) -> impl Iterator<Item = PendingBlock> {
        self.queues.iter().flat_map(|(_, queue)| queue.iter().map(|(_, block)| *block))
    }

    /// Takes every event of one block off the queues.
    pub(super) fn take_all_of(&mut self, chosen: PendingBlock) -> Vec<(StreamId, E)> {
        let mut taken = Vec::new();
        for (user, queue) in &mut self.queues {
            for (event, block) in std::mem::take(queue) {
                match block == chosen {
                    true => taken.push((*user, event)),
                    false => queue.push_back((event, block)),
                }
            }
        }
        taken
    }
}

/// The slot of a stream in a table of `1 << bits` by Fibonacci hashing. PyTorch: `fibonacci_hash_policy` on
/// `c10::Stream::hash`.
fn slot(stream: StreamId, bits: u32) -> u64 {
    const DEVICE_TYPE: u64 = 1 << 56;
    const FIRST_HANDLE: u64 = 0x2000_0000_0000;
    let hash = match u64::from(stream.get()) {
        0 => DEVICE_TYPE,
        number => DEVICE_TYPE | (FIRST_HANDLE + 256 * (number - 1)),
    };
    hash.wrapping_mul(11_400_714_819_323_198_485) >> (64 - bits)
}
