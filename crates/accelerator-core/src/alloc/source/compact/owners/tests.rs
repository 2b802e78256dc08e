use super::*;
use crate::alloc::blocks::Segment;
use crate::alloc::blocks::{Base, Id, SegmentId};
use crate::types::PoolKind;

const RESERVED: u64 = 1000;
/// As many bytes as make an epoch due.
const MUCH: u64 = RESERVED / EPOCH;

fn owners(count: u32) -> Owners {
    let mut owners = Owners::default();
    for number in 0..count {
        let stream = StreamId(10 * number);
        assert_eq!(owners.number(stream), None);
        assert_eq!(owners.number_or_new(stream), Some(number as Owner));
        assert_eq!(
            (owners.number_or_new(stream), owners.number(stream)),
            (Some(number as Owner), Some(number as Owner))
        );
    }
    assert_eq!(owners.are_several(), count > 1);
    owners
}

/// Ends epochs, and returns the owners and the epochs.
fn end(owners: &mut Owners, all: bool, may: impl Fn(Owner) -> bool) -> Vec<(Owner, u32)> {
    let ended = owners.end_epochs(all, RESERVED, may);
    ended
        .into_iter()
        .map(|(owner, stream, epoch)| {
            assert_eq!(stream, StreamId(10 * u32::from(owner)));
            (owner, epoch)
        })
        .collect()
}

#[test]
fn an_epoch_ends_when_much_was_freed_in_it_or_when_all_end() {
    let mut owners = owners(3);
    assert_eq!(end(&mut owners, true, |_| true), [], "nothing was freed");
    assert_eq!(owners.freed(0, MUCH - 1, RESERVED), 1);
    assert!(!owners.is_due());
    assert_eq!(end(&mut owners, false, |_| true), []);
    assert_eq!(owners.freed(0, 1, RESERVED), 1);
    assert!(owners.is_due(), "together it is much");
    owners.freed(1, 1, RESERVED);
    assert_eq!(end(&mut owners, false, |_| true), [(0, 1)]);
    assert!(!owners.is_due());
    assert_eq!(owners.open_epoch(0), 2);
    assert_eq!(end(&mut owners, true, |owner| owner != 0), [(1, 1)]);
    assert_eq!(end(&mut owners, true, |_| true), [(0, 2)]);
    assert_eq!(end(&mut owners, true, |_| true), []);
    owners.not_marked(0);
    assert_eq!(end(&mut owners, true, |_| true), [(0, 3)], "it ends again, because no event marks its end");
}

#[test]
fn an_epoch_that_may_not_end_is_due_again_when_as_much_is_freed_again() {
    let mut owners = owners(2);
    owners.freed(0, MUCH, RESERVED);
    assert_eq!(end(&mut owners, false, |_| false), []);
    owners.freed(0, MUCH - 1, RESERVED);
    assert!(!owners.is_due());
    owners.freed(0, 1, RESERVED);
    assert!(owners.is_due());
}

#[test]
fn epochs_of_a_single_stream_are_never_due() {
    let mut owners = owners(1);
    owners.freed(0, RESERVED, RESERVED);
    assert!(!owners.is_due());
}

#[test]
fn free_bytes_can_be_used_by_their_owner_and_by_others_once_they_are_over_or_behind() {
    let mut owners = owners(3);
    let segment = Segment::new(Base::unused(), 512, 0, PoolKind::Large, None);
    let block = |owner, epoch| Block { owner, free_since: epoch, ..Block::new(SegmentId::at(0), &segment, 0, 512) };
    let who = |owners: &Owners, epoch| [0, 1, 2].map(|owner| owners.can_use(&block(1, epoch), owner));
    assert_eq!(who(&owners, Owners::ALWAYS_OVER), [true; 3]);
    assert_eq!(who(&owners, 1), [false, true, false]);
    owners.comes_behind(2, 1, 4);
    assert_eq!([1, 4, 5].map(|epoch| who(&owners, epoch)[2]), [true, true, false]);
    owners.epoch_over(1, 2);
    owners.epoch_over(1, 1);
    assert_eq!([1, 2, 3].map(|epoch| who(&owners, epoch)[0]), [true, true, false]);
    owners.assumed = Some(0);
    assert_eq!(who(&owners, 9), [true, true, false]);
}
