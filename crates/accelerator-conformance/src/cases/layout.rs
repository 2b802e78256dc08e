//! B, the placement of blocks: cases 23 to 27 and 29.

use accelerator_core::{BlockState, KIB, MIB, PoolKind, Snapshot};

use super::context::{Device, address};
use super::random::Random;
use super::{Case, Context, Outcome};
use crate::outcome::Failure;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(23, "segment_edges", segment_edges),
        Case::new(24, "best_fit_and_its_ties", best_fit_and_its_ties),
        Case::new(25, "split_thresholds", split_thresholds),
        Case::new(26, "merge_left_right_and_both", merge_left_right_and_both),
        Case::new(27, "no_merge_across_borders", no_merge_across_borders),
        Case::new(29, "same_trace_same_layout", same_trace_same_layout),
    ]
}

fn segment_edges(context: &Context) -> Outcome {
    const SMALL: u64 = 2 * MIB;
    const LARGE: u64 = 20 * MIB;
    for (bytes, block, segment) in [
        (511, 512, SMALL),
        (512, 512, SMALL),
        (513, 1_024, SMALL),
        (MIB - 1, MIB, SMALL),
        (MIB, MIB, SMALL),
        (MIB + 1, MIB + 512, LARGE),
        (10 * MIB - 512, 10 * MIB - 512, LARGE),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        // A segment for a single request is rounded up to 2 MiB. A remainder of up to 1 MiB stays in the block.
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (20 * MIB, 20 * MIB, 20 * MIB),
        (20 * MIB + 1, 20 * MIB + 512, 22 * MIB),
        (21 * MIB, 22 * MIB, 22 * MIB),
    ] {
        let device = context.device()?;
        let allocation = device.alloc(bytes)?;
        let pool = if bytes <= MIB { PoolKind::Small } else { PoolKind::Large };
        let segments = device.allocator().snapshot().segments;
        let found: Vec<_> = segments.iter().map(|segment| (segment.pool, segment.total_size)).collect();
        assert_eq!(found, [(pool, segment)], "{bytes} bytes");
        assert_eq!(allocation.size(), block, "the block for {bytes} bytes");
        device.free(allocation)?;
        device.check_consistency();
    }

    // How many requests fit into one segment.
    let device = context.device()?;
    let mut live = Vec::new();
    for (bytes, count, segments) in [(MIB, 2, 1), (MIB, 1, 2), (512, 1, 2), (9 * MIB, 2, 3), (9 * MIB, 1, 4)] {
        for _ in 0..count {
            live.push(device.alloc(bytes)?);
        }
        assert_eq!(device.statistics().segment.all.current, segments, "{count} more of {bytes} bytes");
    }
    device.check_consistency();
    Ok(device.free_all(live)?)
}

fn best_fit_and_its_ties(context: &Context) -> Outcome {
    let device = context.device()?;
    // Two full segments of four blocks each, in order of creation.
    let quarters: Vec<_> = (0..8).map(|_| device.alloc(512 * KIB)).collect::<Result<_, _>>()?;
    assert_eq!(device.statistics().segment.all.current, 2);
    let places: Vec<_> = quarters.iter().map(address).collect();
    let mut quarters: Vec<_> = quarters.into_iter().map(Some).collect();

    // Equal sizes: the older segment wins, then the lower address, regardless of the order of the frees.
    for freed in [4, 3, 6, 1] {
        device.free_all(quarters[freed].take())?;
    }
    let taken: Vec<_> = (0..4).map(|_| device.alloc(512 * KIB)).collect::<Result<_, _>>()?;
    let expected = [places[1], places[3], places[4], places[6]];
    assert!(taken.iter().map(address).eq(expected), "{taken:?} at {expected:x?}");

    // Different sizes: the smallest block that is large enough wins.
    device.free_all(quarters.into_iter().flatten())?;
    device.free_all(taken)?;
    device.allocator().empty_cache()?;
    let sizes = [300 * KIB, 512, 100 * KIB, 512, 200 * KIB, 512];
    let mut live: Vec<_> = sizes.into_iter().map(|size| device.alloc(size).map(Some)).collect::<Result<_, _>>()?;
    let mut hole = |place: usize| live[place].take().map(|hole| (address(&hole), hole)).ok_or("taken twice");
    let (holes_300, holes_100, holes_200) = (hole(0)?, hole(2)?, hole(4)?);
    for hole in [holes_300.1, holes_100.1, holes_200.1] {
        device.free(hole)?;
    }
    for (bytes, place) in [(150 * KIB, holes_200.0), (90 * KIB, holes_100.0), (250 * KIB, holes_300.0)] {
        let taken = device.alloc(bytes)?;
        assert_eq!(address(&taken), place, "{bytes} bytes");
        live.push(Some(taken));
    }
    device.check_consistency();
    Ok(device.free_all(live.into_iter().flatten())?)
}

