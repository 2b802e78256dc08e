//! Kernels: closures over typed views of buffers, run on a stream.

use accelerator_core::{
    Buffer, BufferUse, DriverResult, Error, Operator, OperatorKind, Result, Slice, SliceMut, Stream, report_operator,
};
use bytemuck::{AnyBitPattern, NoUninit};

use crate::access::Touched;
use crate::host::Host;
use crate::memory::HostPtr;

/// Runs `kernel` on `stream`, asynchronously, over the elements of `args`: a view made by [`Buffer::slice`] or
/// [`Buffer::slice_mut`], or a tuple of at most six. The kernel gets `&[T]` or `&mut [T]` for each. A kernel that needs
/// no memory takes `()`.
///
/// The use of each buffer is recorded, so a buffer may be dropped right afterwards. If the kernel panics, the next
/// synchronize of the stream fails; other work goes on. A kernel must not wait for a stream or an event, and must not
/// allocate, because an allocation may wait, and so could wait for the kernel itself.
///
/// # Errors
/// [`Error::DeviceMismatch`] for a buffer of another device than the stream's. [`Error::Driver`] if the stream captures
/// (use [`launch_repeatable`]), and in a process that was forked from the one that opened the device.
pub fn launch<A, K>(stream: Stream<Host>, args: A, kernel: K) -> Result<()>
where
    A: KernelArgs,
    K: for<'k> FnOnce(A::Views<'k>) + Send + 'static,
{
    launch_named(OperatorKind::Launch.name(), stream, args, kernel)
}

/// Runs a kernel as [`launch`] does. Observers of operators, such as the memory tracker, see it under this name instead
/// of `launch`.
///
/// # Errors
/// The errors of [`launch`].
pub fn launch_named<A, K>(name: &'static str, stream: Stream<Host>, args: A, kernel: K) -> Result<()>
where
    A: KernelArgs,
    K: for<'k> FnOnce(A::Views<'k>) + Send + 'static,
{
    let mut used = Used::default();
    let parts = args.prepare(stream, &mut used)?;
    let launched = stream.backend().run(stream.native(), &used.touched, move || {
        // SAFETY: As `prepare` documents. `run` keeps other work on the same bytes apart.
        kernel(unsafe { A::views(&parts) });
    });
    drop(used); // the observers may pause the memory
    report(name, stream, launched)
}

/// Runs a kernel as [`launch`] does, or captures it if the stream captures. A graph runs it at each launch.
///
/// # Errors
/// [`Error::DeviceMismatch`] for a buffer of another device than the stream's; [`Error::Driver`] in a process that was
/// forked from the one that opened the device.
pub fn launch_repeatable<A, K>(stream: Stream<Host>, args: A, kernel: K) -> Result<()>
where
    A: KernelArgs,
    K: for<'k> Fn(A::Views<'k>) + Send + Sync + 'static,
{
    let mut used = Used::default();
    let parts = args.prepare(stream, &mut used)?;
    let launched = stream.backend().run_repeatable(stream.native(), &used.touched, move || {
        // SAFETY: As `prepare` documents. Whoever launches a graph promises that the memory of its work is valid.
        // `run_repeatable` keeps other work on the same bytes apart.
        kernel(unsafe { A::views(&parts) });
    });
    drop(used);
    report(OperatorKind::Launch.name(), stream, launched)
}

fn report(name: &'static str, stream: Stream<Host>, launched: DriverResult<()>) -> Result<()> {
    launched.map_err(|source| Error::Driver { device: stream.device(), source })?;
    report_operator(|| Operator::on(stream, OperatorKind::Launch, 0).named(name));
    Ok(())
}

