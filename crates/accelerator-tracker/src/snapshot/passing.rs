//! Passes the parts of a snapshot to a visitor while its pickle is read.

use super::fields::{Fields, Wrong};
use super::frames::is_shared;
use super::parts::Parts;
use super::visit::{SnapshotVisitor, Stop};
use super::write::ALIASES;
use super::{notes, settings};
use crate::file::excerpt;
use crate::pickle::{Halt, Heap, Place, Sink, Value, View};

/// The maximum number of settings. PyTorch has eleven.
const MOST_SETTINGS: usize = 1000;

/// Why reading ends early.
pub(super) enum End {
    Wrong(Wrong),
    Visitor(Stop),
}

impl From<Wrong> for End {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<Stop> for End {
    fn from(stop: Stop) -> Self {
        Self::Visitor(stop)
    }
}

/// The contents of a list in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Segments,
    Aliases,
    Entries(u32),
    Annotations,
    /// Unknown data.
    Other,
}

pub(super) struct Passing<'v> {
    visitor: &'v mut dyn SnapshotVisitor,
    parts: Parts,
    /// Whether the notes were searched for, and whether they were found.
    looked_for_notes: bool,
    noted: bool,
    /// Whether these lists were handed over while the pickle was read.
    segments: bool,
    aliases: bool,
    annotations: bool,
    /// The number of histories that have begun.
    histories: u32,
}

impl<'v> Passing<'v> {
    pub(super) fn new(visitor: &'v mut dyn SnapshotVisitor) -> Self {
        Self {
            visitor,
            parts: Parts::new(),
            looked_for_notes: false,
            noted: false,
            segments: false,
            aliases: false,
            annotations: false,
            histories: 0,
        }
    }

    /// Passes everything to the visitor that was not handed over while the pickle was read.
    pub(super) fn rest(&mut self, heap: &mut Heap, root: Value) -> Result<(), Halt<End>> {
        let fields = Fields::new("the snapshot", View::new(heap, root), 0);
        if View::new(heap, root).pairs().is_none() {
            // A list contains only segments.
            let is_list = View::new(heap, root).items().is_some();
            return match is_list {
                true => self.all(heap, fields, "segments", root, Holds::Segments, false),
                false if self.segments => Ok(()),
                false => fields.of(View::new(heap, root)).map(drop).map_err(stop),
            };
        }
        let of = |heap: &Heap, key| View::new(heap, root).get(key).map(View::value);
        if let Some(list) = of(heap, notes::KEY).filter(|_| !self.noted) {
            self.pass_notes(heap, list).map_err(Halt::Stop)?;
        }
        let Some(list) = of(heap, "segments") else {
            return Err(Halt::Stop(fields.wrong(no_segments(View::new(heap, root))).into()));
        };
        self.all(heap, fields, "segments", list, Holds::Segments, self.segments)?;
        if let Some(list) = of(heap, ALIASES) {
            self.all(heap, fields, ALIASES, list, Holds::Aliases, self.aliases)?;
        }
        if let Some(histories) = of(heap, "device_traces") {
            let room = heap.charge_each::<()>(histories)?;
            let items = fields.items("device_traces", View::new(heap, histories)).map_err(stop)?;
            for (device, list) in (0..).zip(items).skip(self.histories as usize) {
                self.visitor.history(device).map_err(stop)?;
                self.all(heap, fields, "device_traces", list, Holds::Entries(device), false)?;
            }
            heap.discharge(room);
        }
        if let Some(list) = of(heap, "external_annotations") {
            let passed = self.annotations;
            self.all(heap, fields, "external_annotations", list, Holds::Annotations, passed)?;
        }
        let settings = View::new(heap, root).get("allocator_settings");
        if let Some(settings) = settings.filter(|settings| settings.pairs().is_some()) {
            let fields = Fields::new("the settings", settings, 0);
            for (name, value) in fields.of(settings).map_err(stop)?.take(MOST_SETTINGS) {
                if let Some(setting) = settings::of(value).filter(|_| settings::is_name(name)) {
                    self.visitor.setting(name, setting).map_err(stop)?;
                }
            }
        }
        Ok(())
    }

    /// Passes the elements of a list to the visitor, unless they were already `passed`.
    fn all(
        &mut self,
        heap: &mut Heap,
        fields: Fields,
        key: &str,
        list: Value,
        holds: Holds,
        passed: bool,
    ) -> Result<(), Halt<End>> {
        if passed {
            return Ok(());
        }
        let room = heap.charge_each::<()>(list)?;
        let items = fields.items(key, View::new(heap, list)).map_err(stop)?;
        heap.hand(list);
        items.into_iter().try_for_each(|item| self.pass_on(heap, holds, item, fields.offset()))?;
        heap.discharge(room);
        Ok(())
    }

