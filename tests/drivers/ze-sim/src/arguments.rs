//! Arguments from C: handles, pointers and arrays, with the checks that the specification requires of every function
//! that accepts them.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use level_zero_sys::*;

use crate::result::{Outcome, Refusal};

/// An argument in the form that a function's implementation needs, converted from the form that C passes.
pub(crate) trait Argument: Sized {
    type Raw: Copy;

    /// # Safety
    ///
    /// * `raw` is the argument that the caller of an API function passed. Each pointer is null, or valid for what the
    ///   function reads or writes there until it returns.
    unsafe fn take(raw: Self::Raw) -> Outcome<Self>;

    /// Returns the handle that was passed, if the argument is one.
    fn handle(_raw: Self::Raw) -> Option<usize> {
        None
    }
}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        impl Argument for $type {
            type Raw = Self;

            unsafe fn take(raw: Self) -> Outcome<Self> {
                Ok(raw)
            }
        }
    )*};
}

plain!(u8, u32, u64, usize, ze_memory_access_attribute_t);

/// A handle that must not be null: one of the driver's numbers, typed by the kind of object.
pub(crate) struct Object<T> {
    pub(crate) number: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Object<T> {}

impl<T> Object<T> {
    pub(crate) fn new(number: usize) -> Self {
        Self { number, kind: PhantomData }
    }

    /// Returns `None` for null.
    pub(crate) fn from_raw(raw: *mut T) -> Option<Self> {
        (!raw.is_null()).then(|| Self::new(raw.addr()))
    }

    /// Returns the pointer that the program uses as the handle.
    pub(crate) fn raw(self) -> *mut T {
        std::ptr::without_provenance_mut(self.number)
    }
}

impl<T> Argument for Object<T> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Outcome<Self> {
        Self::from_raw(raw).ok_or(Refusal::INVALID_NULL_HANDLE)
    }

    fn handle(raw: *mut T) -> Option<usize> {
        Some(raw.addr())
    }
}

impl<T> Argument for Option<Object<T>> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Outcome<Self> {
        Ok(Object::from_raw(raw))
    }

    fn handle(raw: *mut T) -> Option<usize> {
        Some(raw.addr())
    }
}

pub(crate) type DriverHandle = Object<_ze_driver_handle_t>;
pub(crate) type DeviceHandle = Object<_ze_device_handle_t>;
pub(crate) type ContextHandle = Object<_ze_context_handle_t>;
pub(crate) type QueueHandle = Object<_ze_command_queue_handle_t>;
pub(crate) type ListHandle = Object<_ze_command_list_handle_t>;
pub(crate) type FenceHandle = Object<_ze_fence_handle_t>;
pub(crate) type PoolHandle = Object<_ze_event_pool_handle_t>;
pub(crate) type EventHandle = Object<_ze_event_handle_t>;
pub(crate) type ModuleHandle = Object<_ze_module_handle_t>;
pub(crate) type BuildLogHandle = Object<_ze_module_build_log_handle_t>;
pub(crate) type KernelHandle = Object<_ze_kernel_handle_t>;
pub(crate) type PhysicalHandle = Object<_ze_physical_mem_handle_t>;

/// An uninitialized place for a result.
pub(crate) struct Place<'a, T>(&'a mut MaybeUninit<T>);

impl<T> Place<'_, T> {
    pub(crate) fn put(self, value: T) {
        self.0.write(value);
    }
}

impl<T> Argument for Place<'_, T> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Outcome<Self> {
        // SAFETY: The pointer is null, or valid for what the function writes. `MaybeUninit` requires no value there.
        let place = unsafe { raw.cast::<MaybeUninit<T>>().as_mut() };
        place.map(Place).ok_or(Refusal::INVALID_NULL_POINTER)
    }
}

impl<T> Argument for Option<Place<'_, T>> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Outcome<Self> {
        // SAFETY: as above.
        let place = unsafe { raw.cast::<MaybeUninit<T>>().as_mut() };
        Ok(place.map(Place))
    }
}

/// A value that the function reads.
impl<T> Argument for &T {
    type Raw = *const T;

    unsafe fn take(raw: *const T) -> Outcome<Self> {
        // SAFETY: The pointer is null, or valid for what the function reads.
        let value = unsafe { raw.as_ref() };
        value.ok_or(Refusal::INVALID_NULL_POINTER)
    }
}

/// A value that the function reads and writes.
impl<T> Argument for &mut T {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Outcome<Self> {
        // SAFETY: The pointer is null, or valid for what the function reads and writes.
        let value = unsafe { raw.as_mut() };
        value.ok_or(Refusal::INVALID_NULL_POINTER)
    }
}