/// The arguments of a kernel: nothing, a view of a buffer, or a tuple of views. Implemented only here.
pub trait KernelArgs: sealed::Sealed {
    /// What the kernel receives: `&[T]`, `&mut [T]` or a tuple of them.
    type Views<'k>;
    #[doc(hidden)]
    type Parts: Send + Sync + 'static;
    /// Checks the arguments and records their use. The memory behind the parts stays mapped until the stream has
    /// finished the kernel. Either the use of the buffer is recorded, or the buffer was allocated on this stream, and
    /// memory is unmapped only after the work of the stream that freed it. The bytes may belong to another buffer by
    /// then, on any stream and at another address. Two parts share no bytes if one of them is mutable: buffers that
    /// live at the same time have no byte in common, and the mutable view borrowed its buffer exclusively.
    #[doc(hidden)]
    fn prepare(self, stream: Stream<Host>, used: &mut Used) -> Result<Self::Parts>;
    /// # Safety
    /// * The parts are valid for `'k`: for reads, and the mutable ones for writes that nothing else sees.
    #[doc(hidden)]
    unsafe fn views<'k>(parts: &Self::Parts) -> Self::Views<'k>;
}

/// The memory that a kernel uses, which is not paused before the kernel is submitted.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Used {
    touched: Vec<Touched>,
    uses: Vec<BufferUse>,
}

mod sealed {
    pub trait Sealed {}
}

/// The location of the elements of one view.
#[doc(hidden)]
#[derive(Debug)]
pub struct Elements<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: It is an address and a length. `KernelArgs::views` documents how they may be used.
unsafe impl<T> Send for Elements<T> {}

// SAFETY: As above.
unsafe impl<T> Sync for Elements<T> {}

impl<T> Elements<T> {
    fn of(buffer: &Buffer<Host>, written: bool, stream: Stream<Host>, used: &mut Used) -> Result<Self> {
        const { assert!(align_of::<T>() <= 512, "blocks are aligned to 512 bytes") };
        used.uses.push(buffer.begin_use(stream)?);
        let bytes = buffer.len() as usize;
        let start: *mut T = buffer.ptr().map_or(std::ptr::dangling_mut(), |ptr| ptr.as_ptr().cast());
        used.touched.push(Touched::new(HostPtr::new(start.cast()), bytes, written));
        Ok(Self { start, len: bytes / size_of::<T>() })
    }
}

macro_rules! view {
    ($view:ident, $slice:ty, $written:literal, $from_raw_parts:path, $($bound:path),+) => {
        impl<T> sealed::Sealed for $view<'_, Host, T> {}

        impl<T: $($bound +)+> KernelArgs for $view<'_, Host, T> {
            type Views<'k> = $slice;
            type Parts = Elements<T>;

            fn prepare(self, stream: Stream<Host>, used: &mut Used) -> Result<Self::Parts> {
                Elements::of(self.buffer(), $written, stream, used)
            }

            unsafe fn views<'k>(parts: &Self::Parts) -> $slice {
                // SAFETY: The caller promises valid memory. The system's pages are initialized, any bit pattern is a
                // valid `T`, and blocks are aligned to 512 bytes.
                unsafe { $from_raw_parts(parts.start, parts.len) }
            }
        }
    };
}

view!(Slice, &'k [T], false, std::slice::from_raw_parts, AnyBitPattern, Sync);
view!(SliceMut, &'k mut [T], true, std::slice::from_raw_parts_mut, AnyBitPattern, NoUninit, Send);

impl sealed::Sealed for () {}

impl KernelArgs for () {
    type Views<'k> = ();
    type Parts = ();

    fn prepare(self, _: Stream<Host>, _: &mut Used) -> Result<()> {
        Ok(())
    }

    unsafe fn views<'k>((): &()) -> Self::Views<'k> {}
}

macro_rules! tuples {
    ($(($($arg:ident),+))+) => {$(
        impl<$($arg: KernelArgs),+> sealed::Sealed for ($($arg,)+) {}

        impl<$($arg: KernelArgs),+> KernelArgs for ($($arg,)+) {
            type Views<'k> = ($($arg::Views<'k>,)+);
            type Parts = ($($arg::Parts,)+);

            fn prepare(self, stream: Stream<Host>, used: &mut Used) -> Result<Self::Parts> {
                #[expect(non_snake_case, reason = "named by their types")]
                let ($($arg,)+) = self;
                Ok(($($arg.prepare(stream, used)?,)+))
            }

            unsafe fn views<'k>(parts: &Self::Parts) -> Self::Views<'k> {
                #[expect(non_snake_case, reason = "named by their types")]
                let ($($arg,)+) = parts;
                // SAFETY: The caller promises this for each part.
                ($(unsafe { $arg::views($arg) },)+)
            }
        }
    )+};
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }
