use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::*;

/// Locks often enough to become the owner.
const MANY: u32 = STREAK + 10;

impl<T> OwnedLock<T> {
    fn is_owned_by(&self, thread: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == thread
    }
}

/// Takes time, so that another thread inside at the same time would overwrite the value.
fn add_one(lock: &OwnedLock<u64>) {
    let mut count = lock.lock();
    let before = *count;
    (0..hint::black_box(3)).for_each(|_| hint::spin_loop());
    *count = before + 1;
}

/// Fails instead of waiting for ever in a deadlock.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || sender.send(work()).unwrap());
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread waits for the lock for ever"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
    }
}

#[test]
fn nothing_is_lost_when_ownership_is_taken_away() {
    const VISITS: u64 = 4000;
    let (count, expected, owned) = in_time(|| {
        let (lock, done) = (OwnedLock::new(0), AtomicBool::new(false));
        let (locked, owned) = thread::scope(|scope| {
            // Locks often enough to become the owner, again and again.
            let regular = scope.spawn(|| {
                let (me, mut locked, mut owned) = (thread_number(), 0, 0);
                while !done.load(Ordering::Relaxed) {
                    let was_owned = lock.is_owned_by(me);
                    add_one(&lock);
                    owned += u32::from(!was_owned && lock.is_owned_by(me));
                    locked += 1;
                }
                (locked, owned)
            });
            for _ in 0..VISITS {
                add_one(&lock);
                thread::sleep(Duration::from_micros(60));
            }
            done.store(true, Ordering::Relaxed);
            regular.join().unwrap()
        });
        let count = *lock.lock();
        (count, locked + VISITS, owned)
    });
    assert_eq!(count, expected);
    assert!(owned >= 100 || !barrier::is_possible(), "owned {owned} times: too few to test revoking");
}

#[test]
fn nothing_is_lost_with_more_threads_than_seats() {
    fn bursts(lock: &OwnedLock<u64>, seed: u64, until: Instant) -> u64 {
        let (mut count, mut random) = (0, fastrand::Rng::with_seed(seed));
        while Instant::now() < until {
            let burst = random.u64(..3 * u64::from(STREAK));
            (0..burst).for_each(|_| add_one(lock));
            count += burst;
            match random.u8(..4) {
                0 => thread::sleep(Duration::from_micros(100)),
                1 => {}
                _ => thread::yield_now(),
            }
        }
        count
    }

    let (count, expected) = in_time(|| {
        let (lock, until) = (OwnedLock::new(0), Instant::now() + Duration::from_secs(1));
        let expected: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..SEATS as u64 + 5)
                .map(|seed| {
                    let lock = &lock;
                    scope.spawn(move || bursts(lock, seed, until))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let count = *lock.lock();
        (count, expected)
    });
    assert_eq!(count, expected);
}

#[test]
fn seats_of_threads_that_ended_are_given_to_others() {
    const PAIRS: usize = 10 * SEATS;
    let (count, owned) = in_time(|| {
        let (lock, owned) = (OwnedLock::new(0), AtomicU32::new(0));
        // Two threads at a time, which take the lock from each other and from earlier threads.
        for _ in 0..PAIRS {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        (0..3 * MANY).for_each(|_| add_one(&lock));
                        owned.fetch_add(u32::from(lock.is_owned_by(thread_number())), Ordering::Relaxed);
                    });
                }
            });
        }
        let count = *lock.lock();
        (count, owned.into_inner())
    });
    assert_eq!(count, PAIRS as u64 * 2 * 3 * u64::from(MANY));
    assert!(owned > SEATS as u32 || !barrier::is_possible(), "{owned} threads owned, each on a new seat");
}

/// Starts threads until one has this seat, and runs the work on that one.
fn on_seat<T: Send + 'static>(seat: usize, work: impl FnOnce() -> T + Clone + Send + 'static) -> JoinHandle<Option<T>> {
    loop {
        let (tell, told) = mpsc::channel();
        let work = work.clone();
        let started = thread::spawn(move || {
            let fits = seat_of(thread_number()) == seat;
            tell.send(fits).unwrap();
            fits.then(work)
        });
        if told.recv().unwrap() {
            return started;
        }
    }
}

#[test]
fn a_seat_is_one_threads_for_as_long_as_that_lives() {
    let lock = Arc::new(OwnedLock::new(0));
    let own = |lock: &OwnedLock<u64>| {
        (0..MANY).for_each(|_| add_one(lock));
        lock.is_owned_by(thread_number())
    };
    let (tell, told) = mpsc::channel();
    let (let_end, end) = mpsc::channel::<()>();
    let first = thread::spawn({
        let lock = Arc::clone(&lock);
        move || {
            tell.send((seat_of(thread_number()), own(&lock))).unwrap();
            end.recv().unwrap_err();
        }
    });
    let (seat, owned) = told.recv().unwrap();
    assert_eq!(owned, barrier::is_possible());

    let rival = |lock: &Arc<OwnedLock<u64>>| {
        let lock = Arc::clone(lock);
        on_seat(seat, move || own(&lock)).join().unwrap()
    };
    assert_eq!(rival(&lock), Some(false), "two living threads own through one seat");
    drop(let_end);
    first.join().unwrap();
    assert_eq!(rival(&lock), Some(barrier::is_possible()), "the seat is free");
}

