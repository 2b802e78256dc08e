//! Graphs: closed command lists, which a command queue executes as often as they are launched.
#![allow(unsafe_code)] // calls the driver

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::{mem, ptr};

use accelerator_core::backend_kit::{GraphNode, lock, try_twice};
use accelerator_core::{CaptureMode, DriverError, DriverErrorKind, DriverResult, ExecutableGraph, Graphs, Place};
use level_zero_sys as sys;
use level_zero_sys::{ze_command_list_handle_t, ze_command_queue_handle_t};

use crate::answer::{ask, call};
use crate::device::Device;
use crate::memory::XpuPtr;
use crate::queue::XpuStream;
use crate::signal::{Signal, Signals};
use crate::work::Work;
use crate::xpu::Xpu;

// SAFETY: `Queue::run` keeps captured work instead of submitting it. A launch begins after the earlier work of its
// stream, later work waits for its end, and barriers within the list keep the captured order.
unsafe impl Graphs<Xpu> for Xpu {
    fn begin(&self, stream: &XpuStream, _mode: CaptureMode) -> DriverResult<()> {
        self.device.health.check()?;
        self.device.captures.begin(stream.0.number)
    }

    fn end(&self, stream: &XpuStream) -> DriverResult<Box<dyn ExecutableGraph<Self>>> {
        let checked = self.device.health.check();
        if self.device.health.is_forked() {
            checked?; // the thread that holds the lock of the captures may not exist
        }
        let nodes = self.device.captures.end(stream.0.number)?;
        checked?;
        Ok(Box::new(XpuGraph::new(self, nodes)?))
    }

    fn capture_of(&self, stream: &XpuStream) -> DriverResult<Option<u64>> {
        self.device.health.check()?;
        Ok(self.device.captures.capture_of(stream.0.number))
    }

    fn mark(&self, stream: &XpuStream) -> DriverResult<Option<u64>> {
        self.device.health.check()?;
        Ok(self.device.captures.mark(stream.0.number))
    }

    fn precede(&self, marks: &[u64], stream: &XpuStream) -> DriverResult<Vec<bool>> {
        self.device.health.check()?;
        Ok(self.device.captures.precede(marks, stream.0.number))
    }
}

impl Xpu {
    /// Refuses a place in host memory that the driver did not allocate. It finds the pages of such memory when the copy
    /// is added to a list, so a graph would use the same pages in each launch, even if the program has others at that
    /// address by then.
    pub(crate) fn refuse_pageable(&self, place: Place<XpuPtr>) -> DriverResult<()> {
        const CALL: &str = "zeMemGetAllocProperties";
        let Place::Host(at) = place else { return Ok(()) };
        let mut properties = sys::ze_memory_allocation_properties_t::default();
        let (device, at) = (&self.device, at.as_ptr().cast());
        // SAFETY: The call fills a structure whose `stype` is set; a null pointer is allowed for the device.
        unsafe { call!(device, zeMemGetAllocProperties(device.context(), at, &mut properties, ptr::null_mut())) }?;
        let why = "a graph cannot copy from or to pageable host memory: use pinned memory";
        match properties.type_ {
            sys::ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN => {
                Err(DriverError::refused(DriverErrorKind::InvalidArgument, CALL, why))
            }
            _ => Ok(()),
        }
    }
}

/// The lists of a graph, and so the launches that can be in flight before another one waits on the host: Level Zero
/// does not allow a list to be executed while it is running.
const LISTS: usize = 4;

#[derive(Debug)]
struct XpuGraph {
    /// The one that was launched last is at the back.
    lists: Mutex<VecDeque<List>>,
    captured: Arc<Captured>,
}

/// What the lists of a graph are made of.
#[derive(Debug)]
struct Captured {
    device: Arc<Device>,
    signals: Arc<Signals>,
    /// The group of queues.
    ordinal: u32,
    queue: ze_command_queue_handle_t,
    nodes: Vec<GraphNode<Work>>,
}

/// A closed list with the captured work.
#[derive(Debug)]
struct List {
    captured: Arc<Captured>,
    raw: ze_command_list_handle_t,
    /// The list waits for this first.
    start: Arc<Signal>,
    /// The list signals this after all of its work.
    end: Arc<Signal>,
    /// Reached when no command needs the list and its events any more. `None` if none does.
    joined: Option<Arc<Signal>>,
}

// SAFETY: The handles are only names; the queue is used under the lock of the graph.
unsafe impl Send for Captured {}
// SAFETY: As for `Send`.
unsafe impl Sync for Captured {}
// SAFETY: The handles are only names; a list is used under the lock of the graph.
unsafe impl Send for List {}

impl XpuGraph {
    fn new(xpu: &Xpu, nodes: Vec<GraphNode<Work>>) -> DriverResult<Self> {
        let (device, group) = (&xpu.device, xpu.group);
        let description = sys::ze_command_queue_desc_t {
            ordinal: group.ordinal,
            index: xpu.next_queue.fetch_add(1, Ordering::Relaxed) % group.queues,
            mode: sys::ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        };
        let (context, raw, mut queue) = (device.context(), device.raw(), ptr::null_mut());
        // SAFETY: The `stype` of the description is set, and the call writes a handle.
        unsafe { call!(device, zeCommandQueueCreate(context, raw, &description, &mut queue)) }?;
        let (device, signals) = (Arc::clone(device), Arc::clone(&xpu.plain));
        let captured = Arc::new(Captured { device, signals, ordinal: group.ordinal, queue, nodes });
        Ok(Self { lists: Mutex::new(VecDeque::from([List::new(&captured)?])), captured })
    }

