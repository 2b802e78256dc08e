//! What the simulated drivers have in common: their controls, and devices that are checked when a trial ends.

use std::ffi::c_char;
use std::ptr;

use accelerator_core::{Accelerator, AllocatorConfig, Backend, Stream};
use libtest_mimic::Failed;

pub(crate) use super::caches::give_back;
use super::process::Outcome;

/// A backend on a simulated driver, with that driver's controls.
pub(crate) trait Simulated: Backend {
    /// The code with which the driver refuses an argument.
    const REFUSED: u32;
    const OUT_OF_MEMORY: u32;

    /// Returns the number of calls so far.
    fn calls() -> u64;
    /// Reseeds the choice among permitted orders.
    fn seed(seed: u64);

    /// Returns the number of calls of this name so far.
    fn calls_of(name: &str) -> u64;
    /// Makes the `n`-th call from now fail with this code.
    fn fail_at(n: u64, code: u32);
    /// Makes the `n`-th call from now fail with this code, and all later ones, or as many as the backend survives.
    fn fail_from(n: u64, code: u32);
    /// Makes the `n`-th call of this name from now fail with this code.
    fn fail(name: &str, n: u64, code: u32);
    /// Cancels the failures that have not happened yet, and returns how many there were.
    fn clear_faults() -> u64;
    /// Keeps a stream's work from running until something waits for it.
    fn hold(stream: Stream<Self>);
    /// Returns the number of live allocations of device memory and of host memory.
    fn live() -> [u64; 2];
    /// Returns the number of reserved ranges, pages, and mappings.
    fn live_virtual() -> [u64; 3];
}

/// Returns the text that a control function writes: into at most so many bytes, of which it returns how many it needs.
pub(crate) fn text_of(write: fn(*mut c_char, usize) -> usize) -> String {
    let mut text = vec![0_u8; write(ptr::null_mut(), 0)];
    write(text.as_mut_ptr().cast(), text.len());
    String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()
}

/// Resolves functions of a library by name, with the types that it documents.
macro_rules! controls {
    (of $library:expr; $($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name($($argument: $kind),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
                let library = &$library;
                // SAFETY: The simulated driver documents this type.
                let function = unsafe { library.get::<Function>($symbol) }.unwrap();
                // SAFETY: It requires no more than its types state, and the strings passed are live.
                unsafe { function($($argument),*) }
            }
        )*
    };
}
pub(crate) use controls;

/// Opens a device again.
pub(crate) fn device_numbered<B: Backend>(ordinal: u32) -> Result<&'static Accelerator<B>, Failed> {
    B::probe()?;
    Ok(Accelerator::new(B::open(ordinal)?, ordinal, AllocatorConfig::default())?)
}

/// Opens the first device again.
pub(crate) fn device<B: Backend>() -> Result<&'static Accelerator<B>, Failed> {
    device_numbered(0)
}

/// Runs the program on the first device and checks that nothing is left.
pub(crate) fn on_a_device<B: Simulated>(program: fn(&'static Accelerator<B>) -> Outcome) -> Outcome {
    let device = device()?;
    program(device)?;
    check_all_gone(device)
}

/// Checks that nothing is left after the caches are emptied.
pub(crate) fn check_all_gone<B: Simulated>(device: &'static Accelerator<B>) -> Outcome {
    give_back(device)?;
    assert_eq!(B::live(), [0, 0], "the simulated driver's own statistics");
    Ok(())
}

/// Checks that no address space, pages or mappings are left.
pub(crate) fn check_nothing_mapped<B: Simulated>() -> Outcome {
    assert_eq!(B::live_virtual(), [0, 0, 0]);
    Ok(())
}
