use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::types::{
    Annotation, Block, BlockState, Frame, Frames, MemorySnapshot, PoolId, Segment, Setting, TraceAction, TraceEntry,
};
use super::{notes, settings};
use crate::file::{FileError, write_whole};
use crate::pickle::Writer;

impl MemorySnapshot {
    /// Writes the snapshot to a file that PyTorch's viewer and `torch.cuda._memory_viz` can read, completely or not at
    /// all: an existing file stays until the new one is complete.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write_whole(path.as_ref(), |out| self.write_to(out))
    }

    /// Writes the snapshot to `out`, in the format of [`write`](Self::write).
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        let Self { segments, aliases, device_traces, settings, annotations, notes } = self;
        let (frames, lists, known) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut file = SnapshotWriter { out: Writer::new(out)?, frames, lists, known };
        file.out.open_dict()?;
        if !notes.is_empty() {
            file.out.text(notes::KEY)?;
            notes::write(&mut file.out, notes)?;
        }
        file.list("segments", segments, SnapshotWriter::segment)?;
        if !aliases.is_empty() {
            file.list(ALIASES, aliases, SnapshotWriter::segment)?;
        }
        file.list("device_traces", device_traces, |file, entries| file.items(entries, SnapshotWriter::entry))?;
        file.out.text("allocator_settings")?;
        file.out.dict(settings, |out, (name, setting)| {
            out.text(name)?;
            settings::write(out, setting)
        })?;
        file.list("external_annotations", annotations, SnapshotWriter::annotation)?;
        // This library records no history of pinned host memory.
        file.list("host_segments", &[], SnapshotWriter::segment)?;
        file.list("host_traces", &[], SnapshotWriter::entry)?;
        file.out.close_dict()?;
        file.out.finish()
    }
}

/// The key of [`MemorySnapshot::aliases`], which PyTorch's tools ignore.
pub(super) const ALIASES: &str = "aliases";
/// The key of a block that is [`BlockState::Aliased`]. For PyTorch's tools it is allocated.
pub(super) const ALIASED: &str = "aliased";

/// The key of [`Segment::is_paused`]. PyTorch's tools ignore it.
pub(super) const PAUSED: &str = "paused";

/// Writes the parts of a snapshot. Frames that were written before become references, as in PyTorch.
struct SnapshotWriter<'s, W> {
    out: Writer<W>,
    /// The memo numbers of frames and of lists of frames, by value and, for faster access, by address.
    frames: HashMap<&'s Frame, u32>,
    lists: HashMap<&'s [Arc<Frame>], u32>,
    known: HashMap<*const Arc<Frame>, u32>,
}

impl<'s, W: Write> SnapshotWriter<'s, W> {
    fn list<T>(
        &mut self,
        key: &str,
        items: &'s [T],
        each: impl FnMut(&mut Self, &'s T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.text(key)?;
        self.items(items, each)
    }

    /// Like [`Writer::list`], but `each` also receives the writer of the snapshot.
    fn items<T>(&mut self, items: &'s [T], mut each: impl FnMut(&mut Self, &'s T) -> io::Result<()>) -> io::Result<()> {
        self.out.open_list()?;
        for batch in items.chunks(Writer::<W>::BATCH) {
            self.out.open_batch()?;
            batch.iter().try_for_each(|item| each(self, item))?;
            self.out.close_batch()?;
        }
        Ok(())
    }

    fn segment(&mut self, segment: &'s Segment) -> io::Result<()> {
        let Segment {
            device,
            address,
            total_size,
            allocated_size,
            active_size,
            requested_size,
            stream,
            segment_type,
            pool_id,
            is_expandable,
            is_paused,
            frames,
            blocks,
        } = segment;
        self.out.open_dict()?;
        self.number("device", u64::from(*device))?;
        self.number("address", *address)?;
        self.number("total_size", *total_size)?;
        self.number("allocated_size", *allocated_size)?;
        self.number("active_size", *active_size)?;
        self.number("requested_size", *requested_size)?;
        self.number("stream", *stream)?;
        self.text("segment_type", segment_type.name())?;
        self.pool("segment_pool_id", *pool_id)?;
        self.out.text("is_expandable")?;
        self.out.flag(*is_expandable)?;
        if *is_paused {
            self.out.text(PAUSED)?;
            self.out.flag(true)?;
        }
        self.frames(frames)?;
        self.list("blocks", blocks, Self::block)?;
        self.out.close_dict()
    }

