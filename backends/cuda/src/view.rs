//! Buffers as arguments of cudarc: for kernels, copies and libraries.
#![allow(unsafe_code)] // what cudarc asks of arguments

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use accelerator_core::{Buffer, Device, Error, Result, Stream, element_count};
use bytemuck::{AnyBitPattern, NoUninit};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream as CudarcStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, LaunchArgs, PushKernelArg,
    SyncOnDrop,
};

use crate::cuda::Cuda;
use crate::native::cudarc_stream;

macro_rules! view {
    ($(#[$doc:meta])* $view:ident ($($borrowed:tt)+) of $($element:path),+) => {
        $(#[$doc])*
        pub struct $view<'a, T> {
            address: CUdeviceptr,
            len: usize,
            stream: Arc<CudarcStream>,
            buffer: PhantomData<($($borrowed)+ Buffer<Cuda>, T)>,
        }

        impl<'a, T: DeviceRepr $(+ $element)+> $view<'a, T> {
            /// The buffer for work on this stream, whose use of it is noted. cudarc may use it on another stream, too, which
            /// then waits for this one first, and the host for it afterwards; except for kernels, whose launch is unsafe anyway.
            ///
            /// # Errors
            /// [`Error::ElementSize`] where the length is no whole number of elements; [`Error::DeviceMismatch`],
            /// [`Error::Driver`].
            pub fn new(buffer: $($borrowed)+ Buffer<Cuda>, stream: Stream<Cuda>) -> Result<Self> {
                let len = element_count::<T>(buffer.len())?;
                buffer.record_use(stream)?;
                let address = buffer.ptr().map_or(0, |ptr| ptr.native());
                let stream = for_cudarc(stream, buffer.device())?;
                Ok(Self { address, len, stream, buffer: PhantomData })
            }

            /// Its stream as cudarc has it, to launch kernels on.
            pub fn stream(&self) -> &Arc<CudarcStream> {
                &self.stream
            }
        }

        impl<T> DeviceSlice<T> for $view<'_, T> {
            fn len(&self) -> usize {
                self.len
            }

            fn stream(&self) -> &Arc<CudarcStream> {
                &self.stream
            }
        }

        impl<T> DevicePtr<T> for $view<'_, T> {
            fn device_ptr<'a>(&'a self, stream: &'a CudarcStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                (self.address, done_by(&self.stream, stream))
            }
        }

        // SAFETY: What is pushed is an address on the device, which is what a kernel takes, and lives as long as the view.
        unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b $view<'_, T>> for LaunchArgs<'a> {
            fn arg(&mut self, view: &'b $view<'_, T>) -> &mut Self {
                self.arg(&view.address)
            }
        }

        impl<T> fmt::Debug for $view<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {{ {} elements at {:#x} }}", stringify!($view), self.len, self.address)
            }
        }
    };
}

view! {
    /// A buffer that cudarc reads.
    CudaView (&'a) of AnyBitPattern
}
view! {
    /// A buffer that cudarc reads and writes.
    CudaViewMut (&'a mut) of AnyBitPattern, NoUninit
}

impl<T> DevicePtrMut<T> for CudaViewMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudarcStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        (self.address, done_by(&self.stream, stream))
    }
}

// SAFETY: As for the shared view; it is borrowed mutably.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaViewMut<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b mut CudaViewMut<'_, T>) -> &mut Self {
        self.arg(&view.address)
    }
}

/// Puts work on `used` behind that on the stream that was noted, and makes it be done before the buffer can be reused: both
/// come by themselves where the two are one.
fn done_by<'a>(noted: &CudarcStream, used: &'a CudarcStream) -> SyncOnDrop<'a> {
    if noted.cu_stream() == used.cu_stream() && noted.context() == used.context() {
        return SyncOnDrop::Record(None);
    }
    if used.join(noted).is_err() {
        let _ = noted.synchronize(); // what fails here, too, is told by the work itself
    }
    SyncOnDrop::sync_stream(used)
}

fn for_cudarc(stream: Stream<Cuda>, device: Device) -> Result<Arc<CudarcStream>> {
    cudarc_stream(stream).map_err(|source| Error::Driver { device, source })
}
