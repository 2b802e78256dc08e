//! Out-parameters of C functions.

use std::ffi::c_char;
use std::mem::MaybeUninit;

/// Where a call stores a result: a C pointer, with null as `None`.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Stores a result that the caller may not want.
pub fn put<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Writes as much of a string as fits, followed by a zero byte. Writes nothing if there is no room.
///
/// # Safety
///
/// * `place` has room for `length` bytes.
pub unsafe fn put_text(place: *mut c_char, length: usize, text: &str) {
    let Some(room) = length.checked_sub(1) else { return };
    let (place, used) = (place.cast::<u8>(), room.min(text.len()));
    // SAFETY: at most the room less one byte.
    unsafe { place.copy_from(text.as_ptr(), used) };
    // SAFETY: that remaining byte.
    unsafe { place.wrapping_add(used).write(0) };
}
