//! The work of a stream: submissions in order, counted by a timeline semaphore.
#![allow(unsafe_code)] // calls into the driver

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use accelerator_core::DriverResult;
use accelerator_core::backend_kit::{Pooled, Submissions, get_mut, lock};
use ash::vk;

use crate::device::{Device, Queue, Semaphore};

/// Submissions to one queue. Each ends with a barrier, so the next begins when its effects are visible, and adds one to
/// the semaphore.
pub(crate) struct Timeline {
    /// It goes back to the device, so it comes first.
    semaphore: Pooled<Semaphore>,
    pub(crate) device: Arc<Device>,
    pub(crate) queue: Arc<Queue>,
    /// Distinguishes all streams of the process in captures.
    pub(crate) number: u64,
    /// The highest value of the semaphore that was seen.
    reached: AtomicU64,
    work: Mutex<Work>,
}

struct Work {
    pool: vk::CommandPool,
    /// Command buffers that are not in use.
    free: Vec<vk::CommandBuffer>,
    /// The value that the semaphore has once all work is done.
    submitted: u64,
    pending: Submissions<Submission>,
}

/// Anything that must live until a submission is done. It is dropped some time after.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

struct Submission {
    value: u64,
    commands: vk::CommandBuffer,
    _kept: Vec<Kept>,
}

/// A point in the work of a stream: the moment at which the submission with this number, and all before it, are done.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    timeline: Arc<Timeline>,
    value: u64,
}

impl Timeline {
    pub(crate) fn new(device: &Arc<Device>, queue: &Arc<Queue>) -> DriverResult<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let semaphore = device.semaphore()?;
        let value = semaphore.value;
        let description = vk::CommandPoolCreateInfo::default()
            .queue_family_index(device.family.family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER | vk::CommandPoolCreateFlags::TRANSIENT);
        // SAFETY: The device has queues of this family.
        let pool = unsafe { device.raw.create_command_pool(&description, None) };
        let pool = device.answer("vkCreateCommandPool", pool)?;
        Ok(Arc::new(Self {
            semaphore,
            device: Arc::clone(device),
            queue: Arc::clone(queue),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            reached: AtomicU64::new(value),
            work: Mutex::new(Work { pool, free: Vec::new(), submitted: value, pending: Submissions::new() }),
        }))
    }

    /// Submits commands, after all earlier work. `kept` lives until they are done.
    ///
    /// # Safety
    /// * The recorded commands are valid, and what they use lives until they are done.
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        kept: Vec<Kept>,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> DriverResult<Point> {
        // SAFETY: The caller promises the same.
        unsafe { self.submit_after(None, &[], kept, record) }
    }

    /// Makes later work wait for the point.
    pub(crate) fn wait_for(self: &Arc<Self>, point: &Point) -> DriverResult<()> {
        if Arc::ptr_eq(self, &point.timeline) {
            return Ok(());
        }
        // SAFETY: No command is recorded.
        unsafe { self.submit_after(Some(point), &[], Vec::new(), |_| {}) }.map(drop)
    }

    /// Submits first these command buffers, of a graph or another library, and then recorded commands, all after
    /// `awaited`.
    ///
    /// # Safety
    /// * As for [`submit`](Self::submit), and for the command buffers.
    pub(crate) unsafe fn submit_after(
        self: &Arc<Self>,
        awaited: Option<&Point>,
        first: &[vk::CommandBuffer],
        mut kept: Vec<Kept>,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> DriverResult<Point> {
        self.device.check()?;
        let awaited = awaited.filter(|point| !Arc::ptr_eq(self, &point.timeline));
        // The semaphore must live until this has waited for it.
        kept.extend(awaited.map(|point| Arc::clone(&point.timeline) as Kept));
        // What ended submissions kept is dropped after the lock is released: it may call anything.
        let mut ended = Vec::new();
        let mut work = lock(&self.work);
        self.retire(&mut work, &mut ended);
        let commands = self.command_buffer(&mut work)?;
        let value = work.submitted + 1;
        let recorded = self.record(commands, record);
        let submitted = recorded.and_then(|()| {
            let buffers: Vec<_> = first.iter().copied().chain([commands]).collect();
            self.queue.with(|queue| self.submit_to(queue, awaited, &buffers, value))
        });
        match submitted {
            Ok(()) => {
                work.submitted = value;
                work.pending.push(Submission { value, commands, _kept: kept });
                Ok(Point { timeline: Arc::clone(self), value })
            }
            Err(error) => {
                work.free.push(commands);
                Err(error)
            }
        }
    }

    /// Lets another library use the queue, and then makes all work that it submitted part of this timeline.
    pub(crate) fn share<T>(self: &Arc<Self>, f: impl FnOnce(vk::Queue) -> T) -> DriverResult<T> {
        self.device.check()?;
        let result = self.queue.with(f);
        // SAFETY: No command is recorded; the barrier follows all work in the queue.
        unsafe { self.submit(Vec::new(), |_| {}) }.map(|_| result)
    }

    fn record(&self, commands: vk::CommandBuffer, record: impl FnOnce(vk::CommandBuffer)) -> DriverResult<()> {
        let raw = &self.device.raw;
        let once = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: The command buffer is not in use, and its pool lets it be reset. The lock on the pool is held.
        let begun = unsafe { raw.begin_command_buffer(commands, &once) };
        self.device.answer("vkBeginCommandBuffer", begun)?;
        record(commands);
        // SAFETY: The command buffer is being recorded.
        unsafe { make_visible(raw, commands) };
        // SAFETY: As above.
        let ended = unsafe { raw.end_command_buffer(commands) };
        self.device.answer("vkEndCommandBuffer", ended)
    }

    fn submit_to(
        &self,
        queue: vk::Queue,
        awaited: Option<&Point>,
        commands: &[vk::CommandBuffer],
        value: u64,
    ) -> DriverResult<()> {
        let awaited = awaited.map(|point| (point.timeline.semaphore(), point.value));
        let (semaphores, awaited): (Vec<_>, Vec<_>) = awaited.into_iter().unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; semaphores.len()];
        let (signalled, values) = ([self.semaphore()], [value]);
        let mut counting =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&awaited).signal_semaphore_values(&values);
        let batch = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(commands)
            .signal_semaphores(&signalled)
            .push_next(&mut counting);
        // SAFETY: The queue is used by this thread only. The value is the next of the semaphore, and the awaited one
        // was submitted before. The command buffers are recorded.
        let submitted = unsafe { self.device.raw.queue_submit(queue, &[batch], vk::Fence::null()) };
        self.device.answer("vkQueueSubmit", submitted)
    }

    fn command_buffer(&self, work: &mut Work) -> DriverResult<vk::CommandBuffer> {
        if let Some(free) = work.free.pop() {
            return Ok(free);
        }
        self.device.command_buffer(work.pool)
    }

    /// Takes back the command buffers of submissions that have ended, and moves the rest of them to `ended`.
    fn retire(&self, work: &mut Work, ended: &mut Vec<Submission>) {
        let is_over = |submission: &Submission| (self.has_reached(submission.value) == Ok(true)).then_some(Ok(()));
        while let Some(submission) = work.pending.pop_ended(is_over) {
            work.free.push(submission.commands);
            ended.push(submission);
        }
    }

    /// Whether the submission with this number is over.
    fn has_reached(&self, value: u64) -> DriverResult<bool> {
        if self.reached.load(Ordering::Acquire) >= value || self.device.is_over() {
            return Ok(true);
        }
        let now = match self.device.semaphore_value(self.semaphore()) {
            Err(_) if self.device.is_over() => return Ok(true),
            now => now?,
        };
        self.reached.fetch_max(now, Ordering::AcqRel);
        Ok(now >= value)
    }

    /// Waits until the submission with this number is over, however often the driver refuses to wait.
    fn wait_until(&self, value: u64) -> DriverResult<()> {
        if self.reached.load(Ordering::Acquire) >= value {
            return Ok(());
        }
        let waited = self.device.wait_semaphore(self.semaphore(), value);
        self.reached.fetch_max(value, Ordering::AcqRel);
        self.device.check().and(waited)
    }

    /// Returns the point after all work submitted so far.
    pub(crate) fn now(self: &Arc<Self>) -> Point {
        Point { timeline: Arc::clone(self), value: lock(&self.work).submitted }
    }

    /// Waits for all work submitted so far, and gives back what it used.
    pub(crate) fn finish(self: &Arc<Self>) -> DriverResult<()> {
        if self.device.is_forked() {
            return self.device.check(); // a thread that the fork did not copy may hold the lock
        }
        let waited = self.now().wait();
        let mut ended = Vec::new();
        self.retire(&mut lock(&self.work), &mut ended);
        waited
    }

    /// Returns the semaphore, whose value is the number of submissions that are done.
    pub(crate) fn semaphore(&self) -> vk::Semaphore {
        self.semaphore.raw
    }
}

