//! A lock that costs its usual owner no atomic operation.
#![allow(unsafe_code)] // the lock itself

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Mutex, MutexGuard, Weak};
use std::time::Duration;
use std::{hint, thread};

use super::thread_number::{thread_life, thread_number};
use super::{barrier, lock, try_lock};

/// A thread that has locked so often, with nobody between, becomes the owner. What taking that back costs, a system call
/// of some microseconds, is little beside what so many locks cost.
const STREAK: u32 = 1000;

/// Who waits longer than so many pauses of the processor, about a microsecond, sleeps.
const MOST_PAUSES: u32 = 64;

/// So long.
const NAP: Duration = Duration::from_micros(100);

/// After so many naps a thread waits for the mutex as others do, and is woken.
const MOST_NAPS: u32 = 10;

/// Places for threads that own, now or earlier. Threads that meet at one cannot both.
const SEATS: usize = 8;

/// A mutex that the thread which always takes it *owns*: it enters by a plain store and leaves by another, without the atomic
/// read-modify-write that is most of the time of an allocation otherwise.
///
/// The owner says that it is inside, and then looks whether it still is the owner. Who else wants in takes the mutex, takes
/// ownership away, and then looks whether the owner is inside. Store and look of the two must not cross: the one that
/// can afford it makes both of them keep the order, by a barrier of the whole process
/// ([`barrier::of_process`]). From then on all take the mutex, until one of them comes so often that it owns again.
///
/// A thread can be held up for any time between looking that it is the owner and saying that it is inside. What it says
/// then must not be taken for another's word, so each thread says it at a seat of its own, for as long as it lives. A thread whose
/// seat a living one has, one of eight by its number, never owns: it takes the mutex.
#[repr(align(128))] // no cache line has two locks
pub(crate) struct OwnedLock<T> {
    /// The number of the thread that may enter by a plain store; 0: there is none. Set under the mutex: to a thread by itself, or
    /// by one that tried to take it away and did not come in.
    owner: AtomicU64,
    /// Whether the thread of the seat is inside, or about to see that it does not own any more.
    inside: [AtomicBool; SEATS],
    /// For those who do not own.
    mutex: Mutex<Takers>,
    value: UnsafeCell<T>,
}

/// Who took the mutex.
struct Takers {
    /// The last.
    last: u64,
    /// How often in a row it did.
    streak: u32,
    seats: [Seat; SEATS],
}

/// The thread of a seat; nobody else's for as long as that lives.
#[derive(Default)]
struct Seat {
    thread: u64,
    life: Weak<()>,
}

// SAFETY: A `Guard` alone gives access to the value, and there is one at a time: see `lock` and `take`. So this is `Sync` as
// `Mutex` is.
unsafe impl<T: Send> Sync for OwnedLock<T> {}

// As `Mutex`, which tells of a panic by poison. Ours needs not: no user code runs under it, so what it guards is whole.
impl<T> UnwindSafe for OwnedLock<T> {}
impl<T> RefUnwindSafe for OwnedLock<T> {}

/// The lock is held while this lives.
pub(crate) struct Guard<'a, T> {
    lock: &'a OwnedLock<T>,
    entered: Entered<'a>,
    /// An owner leaves on the thread that entered.
    not_send: PhantomData<*const ()>,
}

enum Entered<'a> {
    /// As the owner, who says so here.
    AsOwner(&'a AtomicBool),
    Taking {
        _takers: MutexGuard<'a, Takers>,
    },
}

impl<T: Default> Default for OwnedLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> OwnedLock<T> {
    /// The first to lock it owns it.
    pub(crate) fn new(value: T) -> Self {
        let takers = Takers { last: 0, streak: STREAK, seats: Default::default() };
        Self {
            owner: AtomicU64::new(0),
            inside: [const { AtomicBool::new(false) }; SEATS],
            mutex: Mutex::new(takers),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for it, and locks it.
    ///
    /// # Panics
    /// If this thread is inside as the owner already.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let me = thread_number();
        match self.enter(me) {
            Some(guard) => guard,
            None => self.take(me, self.wait_for_mutex()),
        }
    }

    /// As [`lock`](Self::lock), without sleeping longer than it must: for who holds other locks, too.
    pub(crate) fn lock_soon(&self) -> Guard<'_, T> {
        let me = thread_number();
        self.enter(me).unwrap_or_else(|| self.take(me, lock(&self.mutex)))
    }

