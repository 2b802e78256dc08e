use std::collections::HashMap;
use std::sync::Arc;

use super::fields::{Fields, Wrong};
use super::types::{Frame, Frames};
use crate::pickle::{Halt, Heap, Value, View};

/// The maximum number of fields in a frame. PyTorch's frames have three, and frames of its compiler a few more.
const MOST_FIELDS: usize = 16;

/// The approximate size of an entry in one of the tables, in bytes.
const PLACE: usize = 64;

/// The frames of a snapshot. Equal frames and equal lists of frames are stored once.
pub(super) struct FrameTable {
    none: Frames,
    /// The lists by the numbers under which the pickle keeps them.
    lists: HashMap<u32, Frames>,
    frames: HashMap<u32, Arc<Frame>>,
    nothing: Arc<str>,
}

impl FrameTable {
    pub(super) fn new() -> Self {
        let (lists, frames) = (HashMap::new(), HashMap::new());
        Self { none: Arc::from([]), lists, frames, nothing: Arc::from("") }
    }

    /// Returns the frames of a list in the pickle, or no frames if it is not a list.
    pub(super) fn list<S: From<Wrong>>(
        &mut self,
        heap: &mut Heap,
        list: Option<Value>,
        fields: Fields,
    ) -> Result<Frames, Halt<S>> {
        let Some(list) = list.filter(|&list| !View::new(heap, list).is_none()) else {
            return Ok(Arc::clone(&self.none));
        };
        let stays = heap.keep(list)?;
        if let Some(known) = stays.and_then(|number| self.lists.get(&number)) {
            return Ok(Arc::clone(known));
        }
        let room = heap.charge_each::<Arc<Frame>>(list)?;
        let items = fields.items("frames", View::new(heap, list)).map_err(stop)?;
        heap.charge(items.len() * size_of::<Arc<Frame>>() + PLACE)?;
        let mut frames = Vec::with_capacity(items.len());
        for item in items {
            let stays = heap.keep(item)?;
            let known = stays.and_then(|number| self.frames.get(&number));
            frames.push(match known {
                Some(frame) => Arc::clone(frame),
                None => {
                    let frame = self.frame(View::new(heap, item), fields.offset()).map_err(stop)?;
                    heap.charge(size_of::<Frame>() + PLACE)?;
                    match stays {
                        Some(number) => _ = self.frames.insert(number, Arc::clone(&frame)),
                        None => heap.hand(item),
                    }
                    frame
                }
            });
        }
        let frames = if frames.is_empty() { Arc::clone(&self.none) } else { Frames::from(frames) };
        heap.discharge(room);
        match stays {
            Some(number) => _ = self.lists.insert(number, Arc::clone(&frames)),
            None => heap.hand(list),
        }
        Ok(frames)
    }

    fn frame(&self, view: View<'_>, offset: u64) -> Result<Arc<Frame>, Wrong> {
        let fields = Fields::new("a frame", view, offset);
        let empty = || Arc::clone(&self.nothing);
        let mut frame = Frame { name: empty(), filename: empty(), line: 0 };
        for (key, value) in fields.of(view)? {
            match &**key {
                "name" => frame.name = Arc::clone(fields.text(key, value)?),
                "filename" => frame.filename = Arc::clone(fields.text(key, value)?),
                // In Python, an unknown line is -1 or missing.
                "line" => frame.line = value.unsigned().and_then(|line| line.try_into().ok()).unwrap_or(0),
                _ => {}
            }
        }
        Ok(Arc::new(frame))
    }
}

fn stop<S: From<Wrong>>(wrong: Wrong) -> Halt<S> {
    Halt::Stop(wrong.into())
}

/// Returns whether a part of an element looks like a list of frames, which other elements may share. It may be in an
/// unknown field.
pub(super) fn is_shared(part: View<'_>) -> bool {
    let is_small = |view: View<'_>| view.pairs().is_some_and(|pairs| pairs.len() <= MOST_FIELDS);
    let is_frame = |view: View<'_>| is_small(view) && view.get("filename").is_some();
    part.items().is_some_and(|mut items| items.next().is_none_or(is_frame))
}
