//! A lock that costs its usual user no atomic read-modify-write operation.
#![allow(unsafe_code)] // the lock itself

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use super::barrier;
use super::primitives::atomic::{AtomicBool, AtomicU64, Ordering};
use super::primitives::{IS_MODEL, Mutex, MutexGuard, UnsafeCell, hint, lock, thread, try_lock};
use super::thread_number::{Life, known_thread_number, thread_life, thread_number};

/// A thread that has locked this often in a row becomes the owner. By then the mutex has cost it about as much as
/// revoking its ownership will cost another thread: a system call of some microseconds.
const STREAK: u32 = if IS_MODEL { 0 } else { 64 };

/// The owner of a lock that has none: a number that no thread has. It is not 0, which stands for a thread that has no
/// number yet: such a thread would own every lock without an owner.
const NOBODY: u64 = u64::MAX;

/// A thread that waits longer than this many spin-loop hints, about a microsecond, sleeps.
const MOST_PAUSES: u32 = if IS_MODEL { 0 } else { 64 };

/// The length of one sleep.
const NAP: Duration = Duration::from_micros(100);

/// After this many sleeps a thread blocks on the mutex, which wakes it.
const MOST_NAPS: u32 = if IS_MODEL { 1 } else { 10 };

/// The number of seats for threads that own the lock, now or earlier. Of the living threads that share a seat, only one
/// can own the lock.
const SEATS: usize = if IS_MODEL { 2 } else { 8 };

/// A mutex that a thread *owns* after taking it repeatedly. The owner enters with one plain store and leaves with
/// another, without the atomic read-modify-write that otherwise takes most of the time of an allocation.
///
/// The owner stores that it is inside, and then checks whether it is still the owner. Another thread takes the mutex,
/// revokes the ownership, and then checks whether the owner is inside. Neither thread's check may be reordered before
/// its store. The other thread, which can afford it, ensures this for both with a barrier on the whole process
/// ([`barrier::of_process`]). From then on all threads take the mutex, until one of them takes it often enough to own
/// the lock again.
///
/// A thread can be delayed for any time between checking that it is the owner and storing that it is inside. That store
/// must not be mistaken for another thread's, so each owner stores to a seat that is its own for as long as the thread
/// lives. A thread's number determines its seat, one of eight. If another living thread holds that seat, the thread
/// never becomes the owner, and takes the mutex.
#[repr(align(128))] // no two locks share a cache line
pub(crate) struct OwnedLock<T> {
    /// The number of the thread that may enter with a plain store, or [`NOBODY`]. Written under the mutex: a
    /// thread sets its own number, and a thread that tried to revoke the ownership but did not get in restores it.
    owner: AtomicU64,
    /// Whether the thread of the seat is inside, or about to notice that it is no longer the owner.
    inside: [AtomicBool; SEATS],
    /// For threads that do not own the lock.
    mutex: Mutex<Takers>,
    value: UnsafeCell<T>,
}

/// Which threads took the mutex.
pub(crate) struct Takers {
    /// The last thread that took it.
    last: u64,
    /// How often in a row that thread took it.
    streak: u32,
    seats: [Seat; SEATS],
}

/// The thread that holds a seat, for as long as it lives.
#[derive(Default)]
struct Seat {
    thread: u64,
    life: Option<Life>,
}

// SAFETY: Only a `Guard` gives access to the value, and there is one at a time: see `lock` and `take`. So this is
// `Sync` as `Mutex` is.
unsafe impl<T: Send> Sync for OwnedLock<T> {}

// As for `Mutex`, which reports a panic by poison. This lock need not: no user code runs under it, so its value stays
// consistent.
impl<T> UnwindSafe for OwnedLock<T> {}
impl<T> RefUnwindSafe for OwnedLock<T> {}

/// The lock is held while this lives.
pub(crate) struct Guard<'a, T, E = Entered<'a>> {
    lock: &'a OwnedLock<T>,
    entered: E,
    /// An owner leaves on the thread on which it entered.
    not_send: PhantomData<*const ()>,
}