impl Point {
    pub(crate) fn is_reached(&self) -> DriverResult<bool> {
        self.timeline.has_reached(self.value)
    }

    pub(crate) fn wait(&self) -> DriverResult<()> {
        self.timeline.wait_until(self.value)
    }

    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    pub(crate) fn is_on_stream_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.timeline, &other.timeline)
    }
}

/// Records a barrier: all later commands of the queue, and the host, see what all earlier ones wrote.
///
/// # Safety
/// * The command buffer is being recorded.
pub(crate) unsafe fn make_visible(raw: &ash::Device, commands: vk::CommandBuffer) {
    let all = vk::MemoryBarrier::default().src_access_mask(vk::AccessFlags::MEMORY_WRITE).dst_access_mask(
        vk::AccessFlags::MEMORY_READ
            | vk::AccessFlags::MEMORY_WRITE
            | vk::AccessFlags::HOST_READ
            | vk::AccessFlags::HOST_WRITE,
    );
    let (before, after) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::PipelineStageFlags::HOST);
    let (after, none) = (before | after, vk::DependencyFlags::empty());
    // SAFETY: The caller promises it.
    unsafe { raw.cmd_pipeline_barrier(commands, before, after, none, &[all], &[], &[]) };
}

impl Drop for Timeline {
    fn drop(&mut self) {
        let work = get_mut(&mut self.work);
        let (last, pool) = (work.submitted, work.pool);
        let kept = std::mem::take(&mut work.pending);
        let _ = self.wait_until(last); // fails only if the device is lost, which ends all work
        drop(kept);
        // SAFETY: All of its command buffers are done.
        self.device.destroy(|raw| unsafe { raw.destroy_command_pool(pool, None) });
        // Nothing waits for the semaphore any more: what does keeps this value alive.
        self.semaphore.value = last;
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timeline").field(&self.semaphore()).finish()
    }
}
