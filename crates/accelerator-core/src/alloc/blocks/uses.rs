//! Uses of blocks by streams other than their own.

#[cfg(debug_assertions)]
mod check;

use std::num::NonZeroU64;

use super::Block;
use super::slab::{Id, Slab, UseId};
use crate::types::StreamId;

/// The uses of all blocks that several streams use: one chain per block.
#[derive(Debug, Default)]
pub(crate) struct Uses(Slab<UseId, Use>);

/// The uses of a block: none, the single one, or the first of a chain.
///
/// The lowest bit tells whether it is a single one. Then the others are the stream's number. A use that is captured is
/// in a chain, although it may be the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used(u32);

enum Recorded {
    Single(User),
    Chain(UseId),
}

#[derive(Debug)]
struct Use {
    user: User,
    /// The next use of the same block.
    next: Option<UseId>,
}

/// A stream that used a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) stream: StreamId,
    /// The capture that all of this use is part of, if it was captured in a graph, so that none of it has run.
    pub(crate) captured_in: Option<CaptureNumber>,
}

/// The number of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaptureNumber(NonZeroU64);

impl CaptureNumber {
    /// Returns `None` for the highest number, which no driver comes to. Such a use counts as one that runs.
    pub(crate) fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number.wrapping_add(1)).map(Self)
    }
}

/// Streams that used a block. There is usually only one, so a single one needs no heap memory.
#[derive(Clone)]
pub(crate) struct Users {
    first: User,
    others: Vec<User>,
}

impl Users {
    /// Returns the streams. The first is not special to a loop over them, whose body is so compiled once.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = User> {
        let (mut next, mut others) = (Some(self.first), self.others.iter());
        std::iter::from_fn(move || {
            let user = next?;
            next = others.next().copied();
            Some(user)
        })
    }

    pub(crate) fn count(&self) -> u32 {
        1 + self.others.len() as u32
    }
}

impl User {
    /// Returns both as one use, if they are of one stream.
    #[inline(always)]
    fn joined(self, other: Self) -> Option<Self> {
        let captured_in = self.captured_in.filter(|number| other.captured_in == Some(*number));
        (self.stream == other.stream).then_some(Self { captured_in, ..self })
    }
}

impl Used {
    pub(crate) const BY_NONE: Self = Self(0);

    #[inline(always)]
    pub(crate) fn are_any(self) -> bool {
        self != Self::BY_NONE
    }

    /// Returns this as a single use, unless it is captured, or the stream's number is too high for that.
    #[inline(always)]
    fn single(User { stream, captured_in }: User) -> Option<Self> {
        let number = stream.get();
        (number < 1 << 31 && captured_in.is_none()).then_some(Self(number << 1 | 1))
    }

    fn chain(first: UseId) -> Self {
        Self((first.index() as u32 + 1) << 1)
    }

    #[inline(always)]
    fn recorded(self) -> Option<Recorded> {
        let Self(word) = self;
        match word & 1 {
            1 => Some(Recorded::Single(User { stream: StreamId(word >> 1), captured_in: None })),
            _ => (word >> 1).checked_sub(1).map(|index| Recorded::Chain(UseId::at(index as usize))),
        }
    }
}

impl Uses {
    /// Records that a stream uses a block, unless that is already recorded.
    #[inline(always)]
    pub(crate) fn record(&mut self, block: &mut Block, user: User) {
        let single = match block.uses.recorded() {
            None => Used::single(user),
            Some(Recorded::Single(known)) => known.joined(user).and_then(Used::single),
            Some(Recorded::Chain(_)) => None,
        };
        match single {
            Some(single) => block.uses = single,
            None => self.record_in_chain(block, user),
        }
    }

    #[cold]
    fn record_in_chain(&mut self, block: &mut Block, user: User) {
        let first = match block.uses.recorded() {
            None => return block.uses = Used::chain(self.0.insert(Use { user, next: None })),
            Some(Recorded::Single(single)) => self.0.insert(Use { user: single, next: None }),
            Some(Recorded::Chain(first)) => first,
        };
        block.uses = Used::chain(first);
        let mut last = first;
        loop {
            let Use { user: known, next } = &mut self.0[last];
            if let Some(joined) = known.joined(user) {
                return *known = joined;
            }
            match *next {
                Some(next) => last = next,
                None => break,
            }
        }
        self.0[last].next = Some(self.0.insert(Use { user, next: None }));
    }

    /// Returns the streams that used a block.
    pub(crate) fn streams(&self, block: &Block) -> Vec<StreamId> {
        let (single, mut next) = match block.uses.recorded() {
            None => (None, None),
            Some(Recorded::Single(single)) => (Some(single.stream), None),
            Some(Recorded::Chain(first)) => (None, Some(first)),
        };
        let chain = std::iter::from_fn(|| {
            let Use { user, next: after } = self.0[next?];
            next = after;
            Some(user.stream)
        });
        single.into_iter().chain(chain).collect()
    }

    /// Removes and returns the uses of a block, if it has any.
    #[inline(always)]
    pub(crate) fn take(&mut self, block: &mut Block) -> Option<Users> {
        match std::mem::replace(&mut block.uses, Used::BY_NONE).recorded()? {
            Recorded::Single(first) => Some(Users { first, others: Vec::new() }),
            Recorded::Chain(first) => Some(self.take_chain(first)),
        }
    }

    #[cold]
    fn take_chain(&mut self, first: UseId) -> Users {
        let Use { user, mut next } = self.0[first];
        let mut users = Users { first: user, others: Vec::new() };
        self.0.remove(first);
        while let Some(one) = next {
            users.others.push(self.0[one].user);
            self.0.remove(one);
            next = self.0[one].next;
        }
        users
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn each_stream_is_recorded_once_and_in_order() {
        let mut random = Rng::with_seed(1);
        let (mut uses, mut block) = (Uses::default(), Block::NONE);
        let mut expected: Vec<(u32, Option<CaptureNumber>)> = Vec::new();
        let mut most = 0;
        for _ in 0..20_000 {
            if random.u8(..4) == 0 {
                let mut taken = Vec::new();
                if let Some(users) = uses.take(&mut block) {
                    taken.extend(users.iter().map(|User { stream, captured_in }| (stream.get(), captured_in)));
                }
                most = most.max(taken.len());
                assert_eq!(taken, std::mem::take(&mut expected));
            }
            // Numbers that do not fit beside the bit of a single use are recorded, too.
            let stream = random.u32(..5) + if random.u8(..8) == 0 { 1 << 31 } else { 0 };
            let captured_in = if random.bool() { CaptureNumber::new(random.u64(..2)) } else { None };
            uses.record(&mut block, User { stream: StreamId(stream), captured_in });
            match expected.iter_mut().find(|(known, _)| *known == stream) {
                Some((_, in_one)) if *in_one == captured_in => {}
                Some((_, in_one)) => *in_one = None,
                None => expected.push((stream, captured_in)),
            }
            assert!(block.uses.are_any());
        }
        assert!(most >= 5, "chains were recorded");
    }
}
