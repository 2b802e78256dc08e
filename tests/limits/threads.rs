//! Threads that come and go leave no host memory behind.
//!
//! What one thread requests another may free, so this counts for the whole process, which must run nothing else: the
//! test starts itself again as a process of its own.

use std::cell::RefCell;
use std::process::Command;
use std::sync::Mutex;
use std::{env, thread};

use accelerator_conformance::Sim;
use accelerator_core::{Accelerator, AllocatorConfig, Buffer, GIB, KIB, MIB, MemPool, MemPoolOptions};

use crate::counting::in_use_of_process;

const NAME: &str = "threads::threads_that_come_and_go_leave_no_host_memory";
/// Set in the process of its own.
const ALONE: &str = "ACCELERATOR_LIMITS_ALONE";

/// How many threads there are at a time, and how many times.
const AT_ONCE: u64 = 8;
const TIMES: u64 = 150;

thread_local!(static HELD: RefCell<Vec<Buffer<Sim>>> = const { RefCell::new(Vec::new()) });

/// The body of a thread, which ends with or without live buffers. `left` has those that it leaves to others.
fn work(number: u64, accelerator: &'static Accelerator<Sim>, pool: &MemPool<Sim>, left: &Mutex<Vec<Buffer<Sim>>>) {
    let (own, other) = (accelerator.stream(0).unwrap(), accelerator.default_stream());
    // Every fourth thread does enough to own the lock of its stream.
    let rounds = if number.is_multiple_of(4) { 1500 } else { 20 };
    for round in 0..rounds {
        let buffer = accelerator.allocate(1 + round * 700 % (64 * KIB), own).unwrap();
        // Few blocks wait for the other stream at a time, so that they need no more slots than there are at first.
        if [0, 8, 16].contains(&round) {
            buffer.record_use(other).unwrap();
        }
    }
    let in_pool = {
        let _guard = pool.use_pool();
        accelerator.allocate(3 * MIB, own).unwrap()
    };
    match number % 3 {
        0 => HELD.with_borrow_mut(|held| held.push(in_pool)), // freed while the thread's variables are dropped
        1 => left.lock().unwrap().push(in_pool),
        _ => {}
    }
}

/// Runs many threads. Returns the host memory in use once all of their blocks are freed and the cache is empty.
fn run(accelerator: &'static Accelerator<Sim>, pool: &MemPool<Sim>) -> i64 {
    let left = Mutex::new(Vec::new());
    for time in 0..TIMES {
        thread::scope(|scope| {
            let left = &left;
            let spawn = |place| scope.spawn(move || work(time + place, accelerator, pool, left));
            let threads: Vec<_> = (0..AT_ONCE).map(spawn).collect();
            // The scope itself does not wait until the variables of its threads are dropped.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        left.lock().unwrap().clear();
    }
    drop(left);
    pool.trim().unwrap();
    accelerator.allocator().empty_cache().unwrap();
    assert_eq!(accelerator.allocator().statistics().reserved_bytes.all.current, 0);
    in_use_of_process()
}

#[test]
fn threads_that_come_and_go_leave_no_host_memory() {
    if env::var_os(ALONE).is_none() {
        let mut alone = Command::new(env::current_exe().unwrap());
        let ran = alone.args(["--exact", NAME, "--nocapture"]).env(ALONE, "").status().unwrap();
        return assert!(ran.success(), "in a process of its own");
    }
    let accelerator = Accelerator::new(Sim::new(64 * GIB), 0, AllocatorConfig::default()).unwrap();
    let pool = MemPool::new(accelerator, MemPoolOptions::default()).unwrap();
    run(accelerator, &pool); // the streams, arenas and lists grow to what so many threads need at once
    let before = run(accelerator, &pool);
    let growth = [(); 2].map(|()| run(accelerator, &pool) - before);
    println!("host memory after {} and {} more threads: {growth:?} bytes more", TIMES * AT_ONCE, 2 * TIMES * AT_ONCE);
    // How long some lists get, and who has owned which lock, depends on the order in which threads run. A word for each
    // thread is several times as much.
    assert!(growth[1] < (2 * TIMES * AT_ONCE * 8) as i64, "{growth:?} bytes more");
}