/// A guard of the owner, whose drop need not find out how the lock was taken.
pub(crate) type OwnerGuard<'a, T> = Guard<'a, T, AsOwner<'a>>;

pub(crate) enum Entered<'a> {
    AsOwner { _owner: AsOwner<'a> },
    Taking { _takers: MutexGuard<'a, Takers> },
}

/// The flag of the owner in `inside`, which is set while this lives.
pub(crate) struct AsOwner<'a>(&'a AtomicBool);

impl<T: Default> Default for OwnedLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> OwnedLock<T> {
    /// The first thread to lock it becomes its owner.
    pub(crate) fn new(value: T) -> Self {
        let takers = Takers { last: 0, streak: STREAK, seats: Default::default() };
        Self {
            owner: AtomicU64::new(NOBODY),
            inside: Default::default(),
            mutex: Mutex::new(takers),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock and takes it.
    ///
    /// # Panics
    /// If this thread already holds the lock as its owner.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let me = thread_number();
        match self.enter(me) {
            Some(guard) => guard.into(),
            None => self.take(me, self.wait_for_mutex()),
        }
    }

    /// Like [`lock`](Self::lock), but does not sleep longer than necessary: for threads that hold other locks, too.
    pub(crate) fn lock_soon(&self) -> Guard<'_, T> {
        let me = thread_number();
        self.enter(me).map_or_else(|| self.take(me, lock(&self.mutex)), Guard::from)
    }

    /// Takes the lock unless a thread holds it, this one included.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let me = thread_number();
        // First, whoever the owner is: another thread may be about to give this one its ownership back.
        if self.inside[seat_of(me)].load(Ordering::Relaxed) {
            return None;
        }
        self.enter(me).map(Guard::from).or_else(|| self.try_take(me))
    }

    /// Takes the lock if this thread owns it, unless this thread already holds it.
    #[inline(always)]
    pub(crate) fn try_lock_owned(&self) -> Option<OwnerGuard<'_, T>> {
        let me = known_thread_number();
        if self.owner.load(Ordering::Relaxed) != me {
            return None;
        }
        let inside = &self.inside[seat_of(me)];
        if inside.load(Ordering::Relaxed) { None } else { self.enter_as_owner(me, inside) }
    }

    /// Takes the lock if this thread owns it.
    ///
    /// # Panics
    /// If this thread already holds the lock as its owner.
    #[inline(always)]
    pub(crate) fn lock_owned(&self) -> Option<OwnerGuard<'_, T>> {
        self.enter(known_thread_number())
    }

    /// Enters if this thread is the owner.
    #[inline(always)]
    fn enter(&self, me: u64) -> Option<OwnerGuard<'_, T>> {
        if self.owner.load(Ordering::Relaxed) != me {
            return None;
        }
        let inside = &self.inside[seat_of(me)];
        assert!(!inside.load(Ordering::Relaxed), "locked twice by one thread");
        self.enter_as_owner(me, inside)
    }

    /// Enters if this thread, which was the owner just now and is not inside, still is the owner.
    #[inline(always)]
    fn enter_as_owner<'a>(&'a self, me: u64, inside: &'a AtomicBool) -> Option<OwnerGuard<'a, T>> {
        inside.store(true, Ordering::Relaxed);
        // This orders the compiler only. The processor may still perform the check before the store. The barrier in
        // `take` makes up for that: a check before the barrier means that the store is before it too, and a check
        // after the barrier finds another owner.
        barrier::of_this_thread();
        if self.owner.load(Ordering::Relaxed) == me {
            return Some(self.guard(AsOwner(inside)));
        }
        inside.store(false, Ordering::Release);
        None
    }

    /// Takes the lock as a thread that does not own it, unless a thread holds it.
    #[cold]
    fn try_take(&self, me: u64) -> Option<Guard<'_, T>> {
        let takers = try_lock(&self.mutex)?;
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != NOBODY && owner != me {
            let inside = &self.inside[seat_of(owner)];
            // Checked without a barrier first, since that is a system call.
            if inside.load(Ordering::Relaxed) {
                return None;
            }
            self.owner.store(NOBODY, Ordering::Relaxed);
            barrier::of_process();
            if inside.load(Ordering::Acquire) {
                // The owner entered just now and keeps its ownership. This thread has the mutex, so no other thread has
                // entered.
                self.owner.store(owner, Ordering::Relaxed);
                return None;
            }
        }
        Some(self.taken(me, takers))
    }

    /// Takes the lock as a thread that does not own it.
    #[cold]
    fn take<'a>(&'a self, me: u64, takers: MutexGuard<'a, Takers>) -> Guard<'a, T> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != NOBODY && owner != me {
            // This thread has the mutex, so no other thread becomes the owner meanwhile.
            self.owner.store(NOBODY, Ordering::Relaxed);
            barrier::of_process();
            let inside = &self.inside[seat_of(owner)];
            let mut waiting = Waiting::default();
            while inside.load(Ordering::Acquire) {
                waiting.pause();
            }
        }
        self.taken(me, takers)
    }

    /// Enters with the mutex, when no other thread is the owner and none is inside.
    fn taken<'a>(&'a self, me: u64, mut takers: MutexGuard<'a, Takers>) -> Guard<'a, T> {
        // This thread may have been the owner all along, and have checked while another thread tried to revoke that.
        if self.owner.load(Ordering::Relaxed) == me || takers.may_own(me) {
            let inside = &self.inside[seat_of(me)];
            inside.store(true, Ordering::Relaxed);
            self.owner.store(me, Ordering::Relaxed);
            return self.guard(Entered::AsOwner { _owner: AsOwner(inside) });
        }
        self.guard(Entered::Taking { _takers: takers })
    }

    #[inline(always)]
    fn guard<E>(&self, entered: E) -> Guard<'_, T, E> {
        Guard { lock: self, entered, not_send: PhantomData }
    }

    /// Takes the mutex. While another thread has it, this one checks less and less often and sleeps in between, without
    /// being woken. So if threads do nothing but allocate, one of them runs at full speed, and its processor's caches
    /// stay warm.
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

