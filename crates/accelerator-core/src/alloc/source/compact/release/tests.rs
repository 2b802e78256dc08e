use std::num::NonZeroU64;

use super::*;
use crate::alloc::arena::ArenaId;
use crate::alloc::blocks::Base;
use crate::alloc::source::compact::aliases::MappedAlias;
use crate::types::MIB;

/// Adds an alias of two chunks. Returns its start.
fn add_alias(compact: &mut Compact, mib: u64) -> u64 {
    let len = mib * MIB;
    let addresses = (Base::unused(), NonZeroU64::new(len).unwrap());
    compact.add_alias(&MappedAlias { addresses, chunks: vec![(0, len / 2), (len / 2, len / 2)], mapped: 2 }).1
}

/// Aliases of 10, 20, 30 and 40 MiB, of which that of 20 MiB was not used for the longest time, then that of 40 MiB.
fn aliases() -> (Compact, [u64; 4]) {
    let mut compact = Compact::new(ArenaId::SHARED);
    let starts = [10, 20, 30, 40].map(|mib| add_alias(&mut compact, mib));
    for (start, used) in starts.into_iter().zip([4, 1, 3, 2]) {
        compact.aliases.get_mut(&start).unwrap().used = used;
    }
    (compact, starts)
}

#[test]
fn the_oldest_aliases_go_until_the_others_are_within_the_limit() {
    for (limit, dropped) in [(100, &[][..]), (99, &[1]), (80, &[1]), (79, &[1, 3]), (40, &[1, 3]), (0, &[1, 3, 2, 0])] {
        let (mut compact, starts) = aliases();
        let (leaving, hidden) = compact.aliases_to_drop(limit * MIB);
        let expected: Vec<_> = dropped.iter().map(|alias| starts[*alias]).collect();
        assert_eq!(leaving, expected, "{limit} MiB may stay");
        let pieces: Vec<_> = expected.iter().flat_map(|start| [(*start, 0), (*start, 1)]).collect();
        assert_eq!(hidden, pieces);
    }
}

#[test]
fn an_alias_is_removed_once_no_piece_is_mapped_and_can_be_used_until_then() {
    let (mut compact, starts) = aliases();
    let aliased = compact.aliased;
    let _ = compact.aliases_to_drop(80 * MIB);
    let alias = compact.aliases.get_mut(&starts[1]).unwrap();
    alias.pieces[1].mapped = true; // the driver has refused to unmap it
    assert_eq!((compact.remove_alias(starts[1]), compact.aliased), (None, aliased));
    assert!(!compact.aliases[&starts[1]].leaves);
    let segment = compact.aliases[&starts[1]].segment;
    let (leaving, hidden) = compact.aliases_to_drop(80 * MIB);
    assert_eq!((leaving, hidden), (vec![starts[1]], vec![(starts[1], 1)]));
    assert_eq!((compact.remove_alias(starts[1]), compact.aliased), (Some(segment), aliased - 20 * MIB));
    assert_eq!(compact.remove_alias(starts[1]), None);
}

#[test]
fn aliases_may_be_twice_as_long_as_the_memory() {
    let (mut compact, _) = aliases();
    compact.costs.reserved = 50 * MIB;
    assert_eq!(compact.aliases_limit(), None);
    compact.costs.reserved = 49 * MIB;
    assert_eq!(compact.aliases_limit(), Some(98 * MIB));
}