fn split_thresholds(context: &Context) -> Outcome {
    let device = context.device()?;
    // A hole, a request, and the size of the block that the request gets from the hole.
    for (hole, bytes, block) in [
        // Small pool: any remainder is split off; remainders are multiples of 512.
        (1_024, 512, 512),
        (1_024, 513, 1_024),
        (MIB, 512, 512),
        (MIB, MIB - 512, MIB - 512),
        // Large pool: a remainder of up to 1 MiB stays in the block.
        (3 * MIB, 2 * MIB - 512, 2 * MIB - 512),
        (3 * MIB, 2 * MIB, 3 * MIB),
        (3 * MIB, 2 * MIB + 1, 3 * MIB),
    ] {
        let (before, behind) = (device.alloc(hole)?, device.alloc(hole)?);
        let place = address(&before);
        device.free(before)?;
        let taken = device.alloc(bytes)?;
        assert_eq!((address(&taken), taken.size()), (place, block), "{bytes} bytes in a hole of {hole}");
        device.check_consistency();
        device.free_all([taken, behind])?;
        device.allocator().empty_cache()?;
    }
    Ok(())
}

fn merge_left_right_and_both(context: &Context) -> Outcome {
    const SIZE: u64 = 128 * KIB;
    let device = context.device()?;
    // The order of the frees and, after each, the sizes of the free blocks from the start of the segment.
    let rest = 2 * MIB - 5 * SIZE;
    for (order, expected) in [
        ([0, 1, 2, 4], [vec![SIZE, rest], vec![2 * SIZE, rest], vec![3 * SIZE, rest], vec![3 * SIZE, SIZE + rest]]),
        ([2, 1, 0, 4], [vec![SIZE, rest], vec![2 * SIZE, rest], vec![3 * SIZE, rest], vec![3 * SIZE, SIZE + rest]]),
        ([0, 2, 1, 4], [vec![SIZE, rest], vec![SIZE, SIZE, rest], vec![3 * SIZE, rest], vec![3 * SIZE, SIZE + rest]]),
        ([4, 3, 1, 2], [vec![SIZE + rest], vec![2 * SIZE + rest], vec![SIZE, 2 * SIZE + rest], vec![4 * SIZE + rest]]),
    ] {
        let mut live: Vec<_> = (0..5).map(|_| device.alloc(SIZE).map(Some)).collect::<Result<_, _>>()?;
        for (step, expected) in order.into_iter().zip(expected) {
            device.free_all(live[step].take())?;
            assert_eq!(free_blocks(&device.allocator().snapshot()), expected, "{order:?}, {step} freed");
            device.check_consistency();
        }
        device.free_all(live.into_iter().flatten())?;
        assert_eq!(
            free_blocks(&device.allocator().snapshot()),
            [2 * MIB],
            "when all are freed, they must be one block again"
        );
        assert_eq!(device.statistics().inactive_split.all.current, 0);
    }
    Ok(())
}

fn free_blocks(snapshot: &Snapshot) -> Vec<u64> {
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state == BlockState::Inactive).map(|block| block.size).collect()
}

fn no_merge_across_borders(context: &Context) -> Outcome {
    let device = context.device()?;
    // Blocks do not merge across segments and pools: when everything is free, there is one block per segment.
    let live: Vec<_> =
        [MIB, MIB, MIB, MIB, 9 * MIB].into_iter().map(|size| device.alloc(size)).collect::<Result<_, _>>()?;
    device.free_all(live)?;
    let mut free = free_blocks(&device.allocator().snapshot());
    free.sort_unstable();
    assert_eq!(free, [2 * MIB, 2 * MIB, 20 * MIB]);
    device.allocator().empty_cache()?;

    // A block that another stream still uses does not merge.
    let user = device.side_stream()?;
    device.hold(user);
    let [used, neighbour] = [device.alloc(MIB)?, device.alloc(MIB)?];
    device.allocator().record_use(&used, user)?;
    device.free(used)?;
    device.free(neighbour)?;
    assert_eq!(free_blocks(&device.allocator().snapshot()), [MIB]);
    device.check_consistency();
    device.release(user);
    device.synchronize()?;
    let small = device.alloc(512)?;
    assert_eq!(free_blocks(&device.allocator().snapshot()), [2 * MIB - 512], "merged once the stream is done");
    Ok(device.free(small)?)
}

/// A snapshot without addresses: for each segment its creation number and size, and for each block its offset, size and
/// state.
type Layout = Vec<(u64, u64, Vec<(u64, u64, BlockState)>)>;

fn same_trace_same_layout(context: &Context) -> Outcome {
    let (first, second) = (context.device()?, context.device()?);
    let (first_layout, second_layout) = (random_layout(first)?, random_layout(second)?);
    assert_eq!(first_layout, second_layout);
    assert_eq!(first.statistics(), second.statistics());
    Ok(())
}

fn random_layout(device: Device) -> Result<Layout, Failure> {
    let streams = [device.default_stream(), device.side_stream()?];
    let mut random = Random::new(29);
    let mut live = Vec::new();
    for _ in 0..1_000 {
        if live.len() < 40 && random.below(5) < 3 {
            let stream = streams[random.below(2) as usize];
            live.push(device.alloc_on(random.size(12 * MIB), stream)?);
        } else if !live.is_empty() {
            device.free(live.swap_remove(random.below(live.len() as u64) as usize))?;
        }
    }
    let mut segments = device.allocator().snapshot().segments;
    segments.sort_by_key(|segment| segment.created);
    let layout = segments.iter().map(|segment| {
        let blocks = segment.blocks.iter();
        let blocks = blocks.map(|block| (block.address - segment.address, block.size, block.state)).collect();
        (segment.created, segment.total_size, blocks)
    });
    let layout = layout.collect();
    device.check_consistency();
    device.free_all(live)?;
    Ok(layout)
}