    fn pass_on(&mut self, heap: &mut Heap, holds: Holds, element: Value, offset: u64) -> Result<(), Halt<End>> {
        let passed = match holds {
            Holds::Segments => {
                let segment = self.parts.segment(heap, element, offset)?;
                self.visitor.segment(segment)
            }
            Holds::Aliases => {
                let alias = self.parts.segment(heap, element, offset)?;
                self.visitor.alias(alias)
            }
            Holds::Entries(device) => {
                let entry = self.parts.entry(heap, element, offset)?;
                self.visitor.entry(device, entry)
            }
            Holds::Annotations => {
                let annotation = self.parts.annotation(View::new(heap, element), offset).map_err(stop)?;
                heap.hand(element);
                self.visitor.annotation(annotation)
            }
            Holds::Other => Ok(()),
        };
        passed.map_err(stop)
    }

    /// Passes the notes to the visitor, if they come before the lists. `below` contains the snapshot, and its keys and
    /// values.
    fn notes_ahead(&mut self, heap: &mut Heap, below: &[Value]) -> Result<(), End> {
        if self.looked_for_notes {
            return Ok(());
        }
        self.looked_for_notes = true;
        let Some((&root, pairs)) = below.split_first() else { return Ok(()) };
        let set = View::new(heap, root).get(notes::KEY).map(View::value);
        let is_key = |&value: &Value| View::new(heap, value).text().is_some_and(|key| &**key == notes::KEY);
        let pair = || pairs.chunks_exact(2).find(|pair| is_key(&pair[0])).map(|pair| pair[1]);
        match set.or_else(pair) {
            Some(found) => self.pass_notes(heap, found),
            None => Ok(()),
        }
    }

    fn pass_notes(&mut self, heap: &mut Heap, found: Value) -> Result<(), End> {
        self.noted = true;
        for notes in notes::read(heap, found)? {
            self.visitor.notes(notes)?;
        }
        Ok(())
    }
}

impl Sink for Passing<'_> {
    type Stop = End;

    fn takes(&mut self, heap: &mut Heap, place: &Place, below: &[Value]) -> Result<bool, End> {
        let Some(holds) = holds(place) else { return Ok(false) };
        self.notes_ahead(heap, below)?;
        match holds {
            // A list that is shared or repeated is read at the end.
            Holds::Segments if self.segments => return Ok(false),
            Holds::Aliases if self.aliases => return Ok(false),
            Holds::Annotations if self.annotations => return Ok(false),
            Holds::Entries(device) if device != self.histories => return Ok(false),
            Holds::Segments => self.segments = true,
            Holds::Aliases => self.aliases = true,
            Holds::Annotations => self.annotations = true,
            Holds::Entries(device) => {
                self.histories += 1;
                self.visitor.history(device)?;
            }
            Holds::Other => {}
        }
        Ok(true)
    }

    fn element(&mut self, heap: &mut Heap, place: &Place, element: Value, offset: u64) -> Result<(), Halt<End>> {
        holds(place).map_or(Ok(()), |holds| self.pass_on(heap, holds, element, offset))
    }

    fn shares(&self, part: View<'_>) -> bool {
        is_shared(part)
    }
}

/// Returns the contents of a list, or `None` if the list stays in memory.
fn holds(place: &Place) -> Option<Holds> {
    match place {
        Place::Root => Some(Holds::Segments),
        Place::Key(key) => match &**key {
            "segments" => Some(Holds::Segments),
            ALIASES => Some(Holds::Aliases),
            "external_annotations" => Some(Holds::Annotations),
            "device_traces" => None,
            _ => Some(Holds::Other),
        },
        Place::Index(key, device) if &**key == "device_traces" => u32::try_from(*device).ok().map(Holds::Entries),
        Place::Index(..) => None,
    }
}

fn no_segments(root: View<'_>) -> String {
    if root.get("memories_allocated").is_some() {
        return "not a snapshot, but a memory tracker's file: use `accel tracker`".to_owned();
    }
    let keys = root.pairs().into_iter().flatten().filter_map(|(key, _)| key.text());
    let keys: Vec<_> = keys.take(5).map(|key| format!("`{}`", excerpt(key))).collect();
    format!("not a snapshot, but another pickle: a dict without `segments`, with {}", keys.join(", "))
}

fn stop<S>(end: impl Into<S>) -> Halt<S> {
    Halt::Stop(end.into())
}
