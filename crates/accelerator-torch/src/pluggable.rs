//! PyTorch's pluggable allocator, where no part for its version can be compiled. It calls functions with C's interface,
//! and expects errors as exceptions of C++, which are made here from PyTorch's own functions.
#![allow(unsafe_code)] // exported functions

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::boundary::{DONE, OUT_OF_MEMORY, accelerator_torch_last_error};
use crate::devices::accelerator_torch_start;
use crate::memory::{
    accelerator_torch_raw_allocate, accelerator_torch_raw_free, accelerator_torch_record_use,
    accelerator_torch_segment_at,
};
use crate::pools::{PoolNumber, accelerator_torch_empty_cache};
use crate::statistics::accelerator_torch_set_memory_fraction;

/// C++'s `c10::SourceLocation`.
#[repr(C)]
pub struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// C++'s `std::string`, whose characters are elsewhere.
#[repr(C)]
pub struct Text {
    characters: *mut c_char,
    len: usize,
    capacity: usize,
    unused: usize,
}

/// Functions of PyTorch and of C++'s library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Exceptions {
    /// `c10::detail::torchCheckFail(const char*, const char*, uint32_t, const char*)`, which throws `c10::Error`.
    fail: unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char) -> !,
    /// `c10::Error::Error(c10::SourceLocation, std::string)`.
    construct: unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut Text),
    /// `typeid(c10::OutOfMemoryError)`, a class with the fields of `c10::Error`.
    kind: usize,
    /// The table of the virtual functions of that class, which its objects begin with the address of.
    functions: usize,
    /// `__cxa_allocate_exception`.
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    /// `__cxa_throw`.
    throw: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !,
    /// `operator new(std::size_t)`.
    new: unsafe extern "C-unwind" fn(usize) -> *mut c_void,
}

static EXCEPTIONS: OnceLock<Exceptions> = OnceLock::new();

/// What PyTorch's message about an error names as the place of the error.
const PLACE: &CStr = c"accelerator";

/// As [`accelerator_torch_start`], with functions of PyTorch.
///
/// # Safety
/// As for [`accelerator_torch_start`], and the functions are those that [`Exceptions`] names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pluggable_start(
    settings: *const c_char,
    exceptions: *const Exceptions,
) -> c_int {
    extern "C" fn nothing_to_free() -> bool {
        false
    }
    // SAFETY: The caller's promise.
    EXCEPTIONS.get_or_init(|| unsafe { *exceptions });
    // SAFETY: The caller's promise. The function may be called from any thread.
    unsafe { accelerator_torch_start(settings, nothing_to_free) }
}

/// Throws the last error of this thread, unless the status of its last call is that there is none.
fn check(status: c_int) {
    if status != DONE {
        throw(status);
    }
}

#[cold]
fn throw(status: c_int) -> ! {
    let Some(exceptions) = EXCEPTIONS.get() else { std::process::abort() };
    let text = accelerator_torch_last_error();
    if status == OUT_OF_MEMORY {
        // SAFETY: The text ends in a zero byte.
        let text = unsafe { CStr::from_ptr(text) };
        // SAFETY: These are the functions that `Exceptions` names.
        unsafe { throw_out_of_memory(exceptions, text) }
    }
    // SAFETY: As above.
    unsafe { (exceptions.fail)(PLACE.as_ptr(), PLACE.as_ptr(), 0, text) }
}

