//! Results of calls in places that C gives.

use std::ffi::c_char;
use std::mem::MaybeUninit;

/// Where a call puts a result: C's pointer, null as `None`.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// A result that the caller may do without.
pub fn put<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Writes as much of a text as there is room for, and a zero behind it; nothing into no room.
///
/// # Safety
///
/// * `place` has room for `length` bytes.
pub unsafe fn put_text(place: *mut c_char, length: usize, text: &str) {
    let Some(room) = length.checked_sub(1) else { return };
    let (place, used) = (place.cast::<u8>(), room.min(text.len()));
    // SAFETY: no more than the room, one byte of it spared.
    unsafe { place.copy_from(text.as_ptr(), used) };
    // SAFETY: that byte.
    unsafe { place.wrapping_add(used).write(0) };
}
