//! The second pass over a snapshot: converts the entries of a history to operations.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use accelerator_core::AllocatorConfig;
use accelerator_tracker::snapshot::{Annotation, Note, NoteKind, TraceAction, TraceEntry};

use super::Options;
use super::group::{Group, Request, State};
use super::output::Output;
use super::segments::Segments;
use super::settings;
use super::streams::Streams;
use super::survey::Start;
use crate::trace::Op;

/// A block that is allocated or pending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    /// The number of its allocation in the trace.
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) stream: u32,
    /// The stream that it waits for. It represents the real stream, whichever that was, and is held until the
    /// `free_completed` of the block.
    pub(super) user: Option<u32>,
    /// The size of its segment, if the whole segment is free.
    pub(super) segment: Option<u64>,
}

pub(super) struct Entries<'a, 'b> {
    output: &'a mut Output<'b>,
    options: &'a Options,
    config: AllocatorConfig,
    streams: Streams,
    live: BTreeMap<u64, Live>,
    pending: usize,
    segments: Segments,
    /// Whether the history has notes. They contain facts that must be guessed for a history from PyTorch.
    has_notes: bool,
    /// Whether the history may start between the entries of one call.
    torn: bool,
    completes: bool,
    /// Whether the device has as much memory as the recorded one.
    has_capacity: bool,
    notes: VecDeque<Note>,
    annotations: VecDeque<Annotation>,
    place: u64,
    /// The block whose free the last entry requested.
    requested: Option<u64>,
    group: Group,
    /// A block whose stream was released, but no later call has noticed it yet.
    unseen: Option<Live>,
    /// Whether the cache was just emptied, which notices every release.
    emptied: bool,
}

impl<'a, 'b> Entries<'a, 'b> {
    pub(super) fn new(
        start: Start,
        live: BTreeMap<u64, Live>,
        options: &'a Options,
        output: &'a mut Output<'b>,
    ) -> io::Result<Self> {
        let mut segments = Segments::default();
        for segment in start.segments.iter().filter(|segment| !segment.is_expandable) {
            segments.made(segment.address, segment.size);
        }
        live.keys().for_each(|address| segments.taken(*address));
        let has_notes = start.notes.is_some();
        let torn = start.notes.as_ref().is_some_and(|notes| notes.dropped > 0);
        let mut entries = Self {
            output,
            options,
            config: start.config,
            streams: start.streams,
            live,
            pending: 0,
            segments,
            has_notes,
            torn,
            completes: start.completes,
            has_capacity: options.refusals && start.capacity.is_some(),
            notes: start.notes.map(|notes| notes.notes.into()).unwrap_or_default(),
            annotations: start.annotations.into(),
            place: 0,
            requested: None,
            group: Group::default(),
            unseen: None,
            emptied: false,
        };
        for block in start.blocks.iter().filter(|block| block.pending) {
            entries.free_later(block.address)?;
        }
        Ok(entries)
    }