/// Throws `c10::OutOfMemoryError`.
///
/// # Safety
/// The functions are those that [`Exceptions`] names.
unsafe fn throw_out_of_memory(exceptions: &Exceptions, text: &CStr) -> ! {
    /// More than any version of the class needs.
    const SIZE: usize = 1024;
    let bytes = text.to_bytes_with_nul();
    // SAFETY: The caller's promise.
    let characters = unsafe { (exceptions.new)(bytes.len()) }.cast::<c_char>();
    // SAFETY: The new memory has this size. C++ frees it.
    unsafe { characters.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    let mut text = Text { characters, len: bytes.len() - 1, capacity: bytes.len() - 1, unused: 0 };
    // SAFETY: The caller's promise. The function does not return null.
    let exception = unsafe { (exceptions.allocate)(SIZE) };
    let place = SourceLocation { function: PLACE.as_ptr(), file: PLACE.as_ptr(), line: 0 };
    // SAFETY: The caller's promise. The exception has enough memory, and takes the text over.
    unsafe { (exceptions.construct)(exception, place, &mut text) };
    // Older versions of PyTorch export no constructor of the class, so that of its base has to do.
    // SAFETY: The caller's promise. An object begins with this address, and the classes differ in nothing else.
    unsafe { exception.cast::<usize>().write(exceptions.functions) };
    // SAFETY: The caller's promise. The first virtual function of an exception destroys it.
    let destructor = unsafe { ptr::with_exposed_provenance::<*const c_void>(exceptions.functions).read() };
    // SAFETY: The caller's promise. This is the kind of the exception.
    unsafe { (exceptions.throw)(exception, ptr::with_exposed_provenance(exceptions.kind), destructor) }
}

/// Allocates memory. PyTorch: `alloc_fn`.
///
/// # Safety
/// `stream` is PyTorch's stream of this device.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accelerator_torch_pluggable_allocate(
    size: usize,
    index: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let mut address = 0;
    // SAFETY: The caller's promise.
    check(unsafe { accelerator_torch_raw_allocate(size, index, stream, &mut address) });
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Frees memory. PyTorch: `free_fn`.
///
/// # Safety
/// It came from [`accelerator_torch_pluggable_allocate`], and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pluggable_free(
    address: *mut c_void,
    _size: usize,
    _index: c_int,
    _stream: *mut c_void,
) {
    // SAFETY: The caller's promise.
    unsafe { accelerator_torch_raw_free(address.addr() as u64) };
}

/// Notes that a stream uses memory. PyTorch: `set_record_stream_fn`.
///
/// # Safety
/// As for [`accelerator_torch_record_use`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accelerator_torch_pluggable_record_use(address: *mut c_void, stream: *mut c_void) {
    // SAFETY: The caller's promise.
    check(unsafe { accelerator_torch_record_use(address.addr() as u64, stream) });
}

/// Gives free memory back to the driver. PyTorch: `set_reset_fn`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn accelerator_torch_pluggable_empty_cache() {
    check(accelerator_torch_empty_cache(PoolNumber::NONE));
}

/// Limits the memory. PyTorch: `set_memory_fraction_fn`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn accelerator_torch_pluggable_set_memory_fraction(fraction: f64, index: c_int) {
    check(accelerator_torch_set_memory_fraction(index, fraction));
}

/// Returns the start of the segment that contains an address, and writes its size. PyTorch: `set_base_alloc_fn`.
///
/// # Safety
/// `size` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelerator_torch_pluggable_base(address: *mut c_void, size: *mut usize) -> *mut c_void {
    let segment = accelerator_torch_segment_at(address.addr() as u64);
    if !size.is_null() {
        // SAFETY: The caller's promise.
        unsafe { size.write(segment.size as usize) };
    }
    ptr::with_exposed_provenance_mut(segment.start as usize)
}

/// Refuses to send requests to a pool, which graphs need: PyTorch passes a function object of C++. PyTorch:
/// `set_begin_allocate_to_pool`.
///
/// # Safety
/// [`accelerator_torch_pluggable_start`] was called.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accelerator_torch_pluggable_refuse_pool() {
    let Some(exceptions) = EXCEPTIONS.get() else { std::process::abort() };
    let text = c"graphs and pools need the part of accelerator_alloc for this PyTorch: install a C++ compiler";
    // SAFETY: This is the function that `Exceptions` names, and the texts end in a zero byte.
    unsafe { (exceptions.fail)(PLACE.as_ptr(), PLACE.as_ptr(), 0, text.as_ptr()) }
}
