//! Work that was submitted to devices, told to those who ask for it. PyTorch: `TorchDispatchMode`, at the level of a device.

use std::cell::Cell;
use std::sync::Arc;

use crate::backend::Backend;
use crate::stream::Stream;
use crate::sync::{Callbacks, HookId};
use crate::types::{Device, StreamId};

/// One piece of work that a device was given.
///
/// What asks nothing of a device is none: an allocation that fails, and work on zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operator {
    /// What it does.
    pub kind: OperatorKind,
    /// What it is called: that of its kind, unless whoever submitted it [named](Self::named) it.
    pub name: &'static str,
    /// The device. Of a copy between two the one that it writes to.
    pub device: Device,
    /// The stream that it was submitted to.
    pub stream: StreamId,
    /// Bytes that it allocates, copies or fills; 0 for a launch.
    pub bytes: u64,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperatorKind {
    /// A buffer was allocated.
    Allocate,
    /// Bytes of the host were copied to the device.
    CopyToDevice,
    /// Bytes of the device were copied to the host.
    CopyToHost,
    /// Bytes were copied within the device.
    CopyWithin,
    /// Bytes of another device were copied. Where the driver has no way between the two these are copies to the host and
    /// from it.
    CopyFromPeer,
    /// A buffer was filled.
    Fill,
    /// A kernel was launched.
    Launch,
}

/// An observer of operators: dropped, it observes no more. On another thread it may be running then.
#[must_use = "dropped, it observes no more"]
#[derive(Debug)]
pub struct OperatorObserver(HookId);

type Observer = dyn Fn(&Operator) + Send + Sync;

static OBSERVERS: Callbacks<Observer> = Callbacks::new();
thread_local!(static OBSERVING: Cell<bool> = const { Cell::new(false) });

/// Adds an observer of what is submitted to all devices of the process: what buffers do, and the launches that backends
/// and other libraries [report](report_operator).
///
/// It runs once for each, on the thread that submitted it, after it was submitted. It may submit work of its own, which
/// is not observed. While there is none, observing costs a load and a branch.
pub fn observe_operators(observer: impl Fn(&Operator) + Send + Sync + 'static) -> OperatorObserver {
    OperatorObserver(OBSERVERS.add(Arc::new(observer)))
}

/// Tells the observers that this was submitted: for whoever launches kernels on a stream of ours. Call it without a lock
/// held that an observer might want.
///
/// ```
/// # use accelerator_core::{Backend, Operator, OperatorKind, Stream, report_operator};
/// # fn launched<B: Backend>(stream: Stream<B>) {
/// report_operator(|| Operator::on(stream, OperatorKind::Launch, 0).named("saxpy"));
/// # }
/// ```
#[inline]
pub fn report_operator(operator: impl FnOnce() -> Operator) {
    if !OBSERVERS.is_empty() {
        tell(&operator());
    }
}

#[cold]
fn tell(operator: &Operator) {
    OBSERVERS.each(&OBSERVING, |observer| observer(operator));
}

impl Operator {
    /// One that was submitted to this stream.
    #[inline]
    pub fn on<B: Backend>(stream: Stream<B>, kind: OperatorKind, bytes: u64) -> Self {
        Self::new(kind, stream.device(), stream.id(), bytes)
    }

    /// One that was submitted to a stream of this device.
    pub fn new(kind: OperatorKind, device: Device, stream: StreamId, bytes: u64) -> Self {
        Self { kind, name: kind.name(), device, stream, bytes }
    }

    /// The same under a name of its own.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

impl OperatorKind {
    /// Its name: `allocate`, `copy`, `fill` or `launch`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::CopyToDevice | Self::CopyToHost | Self::CopyWithin | Self::CopyFromPeer => "copy",
            Self::Fill => "fill",
            Self::Launch => "launch",
        }
    }
}

impl Drop for OperatorObserver {
    fn drop(&mut self) {
        OBSERVERS.remove(self.0);
    }
}