    /// Locks it, unless somebody is inside, this thread itself also.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let me = thread_number();
        if self.inside[seat_of(me)].load(Ordering::Relaxed) {
            return None;
        }
        self.enter(me).or_else(|| self.try_take(me))
    }

    /// Enters, if this thread is the owner.
    #[inline(always)]
    fn enter(&self, me: u64) -> Option<Guard<'_, T>> {
        if self.owner.load(Ordering::Relaxed) == me {
            let inside = &self.inside[seat_of(me)];
            assert!(!inside.load(Ordering::Relaxed), "locked twice by one thread");
            inside.store(true, Ordering::Relaxed);
            // For the compiler. The processor may still let the look pass the store; the barrier in `take` makes up for that:
            // what looked before it has stored before it, and what looks after it finds another owner.
            compiler_fence(Ordering::SeqCst);
            if self.owner.load(Ordering::Relaxed) == me {
                return Some(Guard { lock: self, entered: Entered::AsOwner(inside), not_send: PhantomData });
            }
            inside.store(false, Ordering::Release);
        }
        None
    }

    /// Locks it as one who does not own it, unless somebody is inside.
    #[cold]
    fn try_take(&self, me: u64) -> Option<Guard<'_, T>> {
        let takers = try_lock(&self.mutex)?;
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 && owner != me {
            let inside = &self.inside[seat_of(owner)];
            // Looked at first without a barrier, which is a system call.
            if inside.load(Ordering::Relaxed) {
                return None;
            }
            self.owner.store(0, Ordering::Relaxed);
            barrier::of_process();
            if inside.load(Ordering::Acquire) {
                // It came in just now, and may go on: the mutex is ours, so nobody else has come in.
                self.owner.store(owner, Ordering::Relaxed);
                return None;
            }
        }
        Some(self.taken(me, takers))
    }

    /// Locks it as one who does not own it.
    #[cold]
    fn take<'a>(&'a self, me: u64, takers: MutexGuard<'a, Takers>) -> Guard<'a, T> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 && owner != me {
            // The mutex is ours, so nobody becomes owner meanwhile.
            self.owner.store(0, Ordering::Relaxed);
            barrier::of_process();
            let inside = &self.inside[seat_of(owner)];
            let mut waiting = Waiting::default();
            while inside.load(Ordering::Acquire) {
                waiting.pause();
            }
        }
        self.taken(me, takers)
    }

    /// Comes in with the mutex, when nobody else owns and nobody is inside.
    fn taken<'a>(&'a self, me: u64, mut takers: MutexGuard<'a, Takers>) -> Guard<'a, T> {
        // It may have been the owner all the time, and have looked while somebody tried to take that away.
        if self.owner.load(Ordering::Relaxed) == me || takers.may_own(me) {
            let inside = &self.inside[seat_of(me)];
            inside.store(true, Ordering::Relaxed);
            self.owner.store(me, Ordering::Relaxed);
            return Guard { lock: self, entered: Entered::AsOwner(inside), not_send: PhantomData };
        }
        Guard { lock: self, entered: Entered::Taking { _takers: takers }, not_send: PhantomData }
    }

    /// Takes the mutex. While others have it, who waits looks ever more rarely, and sleeps in between, without being woken: where
    /// threads do nothing else but allocate, one of them then runs at full speed, and its processor's caches stay its own.
    fn wait_for_mutex(&self) -> MutexGuard<'_, Takers> {
        let mut waiting = Waiting::default();
        while waiting.naps < MOST_NAPS && barrier::is_possible() {
            if let Some(takers) = try_lock(&self.mutex) {
                return takers;
            }
            waiting.pause();
        }
        lock(&self.mutex)
    }
}

#[inline(always)]
fn seat_of(thread: u64) -> usize {
    thread as usize % SEATS
}

/// How long a thread has waited.
#[derive(Default)]
struct Waiting {
    pauses: u32,
    naps: u32,
}

impl Waiting {
    /// First some pauses of the processor, then a nap: who only let others go first would hold up those of lower priority.
    fn pause(&mut self) {
        if self.pauses < MOST_PAUSES {
            self.pauses = (2 * self.pauses).max(16);
            (0..self.pauses).for_each(|_| hint::spin_loop());
        } else {
            self.naps += 1;
            thread::sleep(NAP);
        }
    }
}

impl Takers {
    /// Counts who came. Whether it came so often that it may own, and has its seat then.
    fn may_own(&mut self, thread: u64) -> bool {
        self.streak = if self.last == thread || self.last == 0 { self.streak.saturating_add(1) } else { 0 };
        self.last = thread;
        if self.streak <= STREAK || !barrier::is_possible() {
            return false;
        }
        self.streak = 0;
        let seat = &mut self.seats[seat_of(thread)];
        if seat.thread != thread && seat.life.strong_count() == 0 {
            // What the thread last wrote at the seat comes before what this one writes there.
            fence(Ordering::Acquire);
            *seat = Seat { thread, life: thread_life().unwrap_or_default() };
        }
        seat.thread == thread && seat.life.strong_count() > 0
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: The guard has the lock, so nobody else has the value; it lends it no longer than it lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: As in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Entered::AsOwner(inside) = self.entered {
            inside.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
