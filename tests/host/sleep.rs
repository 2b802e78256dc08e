//! Paused pools on real pages of the host, measured by what the process has in memory.

use std::process::Command;
use std::{env, fs};

use accelerator_core::{Accelerator, AllocatorConfig, Error, GIB, Keep, MIB, MemPool, MemPoolId, MemPoolOptions};
use accelerator_host::Host;

use crate::sleep_cycles::cycles;

fn host() -> &'static Accelerator<Host> {
    Accelerator::new(Host::new(0, 64 * GIB), 0, AllocatorConfig::default()).unwrap()
}

/// Runs a test again in a process of its own, after these commands of a shell. Returns whether this is that process.
fn is_alone(test: &str, commands: &str) -> bool {
    const ALONE: &str = "ACCELERATOR_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let script = format!(r#"{commands} exec "$0" --exact "$1""#);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(env::current_exe().unwrap()).arg(test).env(ALONE, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    false
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
    const LEN: u64 = 16 * MIB;
    // Other tests would use memory meanwhile.
    if !is_alone("sleep::paused_memory_is_not_resident", "") {
        return;
    }
    let host = host();
    let stream = host.default_stream();
    let pool = pausable(host);
    let guard = pool.use_pool();
    let mut buffer = host.allocate(LEN, stream).unwrap();
    drop(guard);
    for round in 0..1000_u32 {
        buffer.fill(round as u8, stream).unwrap();
        stream.synchronize().unwrap();
        let awake = resident();
        let paused = pool.pause(Keep::Nothing).unwrap();
        assert_eq!(paused.bytes, LEN);
        let gone = awake - resident();
        assert!(gone.abs_diff(LEN) < LEN / 16, "{gone} bytes went, of {LEN}, in round {round}");
        let resumed = pool.resume().unwrap();
        assert_eq!(resumed.bytes, LEN);
    }
}

/// The limit on the length of files stands for a disk that is full.
#[test]
fn a_file_that_cannot_hold_everything_changes_nothing() {
    const LEN: u64 = 16 * MIB;
    // The limit is one of the process. Without the signal, writes return an error.
    if !is_alone("sleep::a_file_that_cannot_hold_everything_changes_nothing", r#"trap "" XFSZ;"#) {
        return;
    }
    let host = host();
    let stream = host.default_stream();
    let pool = pausable(host);
    let guard = pool.use_pool();
    let mut buffers: Vec<_> = (0..5).map(|_| host.allocate(LEN, stream).unwrap()).collect();
    drop(guard);
    for (buffer, value) in buffers.iter_mut().zip(1..) {
        buffer.fill(value, stream).unwrap();
    }
    // Only now, because the host's memory is a file, too.
    let (process, limit) = (std::process::id().to_string(), format!("--fsize={}", 3 * LEN));
    let limited = Command::new("prlimit").args(["--pid", &process, &limit]).status().unwrap();
    assert!(limited.success());
    let file = env::temp_dir().join(format!("paused-too-long-{process}"));
    let refused = pool.pause(Keep::File(file.clone())).unwrap_err();
    assert!(matches!(&refused, Error::PoolFile(error) if error.path == file), "{refused}");
    assert!(!pool.is_paused() && !file.exists(), "{refused}");
    let check = || {
        for (buffer, value) in buffers.iter().zip(1..) {
            let mut bytes = vec![0; LEN as usize];
            buffer.read(0, &mut bytes, stream).unwrap();
            assert!(bytes.iter().all(|byte| *byte == value), "buffer {value}");
        }
    };
    check();
    let _ = pool.pause(Keep::Host).unwrap();
    let _ = pool.resume().unwrap();
    check();
}

#[test]
fn memory_on_both_sides_of_a_gap_keeps_its_bytes() {
    const LEN: u64 = 4 * MIB;
    let host = host();
    let stream = host.default_stream();
    let pool = pausable(host);
    let guard = pool.use_pool();
    let mut buffers = [(); 4].map(|()| host.allocate(LEN, stream).unwrap());
    drop(guard);
    for (buffer, value) in buffers.iter_mut().zip(1..) {
        buffer.fill(value, stream).unwrap();
    }
    let [first, gap, third, last] = buffers;
    drop(gap);
    assert_eq!(pool.pause(Keep::Host).unwrap().bytes, 3 * LEN);
    assert_eq!(pool.resume().unwrap().bytes, 3 * LEN);
    for (buffer, value) in [(first, 1), (third, 3), (last, 4)] {
        let mut bytes = vec![0; LEN as usize];
        buffer.read(0, &mut bytes, stream).unwrap();
        assert!(bytes.iter().all(|byte| *byte == value), "buffer {value}");
    }
}

fn pausable(host: &'static Accelerator<Host>) -> MemPool<Host> {
    MemPool::new(host, MemPoolOptions { pausable: true, ..MemPoolOptions::default() }).unwrap()
}

#[test]
fn a_second_handle_of_a_pool_is_one_more_use_and_resumes_what_the_first_paused() {
    let (host, id) = (host(), MemPoolId::next_graph());
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let first = MemPool::with_id(host, id, options.clone()).unwrap();
    let second = MemPool::with_id(host, id, MemPoolOptions::default()).unwrap();
    assert_eq!((first.id(), first.uses()), (id, 2));
    let _ = first.pause(Keep::Nothing).unwrap();
    assert!(second.is_paused());
    let _ = second.resume().unwrap();
    assert!(!first.is_paused());
    drop(second);
    assert_eq!(first.uses(), 1);
    assert!(matches!(MemPool::with_id(host, MemPoolId::DEFAULT, options), Err(Error::MemPool { .. })));
}
