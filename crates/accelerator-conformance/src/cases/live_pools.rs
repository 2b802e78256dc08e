//! G, what live private pools hold of the driver's memory: case 105.

use accelerator_core::{Allocation, Backend, Error, GIB, MIB, MemPool, MemPoolOptions};

use super::captures::begin;
use super::context::{Device, Driver};
use super::{Case, Context, Outcome};
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let case = Case::new(105, "a_live_pool_strands_no_memory", a_live_pool_strands_no_memory);
    vec![case.needs(&[Capability::VirtualMemory]).of_any_policy()]
}

fn a_live_pool_strands_no_memory(context: &Context) -> Outcome {
    for settings in ["", "expandable_segments:True"] {
        for (in_turn, trims) in [(true, true), (true, false), (false, true), (false, false)] {
            conversion(context.device_with(GIB, settings)?, in_turn, trims)?;
        }
    }
    // `policy:compact` needs no setting.
    if !context.is_compact() {
        gives_way(context, "", false)?;
    }
    let settings = if context.is_compact() { "" } else { "reclaim_live_pools:True" };
    gives_way(context, settings, true)
}

/// The sizes of a transformer's weights in `f32`: a matrix and a bias in each of four layers of its twelve blocks.
fn weights() -> Vec<u64> {
    const WIDTH: u64 = 768;
    let layers = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)];
    let block = layers.map(|(inputs, outputs)| [4 * inputs * outputs, 4 * outputs]).concat();
    block.repeat(12)
}

/// Loads weights into a pool and halves their precision there, which leaves holes everywhere. Each original is dropped
/// as soon as it is converted, or all of them at the end.
fn conversion(device: Device, in_turn: bool, trims: bool) -> Outcome {
    let options = MemPoolOptions { trims, pausable: true, ..MemPoolOptions::default() };
    let pool = MemPool::new(device.accelerator(), options)?;
    let guard = pool.use_pool();
    let originals = weights().into_iter().map(|bytes| device.alloc(bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut converted: Vec<Allocation<Driver>> = Vec::new();
    let mut kept = Vec::new();
    for original in originals {
        converted.push(device.alloc(original.requested().get() / 2)?);
        match in_turn {
            true => device.free(original)?,
            false => kept.push(original),
        }
    }
    device.free_all(kept)?;
    drop(guard);
    if !trims {
        pool.trim()?;
    }
    let live = device.statistics().allocated_bytes.all.current.unsigned_abs();
    let reserved = device.allocator().reserved_by_private_pools();
    let reserved = reserved.get(&pool.id()).map(|stat| stat.all.current.unsigned_abs());
    assert_eq!(reserved, Some(device.backend().used()));
    let bound = live + live / 20;
    assert!(
        device.backend().used() <= bound,
        "{reserved:?} bytes are held for {live} live ones; in turn: {in_turn}, trims: {trims}"
    );
    device.check_consistency();
    Ok(device.free_all(converted)?)
}

/// Whether free memory of a live pool serves a request elsewhere that finds no other memory. What a graph holds does
/// not.
fn gives_way(context: &Context, settings: &str, expected: bool) -> Outcome {
    let device = context.device_with(64 * MIB, settings)?;
    let pool = device.pool()?;
    device.free(device.alloc_in(&pool, 40 * MIB)?)?;
    match device.alloc(40 * MIB) {
        Ok(taken) if expected => device.free(taken)?,
        Err(Error::OutOfMemory(_)) if !expected => {}
        other => return Err(format!("with `{settings}`: {other:?}").into()),
    }
    device.check_consistency();
    if device.backend().graphs().is_none() {
        return Ok(());
    }
    device.allocator().empty_cache()?;
    pool.trim()?;
    let stream = device.side_stream()?;
    let mut graph = begin(device, stream, Some(pool.id()))?;
    device.free(device.alloc_on(30 * MIB, stream)?)?;
    graph.capture_end()?;
    let refused = device.alloc(40 * MIB);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "the graph uses the memory: {refused:?}");
    Ok(())
}
