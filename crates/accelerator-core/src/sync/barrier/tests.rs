//! What happens where the system refuses membarrier(2). A filter for system calls stands for a sandbox. Filters cannot
//! be removed, so each is installed in a process of its own: this test program, run again for one test.
#![allow(unsafe_code)] // system calls

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io, mem, ptr, thread};

use super::linux::{BARRIER, REGISTER, VARIABLE};
use super::*;
use crate::sync::OwnedLock;

/// Set in the process that is to be in a sandbox.
const INSIDE: &str = "ACCELERATOR_TEST_SANDBOX";

/// What the kernel does with the call: a fault of the system that it returns to the process, or the end of the process.
const REFUSES: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const FORBIDS: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const KILLS: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Makes the kernel answer membarrier(2) with one of the commands so, on all threads of this process.
fn enter_sandbox(answer: u32, commands: libc::c_int) -> io::Result<()> {
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let first_argument = mem::offset_of!(libc::seccomp_data, args) as u32;
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 3),
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, first_argument, 0), // its lower half, the command
        step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, commands as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, answer, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: The call takes integers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: The program has as many steps as it says, and the kernel copies them.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, ptr::from_ref(&program)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs this test again in another process. Returns `None` in that process, which is to enter the sandbox.
fn elsewhere(test: &str, variable: Option<&str>) -> Option<ExitStatus> {
    if env::var_os(INSIDE).is_some() {
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("sync::barrier::tests::{test}")]).env(INSIDE, "1").env_remove(VARIABLE);
    command.envs(variable.map(|value| (VARIABLE, value)));
    Some(command.output().unwrap().status)
}

/// One thread locks so often that it owns the lock where it can, and another takes that away so many times.
fn take_turns(lock: &OwnedLock<u64>, visits: u64) -> u64 {
    fn add_one(lock: &OwnedLock<u64>) {
        let mut count = lock.lock();
        let before = *count;
        (0..std::hint::black_box(3)).for_each(|_| std::hint::spin_loop());
        *count = before + 1;
    }

    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let regular = scope.spawn(|| {
            let mut locked = 0;
            while !done.load(Ordering::Relaxed) {
                add_one(lock);
                locked += 1;
            }
            locked
        });
        for _ in 0..visits {
            add_one(lock);
            thread::sleep(Duration::from_micros(60));
        }
        done.store(true, Ordering::Relaxed);
        regular.join().unwrap() + visits
    })
}

#[test]
fn where_the_call_does_not_exist_no_thread_owns_a_lock() {
    if let Some(status) = elsewhere("where_the_call_does_not_exist_no_thread_owns_a_lock", None) {
        return assert!(status.success(), "{status}");
    }
    enter_sandbox(REFUSES, BARRIER | REGISTER).unwrap();
    assert!(!is_possible());
    let lock = OwnedLock::new(0);
    let added = take_turns(&lock, 1000);
    assert_eq!(*lock.lock(), added);
    assert!(lock.lock_owned().is_none());
}

#[test]
fn nothing_is_lost_when_the_call_is_refused_later() {
    if let Some(status) = elsewhere("nothing_is_lost_when_the_call_is_refused_later", None) {
        return assert!(status.success(), "{status}");
    }
    refuse_while_a_lock_is_owned(BARRIER | REGISTER);
}

#[test]
fn nothing_is_lost_when_only_the_barrier_is_refused_later() {
    if let Some(status) = elsewhere("nothing_is_lost_when_only_the_barrier_is_refused_later", None) {
        return assert!(status.success(), "{status}");
    }
    refuse_while_a_lock_is_owned(BARRIER);
}

fn refuse_while_a_lock_is_owned(commands: libc::c_int) {
    if !is_possible() {
        return; // the system of this test has none to refuse
    }
    let lock = OwnedLock::new(0);
    let before = take_turns(&lock, 1000);
    // This thread owns the lock when another comes.
    (0..1000).for_each(|_| drop(lock.lock()));
    assert!(lock.lock_owned().is_some());
    enter_sandbox(FORBIDS, commands).unwrap();
    assert!(is_possible(), "it is not asked again before a barrier is needed");
    let after = take_turns(&lock, 1000);
    assert!(!is_possible());
    assert_eq!(*lock.lock(), before + after);
    (0..1000).for_each(|_| drop(lock.lock()));
    assert!(lock.lock_owned().is_none(), "nobody owns a lock any more");
}

#[test]
fn a_sandbox_that_kills_ends_the_process() {
    if let Some(status) = elsewhere("a_sandbox_that_kills_ends_the_process", None) {
        return assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
    }
    enter_sandbox(KILLS, BARRIER | REGISTER).unwrap();
    drop(OwnedLock::new(0).lock());
}

#[test]
fn with_the_variable_a_sandbox_that_kills_has_no_reason_to() {
    if let Some(status) = elsewhere("with_the_variable_a_sandbox_that_kills_has_no_reason_to", Some("0")) {
        return assert!(status.success(), "{status}");
    }
    enter_sandbox(KILLS, BARRIER | REGISTER).unwrap();
    let lock = OwnedLock::new(0);
    let added = take_turns(&lock, 1000);
    assert_eq!(*lock.lock(), added);
    assert!(!is_possible());
}