    pub(super) fn entry(&mut self, entry: &TraceEntry) -> io::Result<()> {
        self.annotate(entry.time_us)?;
        while self.notes.front().is_some_and(|note| note.before <= self.place)
            && let Some(note) = self.notes.pop_front()
        {
            self.note(note.kind)?;
        }
        self.place += 1;
        if entry.action != TraceAction::FreeCompleted || self.requested != Some(entry.address) {
            self.settle_requested()?;
        }
        match entry.action {
            TraceAction::Alloc => self.request(entry, Some(entry.address))?,
            TraceAction::OutOfMemory { .. } => self.request(entry, None)?,
            TraceAction::FreeRequested => {
                self.flush()?;
                let is_live = self.live.get(&entry.address).is_some_and(|live| live.user.is_none());
                self.requested = is_live.then_some(entry.address);
            }
            TraceAction::FreeCompleted => self.completed(entry.address)?,
            TraceAction::SegmentAlloc => {
                self.segments.made(entry.address, entry.size);
                self.group.made = true;
                self.expandable_segments(false)?;
            }
            TraceAction::SegmentFree => self.group.given_back.extend(self.segments.given_back(entry.address)),
            TraceAction::SegmentMap => {
                (self.group.made, self.group.mapped_last) = (true, true);
                self.expandable_segments(true)?;
            }
            TraceAction::SegmentUnmap => (self.group.unmapped, self.group.mapped_last) = (true, false),
            TraceAction::Snapshot | TraceAction::Other => {}
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        while let Some(note) = self.notes.pop_front() {
            self.note(note.kind)?;
        }
        self.annotate(i64::MAX)?;
        self.settle_requested()?;
        self.flush()?;
        let Some(Live { bytes, stream, .. }) = self.unseen else { return Ok(()) };
        self.output.comment("lets the allocator see which pending blocks are complete")?;
        let id = self.output.allocate(bytes, stream)?;
        self.output.free(id)
    }

    fn note(&mut self, kind: NoteKind) -> io::Result<()> {
        self.settle_requested()?;
        if kind == NoteKind::Refused {
            self.group.refused += 1;
            return Ok(());
        }
        self.flush()?;
        match kind {
            NoteKind::CacheEmptied => {
                self.emptied = true;
                self.empty_cache()
            }
            NoteKind::Settings(text) => match AllocatorConfig::default().updated(&text) {
                Ok(config) => self.configure(config),
                Err(error) => self.output.comment(&format!("{error}: ignored")),
            },
            NoteKind::MemoryFraction(fraction) if (0.0..=1.0).contains(&fraction) => {
                self.output.write(Op::Fraction { fraction })
            }
            NoteKind::MemoryFraction(_) | NoteKind::Refused => Ok(()),
        }
    }

    fn configure(&mut self, config: AllocatorConfig) -> io::Result<()> {
        if !self.options.settings {
            return Ok(());
        }
        let settings = settings::line(&self.config, &config);
        self.config = config;
        self.output.write(Op::Conf { settings })
    }

    /// Switches expandable segments on or off. New memory shows whether they were in use at that time, while a history
    /// from PyTorch has only the settings at its end.
    fn expandable_segments(&mut self, expandable_segments: bool) -> io::Result<()> {
        match self.has_notes || self.config.expandable_segments == expandable_segments {
            true => Ok(()),
            false => self.configure(AllocatorConfig { expandable_segments, ..self.config }),
        }
    }

    fn empty_cache(&mut self) -> io::Result<()> {
        self.unseen = None;
        self.output.write(Op::EmptyCache)
    }

    fn completed(&mut self, address: u64) -> io::Result<()> {
        let Some(live) = self.live.remove(&address) else { return Ok(()) };
        let live = Live { segment: self.segments.left(address), ..live };
        self.requested = None;
        if live.user.is_none() {
            let before = self.group.freed.replace(live);
            return before.map_or(Ok(()), |before| self.output.free(before.id));
        }
        self.pending -= 1;
        let late = self.group.refused > 0;
        let completed = if late { &mut self.group.completed_late } else { &mut self.group.completed };
        completed.push(live);
        Ok(())
    }

    /// Converts a request. The entries just before the request belong to it, or to an `empty_cache` that preceded it.
    fn request(&mut self, entry: &TraceEntry, place: Option<u64>) -> io::Result<()> {
        let (bytes, stream) = (entry.size, self.streams.of(entry.stream));
        let group = std::mem::take(&mut self.group);
        let state = State {
            config: &self.config,
            has_idle: self.segments.has_idle_beside(place),
            has_pending: self.pending > 0,
        };
        let torn = std::mem::take(&mut self.torn) && group.refused == 0 && group.gives_back();
        // With the same memory, the driver of the replay refuses the request itself, after the same pages.
        let refuses_itself = group.mapped_last && place.is_none() && self.has_capacity;
        let plan = match self.has_notes && !torn {
            true => group.told(place.is_none()),
            false => group.guessed(&Request { bytes, stream, failed: place.is_none() }, &state),
        };
        for live in plan.before {
            self.let_go(live)?;
        }
        let mut held = Vec::new();
        for live in plan.behind {
            held.push(if live.user.is_some() { live } else { self.hold_and_free(live)? });
        }
        if plan.empties_cache {
            self.empty_cache()?;
        }
        let refused = if self.options.refusals && !refuses_itself { plan.refused } else { 0 };
        if refused > 0 {
            self.output.write(Op::FailMallocs { count: refused })?;
        }
        let id = self.output.allocate(bytes, stream)?;
        if refused > 0 {
            self.output.write(Op::FailMallocs { count: 0 })?;
        }
        self.unseen = None;
        self.emptied = false;
        for live in held {
            self.let_go(live)?;
        }
        if plan.refused > 0 {
            self.unseen = None; // the allocator waited for all streams before it called the driver again
        }
        match place {
            None => self.output.free(id),
            Some(place) => self.take(place, Live { id, bytes, stream, user: None, segment: None }),
        }
    }

    fn take(&mut self, place: u64, live: Live) -> io::Result<()> {
        match self.live.insert(place, live) {
            None => self.segments.taken(place),
            // The history does not contain the free of the previous block.
            Some(before) if before.user.is_none() => self.output.free(before.id)?,
            Some(before) => {
                self.pending -= 1;
                self.let_go(before)?;
            }
        }
        Ok(())
    }

    /// Frees the block that the last entry named, while another stream still uses it.
    fn settle_requested(&mut self) -> io::Result<()> {
        match self.requested.take() {
            Some(address) if self.completes => self.free_later(address),
            Some(address) => self.completed(address),
            None => Ok(()),
        }
    }

    fn free_later(&mut self, address: u64) -> io::Result<()> {
        let Some(live) = self.live.get(&address).copied() else { return Ok(()) };
        let live = self.hold_and_free(live)?;
        self.live.insert(address, live);
        self.pending += 1;
        Ok(())
    }

    fn hold_and_free(&mut self, live: Live) -> io::Result<Live> {
        let user = self.streams.take_auxiliary();
        self.output.write(Op::Record { id: live.id, stream: user })?;
        self.output.write(Op::Hold { stream: user })?;
        self.output.free(live.id)?;
        Ok(Live { user: Some(user), ..live })
    }

    /// Releases the stream of a block that no stream uses any more.
    fn let_go(&mut self, live: Live) -> io::Result<()> {
        let Some(stream) = live.user else { return self.output.free(live.id) };
        self.output.write(Op::Release { stream })?;
        self.streams.put_back(stream);
        self.unseen = Some(live);
        Ok(())
    }

    /// Converts the entries so far, which belong to no request.
    fn flush(&mut self) -> io::Result<()> {
        let gives_back = self.group.gives_back();
        let Group { freed, completed, completed_late, refused, .. } = std::mem::take(&mut self.group);
        self.group.refused = refused; // a request of another thread may follow
        for live in freed.into_iter().chain(completed).chain(completed_late) {
            self.let_go(live)?;
        }
        let emptied = std::mem::take(&mut self.emptied);
        if emptied {
            self.unseen = None;
        }
        let torn = std::mem::take(&mut self.torn);
        // A request that is rejected before the driver is called releases the cache, but is not in the history.
        let told = self.has_notes && (emptied || refused > 0);
        match gives_back && (torn || !told) {
            true => self.empty_cache(),
            false => Ok(()),
        }
    }

    /// Writes the annotations up to this time.
    fn annotate(&mut self, time: i64) -> io::Result<()> {
        while self.annotations.front().is_some_and(|annotation| annotation.time_us <= time)
            && let Some(Annotation { stage, name, .. }) = self.annotations.pop_front()
        {
            self.output.comment(&format!("{stage} {name}"))?;
        }
        Ok(())
    }
}
