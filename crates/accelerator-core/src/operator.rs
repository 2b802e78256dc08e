//! Observers of the work that is submitted to devices. PyTorch: `TorchDispatchMode`, at the level of a device.

use std::cell::Cell;
use std::sync::Arc;

use crate::backend::Backend;
use crate::stream::Stream;
use crate::sync::{Callbacks, HookId};
use crate::types::{Device, StreamId};

/// One piece of work that was submitted to a device.
///
/// A call that gives a device nothing to do is not an operator: an allocation that fails, or work on zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operator {
    /// The kind of work.
    pub kind: OperatorKind,
    /// The name of the operator: the name of its kind, unless it was [named](Self::named) when it was submitted.
    pub name: &'static str,
    /// The device. For a copy between two devices, the one that it writes to.
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
    /// Bytes of another device were copied. If the driver cannot copy between the two devices, a copy to the host and
    /// one from the host are reported instead.
    CopyFromPeer,
    /// A buffer was filled.
    Fill,
    /// A kernel was launched.
    Launch,
}

/// An observer of operators. Dropping it removes the observer, which may still be running on another thread at that
/// time.
#[must_use = "dropped, it observes no more"]
#[derive(Debug)]
pub struct OperatorObserver(HookId);

type Observer = dyn Fn(&Operator) + Send + Sync;

static OBSERVERS: Callbacks<Observer> = Callbacks::new();
thread_local!(static OBSERVING: Cell<bool> = const { Cell::new(false) });

/// Adds an observer of the work that is submitted to all devices of the process: the operations of buffers, and the
/// launches that backends and other libraries [report](report_operator).
///
/// The observer runs once for each operator, on the thread that submitted it, after it was submitted. It may submit
/// work itself, which is not observed. Without observers, reporting costs a load and a branch.
pub fn observe_operators(observer: impl Fn(&Operator) + Send + Sync + 'static) -> OperatorObserver {
    OperatorObserver(OBSERVERS.add(Arc::new(observer)))
}

/// Reports an operator to the observers. Libraries that launch kernels on a [`Stream`] call it. The caller holds no
/// lock that an observer might need.
///
/// ```
/// # use accelerator_core::{Backend, Operator, OperatorKind, Stream, report_operator};
/// # fn launched<B: Backend>(stream: Stream<B>) {
/// report_operator(|| Operator::on(stream, OperatorKind::Launch, 0).named("saxpy"));
/// # }
/// ```
#[inline]
pub fn report_operator(operator: impl FnOnce() -> Operator) {
    if are_operators_observed() {
        tell(&operator());
    }
}

/// Returns whether there are observers.
#[inline]
pub(crate) fn are_operators_observed() -> bool {
    !OBSERVERS.is_empty()
}

#[cold]
fn tell(operator: &Operator) {
    OBSERVERS.each(&OBSERVING, |observer| observer(operator));
}

impl Operator {
    /// An operator that was submitted to this stream.
    #[inline]
    pub fn on<B: Backend>(stream: Stream<B>, kind: OperatorKind, bytes: u64) -> Self {
        Self::new(kind, stream.device(), stream.id(), bytes)
    }

    /// An operator that was submitted to a stream of this device.
    pub fn new(kind: OperatorKind, device: Device, stream: StreamId, bytes: u64) -> Self {
        Self { kind, name: kind.name(), device, stream, bytes }
    }

    /// The same operator under another name.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

impl OperatorKind {
    /// The name of the kind: `allocate`, `copy`, `fill` or `launch`.
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