/// An address for the device, which must not be null. `P` is the pointer's C type.
pub(crate) struct Address<P> {
    pub(crate) value: u64,
    kind: PhantomData<P>,
}

/// A pointer with its C type.
pub(crate) trait Pointer: Copy {
    fn value(self) -> u64;
}

impl<T> Pointer for *const T {
    fn value(self) -> u64 {
        // The program may have written there, so the address may be dereferenced later.
        self.expose_provenance() as u64
    }
}

impl<T> Pointer for *mut T {
    fn value(self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<P: Pointer> Argument for Address<P> {
    type Raw = P;

    unsafe fn take(raw: P) -> Outcome<Self> {
        match raw.value() {
            0 => Err(Refusal::INVALID_NULL_POINTER),
            value => Ok(Self { value, kind: PhantomData }),
        }
    }
}

impl<P: Pointer> Argument for Option<Address<P>> {
    type Raw = P;

    unsafe fn take(raw: P) -> Outcome<Self> {
        let value = raw.value();
        Ok((value != 0).then_some(Address { value, kind: PhantomData }))
    }
}

/// An array whose length is another argument. `P` is its C type.
#[derive(Clone, Copy)]
pub(crate) struct Array<P>(P);

impl<P: Copy> Argument for Array<P> {
    type Raw = P;

    unsafe fn take(raw: P) -> Outcome<Self> {
        Ok(Self(raw))
    }
}

impl<T> Array<*const T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the elements, or an empty slice for null.
    ///
    /// # Safety
    ///
    /// * `count` is at most the length that the function's caller passed.
    pub(crate) unsafe fn items<'a>(self, count: usize) -> &'a [T] {
        if self.0.is_null() {
            return &[];
        }
        // SAFETY: The pointer is not null, so it is valid for that many elements until the function returns.
        unsafe { std::slice::from_raw_parts(self.0, count) }
    }
}

impl<T> Array<*mut T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the elements, or an empty slice for null.
    ///
    /// # Safety
    ///
    /// * As for `Array<*const T>`.
    pub(crate) unsafe fn items<'a>(self, count: usize) -> &'a [T] {
        // SAFETY: the same promise.
        unsafe { Array(self.0.cast_const()).items(count) }
    }

    /// Implements the API's two-step enumeration. Without room, sets `count` to the number of values. Otherwise writes
    /// as many values as fit and sets `count` to their number.
    ///
    /// # Safety
    ///
    /// * `count` is the array's length argument.
    pub(crate) unsafe fn answer(self, count: &mut u32, values: impl ExactSizeIterator<Item = T>) {
        // SAFETY: the same promise.
        unsafe { self.answer_with(count, values, |place, value| *place = value) };
    }

    /// Like [`Self::answer`], for elements that are filled in place.
    ///
    /// # Safety
    ///
    /// * As for [`Self::answer`].
    pub(crate) unsafe fn answer_with<V>(
        self,
        count: &mut u32,
        values: impl ExactSizeIterator<Item = V>,
        mut fill: impl FnMut(&mut T, V),
    ) {
        let all = values.len() as u32;
        if *count == 0 || self.0.is_null() {
            *count = all;
            return;
        }
        *count = all.min(*count);
        for (index, value) in values.take(*count as usize).enumerate() {
            let place = self.0.wrapping_add(index);
            // SAFETY: there is room for the elements that the caller counted.
            let place = unsafe { &mut *place };
            fill(place, value);
        }
    }
}

impl Array<*const std::ffi::c_void> {
    /// Returns the bytes, or an empty slice for null.
    ///
    /// # Safety
    ///
    /// * `count` is at most the number of bytes that the function's caller passed.
    pub(crate) unsafe fn bytes<'a>(self, count: usize) -> &'a [u8] {
        // SAFETY: the same promise.
        unsafe { Array(self.0.cast::<u8>()).items(count) }
    }
}

impl Array<*mut std::ffi::c_char> {
    /// Implements the API's two-step string query. Sets `bytes` to the size of the string including its final zero, and
    /// writes as much of the string as fits.
    ///
    /// # Safety
    ///
    /// * `bytes` is the array's size argument.
    pub(crate) unsafe fn answer_text(self, bytes: &mut usize, text: &str) {
        if !self.0.is_null() {
            // SAFETY: The pointer is not null, so there is room for as many bytes as the caller states.
            unsafe { sim_engine::out::put_text(self.0, *bytes, text) };
        }
        *bytes = text.len() + 1;
    }
}