/// How long a thread has been waiting.
#[derive(Default)]
struct Waiting {
    pauses: u32,
    naps: u32,
}

impl Waiting {
    /// First some spin-loop hints, then a sleep: a thread that only yielded would starve threads of lower priority.
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
    /// Counts a thread that took the mutex. Returns whether it took it often enough to become the owner and holds its
    /// seat.
    fn may_own(&mut self, thread: u64) -> bool {
        self.streak = if self.last == thread || self.last == 0 { self.streak.saturating_add(1) } else { 0 };
        self.last = thread;
        if self.streak <= STREAK || !barrier::is_possible() {
            return false;
        }
        self.streak = 0;
        let seat = &mut self.seats[seat_of(thread)];
        if seat.thread != thread && seat.life.as_ref().is_none_or(Life::is_over) {
            // The last write of the seat's former thread happens before the writes of this one.
            *seat = Seat { thread, life: thread_life() };
        }
        seat.thread == thread && seat.life.as_ref().is_some_and(|life| !life.is_over())
    }
}

impl<T, E> Deref for Guard<'_, T, E> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: The guard holds the lock, so no other thread accesses the value, and the borrow does not outlive the
        // guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, E> DerefMut for Guard<'_, T, E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: As in `deref`; the guard is borrowed mutably, so no other reference exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<'a, T> From<OwnerGuard<'a, T>> for Guard<'a, T> {
    #[inline]
    fn from(OwnerGuard { lock, entered, .. }: OwnerGuard<'a, T>) -> Self {
        lock.guard(Entered::AsOwner { _owner: entered })
    }
}

impl Drop for AsOwner<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