    /// Takes a list that is not running. Launches run one after another, so the oldest is the first to be done.
    fn take(&self, lists: &mut VecDeque<List>) -> DriverResult<List> {
        if let Some(oldest) = lists.front()
            && !oldest.is_done()?
        {
            if lists.len() < LISTS
                && let Ok(list) = List::new(&self.captured)
            {
                return Ok(list);
            }
            oldest.wait()?;
        }
        lists.pop_front().map_or_else(|| List::new(&self.captured), Ok)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: The queue was made by `XpuGraph::new`. Lists hold a reference to this while they run.
        try_twice(|| unsafe { call!(self.device, zeCommandQueueDestroy(self.queue)) });
    }
}

impl List {
    fn new(captured: &Arc<Captured>) -> DriverResult<Self> {
        let device = &captured.device;
        let (start, end) = (captured.signals.take()?, captured.signals.take()?);
        let ordinal = captured.ordinal;
        let description = sys::ze_command_list_desc_t { commandQueueGroupOrdinal: ordinal, ..Default::default() };
        let (context, on, mut raw) = (device.context(), device.raw(), ptr::null_mut());
        // SAFETY: The `stype` of the description is set, and the call writes a handle.
        unsafe { call!(device, zeCommandListCreate(context, on, &description, &mut raw)) }?;
        let list = Self { captured: Arc::clone(captured), raw, start, end, joined: None };
        device.health.run(|| list.record()).map(|()| list)
    }

    /// Adds the work to the list and closes it. Commands of a list run in any order that its barriers permit, so work
    /// of different streams may overlap.
    fn record(&self) -> DriverResult<()> {
        let (api, list, none) = (self.captured.device.api, self.raw, ptr::null_mut());
        let mut start = self.start.native();
        // SAFETY: Nothing else uses the list, and the event lives as long as it.
        unsafe { ask!(api, zeCommandListAppendBarrier(list, none, 1, &mut start)) }?;
        let mut done = 0; // all nodes before this place precede the last barrier
        for (place, node) in self.captured.nodes.iter().enumerate() {
            if node.after.iter().any(|earlier| *earlier >= done) {
                // SAFETY: Nothing else uses the list.
                unsafe { ask!(api, zeCommandListAppendBarrier(list, none, 0, ptr::null_mut())) }?;
                done = place;
            }
            // SAFETY: Nothing else uses the list. Who launches the graph promises valid memory, and kernels live as
            // long as the list.
            unsafe { node.work.append(api, list) }?;
        }
        // SAFETY: As for the first barrier.
        unsafe { ask!(api, zeCommandListAppendBarrier(list, self.end.native(), 0, ptr::null_mut())) }?;
        // SAFETY: Nothing else uses the list.
        unsafe { ask!(api, zeCommandListClose(list)) }
    }

    /// Executes the list as work of a stream. Its last launch must be done. The lists of a graph are executed one after
    /// another, since each ends with a barrier, and all commands of a queue respect it.
    fn launch(&mut self, stream: &XpuStream) -> DriverResult<()> {
        self.joined = None;
        for event in [&self.start, &self.end] {
            // SAFETY: The list is done, and so is the wait of its stream.
            unsafe { event.reset() }?;
        }
        let (device, queue, mut list) = (&self.captured.device, self.captured.queue, self.raw);
        self.joined = stream.0.detour(&self.start, &self.end, || {
            // SAFETY: The list is closed and not running; the queue is used under the lock of the graph.
            unsafe { call!(device, zeCommandQueueExecuteCommandLists(queue, 1, &mut list, ptr::null_mut())) }
        })?;
        Ok(())
    }

    fn is_done(&self) -> DriverResult<bool> {
        self.joined.as_ref().map_or(Ok(true), |joined| joined.is_reached())
    }

    fn wait(&self) -> DriverResult<()> {
        self.joined.as_ref().map_or(Ok(()), |joined| joined.wait())
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let Self { captured, start, end, .. } = &*self;
        if !(0..3).any(|_| captured.device.is_lost() || self.wait().is_ok()) {
            // It may still be running, so it is leaked with all that it needs.
            return mem::forget((Arc::clone(captured), Arc::clone(start), Arc::clone(end)));
        }
        // SAFETY: The list was made by `new`, and its work is done.
        try_twice(|| unsafe { call!(captured.device, zeCommandListDestroy(self.raw)) });
    }
}

// SAFETY: As for `Graphs`. All launches use one queue, which executes their lists one after another.
unsafe impl ExecutableGraph<Xpu> for XpuGraph {
    unsafe fn launch(&self, stream: &XpuStream) -> DriverResult<()> {
        self.captured.device.health.check()?;
        stream.0.device.captures.refuse_captured(stream.0.number, "zeCommandQueueExecuteCommandLists")?;
        let lists = &mut *lock(&self.lists);
        let mut list = self.take(lists)?;
        let launched = list.launch(stream);
        match launched {
            Ok(()) => lists.push_back(list),
            Err(_) => lists.push_front(list),
        }
        launched
    }
}