#[test]
fn an_owner_that_panics_leaves_the_lock() {
    let count = in_time(|| {
        let lock = Arc::new(OwnedLock::new(0));
        let inner = Arc::clone(&lock);
        let owner = thread::spawn(move || {
            add_one(&inner); // the owner from here on
            for _ in 0..2 {
                catch_unwind(AssertUnwindSafe(|| {
                    let mut count = inner.lock();
                    assert_eq!(inner.is_owned_by(thread_number()), barrier::is_possible());
                    *count += 1;
                    std::panic::resume_unwind(Box::new("held"));
                }))
                .unwrap_err();
            }
            add_one(&inner);
            let _held = inner.lock();
            std::panic::resume_unwind(Box::new("held"));
        });
        owner.join().unwrap_err();
        add_one(&lock);
        *lock.lock()
    });
    assert_eq!(count, 5);
}

#[test]
fn a_lock_whose_owner_has_ended_is_free() {
    let count = in_time(|| {
        let lock = Arc::new(OwnedLock::new(0));
        let inner = Arc::clone(&lock);
        let owned = thread::spawn(move || {
            add_one(&inner);
            inner.is_owned_by(thread_number())
        });
        assert_eq!(owned.join().unwrap(), barrier::is_possible());
        (0..=MANY).for_each(|_| add_one(&lock));
        assert_eq!(lock.is_owned_by(thread_number()), barrier::is_possible(), "ownership moves on");
        *lock.lock()
    });
    assert_eq!(count, u64::from(MANY) + 2);
}

#[test]
fn a_thread_waits_until_the_owner_has_left() {
    let count = in_time(|| {
        let (lock, (tell, told)) = (Arc::new(OwnedLock::new(0)), mpsc::channel());
        let inner = Arc::clone(&lock);
        let owner = thread::spawn(move || {
            let mut held = inner.lock();
            tell.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            *held += 1;
        });
        told.recv().unwrap();
        let count = *lock.lock();
        owner.join().unwrap();
        count
    });
    assert_eq!(count, 1);
}

#[test]
fn try_lock_fails_while_a_thread_is_inside() {
    let owned = in_time(|| {
        let lock = Arc::new(OwnedLock::new(0));
        let try_elsewhere = |lock: &Arc<OwnedLock<u64>>| {
            let lock = Arc::clone(lock);
            thread::spawn(move || lock.try_lock().is_some()).join().unwrap()
        };
        let held = lock.lock(); // as the owner
        let owned = lock.is_owned_by(thread_number());
        assert!(lock.try_lock().is_none() && lock.try_lock_owned().is_none() && !try_elsewhere(&lock));
        assert_eq!(lock.is_owned_by(thread_number()), owned, "a failed try_lock does not revoke ownership");
        drop(held);
        assert_eq!(lock.try_lock_owned().is_some(), owned, "its guard is gone at once");
        assert_eq!(lock.try_lock_owned().is_some(), owned);
        assert!(try_elsewhere(&lock));
        let held = lock.try_lock(); // with the mutex
        assert!(held.is_some() && !lock.is_owned_by(thread_number()));
        assert!(lock.try_lock().is_none() && lock.try_lock_owned().is_none() && !try_elsewhere(&lock));
        drop(held);
        assert!(lock.try_lock().is_some());
        owned
    });
    assert_eq!(owned, barrier::is_possible());
}

#[test]
fn no_update_is_lost_between_lock_and_try_lock() {
    const TRIES: u64 = 20_000;
    let (count, expected, refused) = in_time(|| {
        let (lock, done) = (OwnedLock::new(0), AtomicBool::new(false));
        let (locked, entered) = thread::scope(|scope| {
            let regular = scope.spawn(|| {
                let mut locked = 0;
                while !done.load(Ordering::Relaxed) {
                    add_one(&lock);
                    locked += 1;
                }
                locked
            });
            let mut entered = 0;
            for tried in 0..TRIES {
                if let Some(mut count) = lock.try_lock() {
                    let before = *count;
                    (0..hint::black_box(3)).for_each(|_| hint::spin_loop());
                    *count = before + 1;
                    entered += 1;
                }
                if tried % 100 == 0 {
                    thread::sleep(Duration::from_micros(100)); // the other thread is the owner again
                }
            }
            done.store(true, Ordering::Relaxed);
            (regular.join().unwrap(), entered)
        });
        (*lock.lock(), locked + entered, TRIES - entered)
    });
    assert_eq!(count, expected);
    assert!(refused > 0 && refused < TRIES, "{refused} of {TRIES} were refused");
}

#[test]
fn it_may_be_used_where_a_mutex_may() {
    fn check<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
    check::<OwnedLock<std::cell::Cell<u8>>>();
}
