//! Buffers as arguments for cudarc's kernels, copies and libraries.
#![allow(unsafe_code)] // cudarc's traits for arguments

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use accelerator_core::{Buffer, BufferUse, Device, Error, Result, Stream, element_count};
use bytemuck::{AnyBitPattern, NoUninit};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream as CudarcStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
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
            _used: BufferUse,
            buffer: PhantomData<($($borrowed)+ Buffer<Cuda>, T)>,
        }

        impl<'a, T: DeviceRepr $(+ $element)+> $view<'a, T> {
            /// Makes a view of the buffer for work on this stream, and records the stream's use. cudarc may also use
            /// the view on another stream: that stream then first waits for this one, and the host waits for it
            /// afterwards. Kernels are not covered by this, but launching them is unsafe anyway.
            ///
            /// # Errors
            /// [`Error::ElementSize`] if the length is not a whole number of elements; [`Error::DeviceMismatch`];
            /// [`Error::Driver`].
            pub fn new(buffer: $($borrowed)+ Buffer<Cuda>, stream: Stream<Cuda>) -> Result<Self> {
                let len = element_count::<T>(buffer.len())?;
                let used = buffer.begin_use(stream)?;
                let address = buffer.ptr().map_or(0, |ptr| ptr.native());
                let stream = for_cudarc(stream, buffer.device())?;
                Ok(Self { address, len, stream, _used: used, buffer: PhantomData })
            }

            /// Returns its stream for cudarc, to launch kernels on.
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

        // SAFETY: The argument is a device address, as the kernel expects, and lives as long as the view.
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

// SAFETY: As for the shared view, but borrowed mutably.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaViewMut<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b mut CudaViewMut<'_, T>) -> &mut Self {
        self.arg(&view.address)
    }
}

/// Orders work on `used` after the work on the recorded stream, and ensures that it is done before the buffer can be
/// reused. If both streams are the same, neither needs anything.
fn done_by<'a>(noted: &CudarcStream, used: &'a CudarcStream) -> SyncOnDrop<'a> {
    if noted.cu_stream() == used.cu_stream() && noted.context() == used.context() {
        return SyncOnDrop::Record(None);
    }
    if used.join(noted).is_err() {
        let _ = noted.synchronize(); // if this fails too, the work itself reports it
    }
    SyncOnDrop::sync_stream(used)
}

fn for_cudarc(stream: Stream<Cuda>, device: Device) -> Result<Arc<CudarcStream>> {
    cudarc_stream(stream).map_err(|source| Error::Driver { device, source })
}
