//! The control functions of the driver that the loader has loaded, which is not the copy linked into this program.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use level_zero_sys::ze_result_t;
use libloading::Library;

use crate::alone;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    // SAFETY: its initialisers have no preconditions.
    unsafe { Library::new(alone::library()) }.unwrap()
});

macro_rules! controls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $symbol:literal;)*) => {$(
        pub(crate) fn $name($($argument: $type),*) -> $result {
            // SAFETY: the README documents this type.
            let function = unsafe { LIBRARY.get::<unsafe extern "C" fn($($type),*) -> $result>($symbol) };
            // SAFETY: it accepts any numbers.
            unsafe { function.unwrap()($($argument),*) }
        }
    )*};
}

controls! {
    fn seed(seed: u64) -> () = b"ze_sim_seed";
    fn fail_at(nth: u64, code: u32) -> () = b"ze_sim_fail_at";
    fn clear_faults() -> u64 = b"ze_sim_clear_faults";
    fn calls() -> u64 = b"ze_sim_calls";
    fn violations() -> u64 = b"ze_sim_violations";
    fn hold(owner: usize) -> u32 = b"ze_sim_hold";
    fn release(owner: usize) -> u32 = b"ze_sim_release";
    fn set_memory(device: u32, bytes: u64) -> u32 = b"ze_sim_set_memory";
    fn reset_lost() -> () = b"ze_sim_reset_lost";
}

/// Returns the number of everything that is live, by name. Zeros are left out.
pub(crate) fn live() -> Vec<(&'static str, u64)> {
    const ALL: [&str; 17] = [
        "allocations",
        "bytes",
        "host",
        "host_bytes",
        "events",
        "pools",
        "lists",
        "queues",
        "fences",
        "contexts",
        "modules",
        "kernels",
        "build_logs",
        "reservations",
        "physical",
        "mappings",
        "",
    ];
    let count = |name: &str| {
        let symbol = format!("ze_sim_live_{name}");
        // SAFETY: the README documents this type.
        let function = unsafe { LIBRARY.get::<unsafe extern "C" fn() -> u64>(symbol.as_bytes()) }.unwrap();
        // SAFETY: it has no arguments.
        unsafe { function() }
    };
    let named = ALL.into_iter().filter(|name| !name.is_empty());
    named.map(|name| (name, count(name))).filter(|(_, count)| *count > 0).collect()
}

pub(crate) fn fail(name: &str, nth: u64, code: ze_result_t) {
    type Function = unsafe extern "C" fn(*const c_char, u64, u32);
    let name = CString::new(name).unwrap();
    // SAFETY: the README documents this type.
    let function = unsafe { LIBRARY.get::<Function>(b"ze_sim_fail") }.unwrap();
    // SAFETY: the name ends with a zero.
    unsafe { function(name.as_ptr(), nth, code.0) };
}

pub(crate) fn calls_of(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    // SAFETY: the README documents this type.
    let function = unsafe { LIBRARY.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"ze_sim_calls_of") }.unwrap();
    // SAFETY: the name ends with a zero.
    unsafe { function(name.as_ptr()) }
}

pub(crate) fn violation_text() -> String {
    type Function = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    // SAFETY: the README documents this type.
    let function = unsafe { LIBRARY.get::<Function>(b"ze_sim_violation_text") }.unwrap();
    // SAFETY: the length is 0.
    let bytes = unsafe { function(std::ptr::null_mut(), 0) };
    let mut text = vec![0u8; bytes];
    // SAFETY: there is room for all of it.
    unsafe { function(text.as_mut_ptr().cast(), bytes) };
    assert_eq!(text.pop(), Some(0));
    String::from_utf8(text).unwrap()
}

/// Checks the violations since `before`, each of which must contain its text.
pub(crate) fn expect_violations(before: u64, texts: &[&str]) {
    let all = violation_text();
    let new: Vec<_> = all.lines().skip(before as usize).collect();
    assert_eq!(violations(), all.lines().count() as u64);
    let fits = new.len() == texts.len() && new.iter().zip(texts).all(|(line, text)| line.contains(text));
    assert!(fits, "expected {texts:?}, found {new:#?}");
}
