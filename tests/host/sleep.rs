//! Paused pools on real pages of the host, measured by what the process has in memory.

use std::fs;

use accelerator_core::{Accelerator, AllocatorConfig, Error, GIB, Keep, MIB, MemPool, MemPoolId, MemPoolOptions};
use accelerator_host::Host;

use crate::sleep_cycles::cycles;

fn host() -> &'static Accelerator<Host> {
    Accelerator::new(Host::new(0, 64 * GIB), 0, AllocatorConfig::default()).unwrap()
}

/// Returns the bytes of this process that are in memory.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_thousand_cycles_keep_addresses_and_bytes() {
    let host = host();
    cycles(host, 1000, || 64 * GIB - host.memory_info().unwrap().free).unwrap();
}

#[test]
fn paused_memory_is_not_resident() {
    const LEN: u64 = 512 * MIB;
    let host = host();
    let stream = host.default_stream();
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let pool = MemPool::new(host, options).unwrap();
    let mut buffer = {
        let _guard = pool.use_pool();
        host.allocate(LEN, stream).unwrap()
    };
    for round in 0..3 {
        buffer.fill(round, stream).unwrap();
        stream.synchronize().unwrap();
        let awake = resident();
        let paused = pool.pause(Keep::Nothing).unwrap();
        assert_eq!(paused.bytes, LEN);
        let asleep = resident();
        let gone = awake - asleep;
        assert!(gone.abs_diff(LEN) < LEN / 16, "{gone} bytes left, of {LEN}");
        let resumed = pool.resume().unwrap();
        assert_eq!(resumed.bytes, LEN);
    }
}

#[test]
fn a_second_handle_of_a_pool_is_one_more_use_and_resumes_nothing() {
    let (host, id) = (host(), MemPoolId::next_graph());
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let first = MemPool::with_id(host, id, options.clone()).unwrap();
    let second = MemPool::with_id(host, id, MemPoolOptions::default()).unwrap();
    assert_eq!((first.id(), first.uses()), (id, 2));
    let _ = first.pause(Keep::Nothing).unwrap();
    assert!(second.is_paused());
    assert!(matches!(second.resume(), Err(Error::MemPool { .. })));
    drop(second);
    let _ = first.resume().unwrap();
    assert_eq!(first.uses(), 1);
    assert!(matches!(MemPool::with_id(host, MemPoolId::DEFAULT, options), Err(Error::MemPool { .. })));
}