    fn block(&mut self, block: &'s Block) -> io::Result<()> {
        let Block { address, size, requested_size, state, frames } = block;
        self.out.open_dict()?;
        self.number("address", *address)?;
        self.number("size", *size)?;
        self.number("requested_size", *requested_size)?;
        self.text(
            "state",
            match state {
                BlockState::Allocated | BlockState::Aliased => "active_allocated",
                BlockState::PendingFree => "active_awaiting_free",
                BlockState::Inactive => "inactive",
            },
        )?;
        if *state == BlockState::Aliased {
            self.out.text(ALIASED)?;
            self.out.flag(true)?;
        }
        self.frames(frames)?;
        self.out.close_dict()
    }

    fn entry(&mut self, entry: &'s TraceEntry) -> io::Result<()> {
        let TraceEntry {
            action,
            address,
            size,
            stream,
            time_us,
            frames,
            pool_id,
            user_metadata,
            compile_context,
            other,
        } = entry;
        self.out.open_dict()?;
        self.text("action", word(*action, other))?;
        match action {
            TraceAction::OutOfMemory { device_free } => self.number("device_free", *device_free)?,
            _ => self.number("addr", *address)?,
        }
        self.number("size", *size)?;
        self.number("stream", *stream)?;
        self.out.text("time_us")?;
        self.out.integer(*time_us)?;
        self.text("compile_context", compile_context)?;
        self.text("user_metadata", user_metadata)?;
        self.pool("pool_id", *pool_id)?;
        self.frames(frames)?;
        for (key, value) in other.iter().filter(|(key, _)| &**key != "action") {
            self.out.text(key)?;
            settings::write(&mut self.out, value)?;
        }
        self.out.close_dict()
    }

    fn annotation(&mut self, annotation: &'s Annotation) -> io::Result<()> {
        let Annotation { stage, name, device, time_us } = annotation;
        self.out.open_dict()?;
        self.text("stage", stage)?;
        self.text("name", name)?;
        self.number("device", u64::from(*device))?;
        self.out.text("time_us")?;
        self.out.integer(*time_us)?;
        self.out.close_dict()
    }

    /// Writes the key and the list of frames.
    fn frames(&mut self, frames: &'s Frames) -> io::Result<()> {
        self.out.text("frames")?;
        let place = frames.as_ptr();
        let known = self.known.get(&place).or_else(|| self.lists.get(&**frames));
        if let Some(&number) = known {
            self.known.insert(place, number);
            return self.out.recall(number);
        }
        self.items(frames, |file, frame| file.frame(frame))?;
        let number = self.out.memorise()?;
        self.lists.insert(frames, number);
        self.known.insert(place, number);
        Ok(())
    }

    fn frame(&mut self, frame: &'s Frame) -> io::Result<()> {
        if let Some(&number) = self.frames.get(frame) {
            return self.out.recall(number);
        }
        let Frame { name, filename, line } = frame;
        self.out.open_dict()?;
        self.text("name", name)?;
        self.text("filename", filename)?;
        self.number("line", u64::from(*line))?;
        self.out.close_dict()?;
        let number = self.out.memorise()?;
        self.frames.insert(frame, number);
        Ok(())
    }

    fn pool(&mut self, key: &str, (first, second): PoolId) -> io::Result<()> {
        self.out.text(key)?;
        self.out.integer(first)?;
        self.out.integer(second)?;
        self.out.pair()
    }

    fn number(&mut self, key: &str, number: u64) -> io::Result<()> {
        self.out.text(key)?;
        self.out.integer(number)
    }

    fn text(&mut self, key: &str, text: &str) -> io::Result<()> {
        self.out.text(key)?;
        self.out.text(text)
    }
}

/// Returns PyTorch's word for an action. For an unknown action, returns the original word.
fn word(action: TraceAction, other: &[(Arc<str>, Setting)]) -> &str {
    let found = other.iter().find_map(|(key, value)| match value {
        Setting::Text(word) if &**key == "action" && action == TraceAction::Other => Some(&**word),
        _ => None,
    });
    found.unwrap_or(action.name())
}
