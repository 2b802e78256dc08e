//! L, the same memory at two addresses: case 114.
#![allow(unsafe_code)] // `VirtualMemory`, and work on the memory mapped with it

use std::num::NonZeroU64;
use std::ptr::NonNull;

use accelerator_core::{Backend, DevicePtr, DriverResult, MIB, Place};

use super::{Case, Context, Outcome};
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let case = Case::new(114, "conflicting_work_at_two_addresses", conflicting_work);
    vec![case.needs(&[Capability::Bytes, Capability::Aliases, Capability::SerializedConflicts])]
}

/// One stream copies from memory that another stream fills through a second address, repeatedly and without a wait.
/// Each copy must contain the bytes of a single fill.
fn conflicting_work(context: &Context) -> Outcome {
    const COPIES: usize = 32;
    let device = context.device()?;
    let (driver, copying, filling) = (device.backend(), device.default_stream(), device.side_stream()?);
    let Some(memory) = driver.virtual_memory() else {
        return Err("the driver no longer has virtual memory".into());
    };
    let len = NonZeroU64::new((8 * MIB).next_multiple_of(memory.granularity().get())).unwrap_or(NonZeroU64::MIN);
    let both = len.saturating_mul(NonZeroU64::MIN.saturating_add(1));
    let (pages, first) = (memory.create(len)?, memory.reserve(both)?);
    let second = first.offset(len.get());
    let mut copies = vec![vec![0u8; len.get() as usize]; COPIES];
    for at in [first, second] {
        // SAFETY: `at` is one half of the reservation, with nothing mapped.
        unsafe { memory.map(at, &pages) }?;
    }
    // SAFETY: The memory is mapped, and the host waits for the fill below.
    unsafe { driver.fill(first, 1, len, copying.native()) }?;
    copying.synchronize()?;
    let submitted = (2..).zip(&mut copies).try_for_each(|(value, copy)| -> DriverResult<()> {
        let to = Place::Host(NonNull::from(&mut copy[..]).cast());
        // SAFETY: The memory is mapped. The copy has the same length and lives until the host has waited for it.
        unsafe { driver.copy(to, Place::Device(first), len, copying.native()) }?;
        // SAFETY: The memory is mapped, and the host waits for the fill below.
        unsafe { driver.fill(second, value, len, filling.native()) }
    });
    let done = [copying, filling].map(|stream| driver.is_idle(stream.native()));
    device.synchronize()?;
    submitted?;
    let [copied, filled] = done;
    let both_busy = !copied? && !filled?;
    for at in [first, second] {
        // SAFETY: This is a whole mapping, and all work is done.
        unsafe { memory.unmap(at, len) }?;
    }
    // SAFETY: The memory is no longer mapped anywhere.
    unsafe { memory.destroy(pages) };
    // SAFETY: Nothing is mapped there any more.
    unsafe { memory.release(first, both) };
    for (number, copy) in copies.iter().enumerate() {
        assert!(
            copy[1..] == copy[..copy.len() - 1],
            "`serializes_conflicts` is true, but copy {number} ran while a fill changed the same bytes through another \
             address"
        );
    }
    match both_busy {
        true => Ok(()),
        false => Err(Failure::NotAsked("could not ask: one stream was done before the other had all its work".into())),
    }
}
