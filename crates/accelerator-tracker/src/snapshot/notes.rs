//! Information for which PyTorch's format has no place, under a key that PyTorch ignores.

use std::io::{self, Write};

use super::fields::{Fields, Wrong};
use super::types::{DeviceNotes, Note, NoteKind, PoolId};
use crate::file::excerpt;
use crate::pickle::{Heap, Value, View, Writer};

/// The key in the snapshot. It comes first, so that a reader receives the notes before everything else.
pub(super) const KEY: &str = "accelerator";

const VERSION: u64 = 1;

/// The maximum total size of strings and addresses in bytes. They are copied, and a file can refer to a string a
/// million times.
const MOST: usize = 1 << 26;

pub(super) fn write<W: Write>(out: &mut Writer<W>, devices: &[DeviceNotes]) -> io::Result<()> {
    out.open_dict()?;
    out.text("version")?;
    out.integer(VERSION)?;
    out.text("devices")?;
    out.list(devices, write_device)?;
    out.close_dict()
}

fn write_device<W: Write>(out: &mut Writer<W>, device: &DeviceNotes) -> io::Result<()> {
    let DeviceNotes {
        device,
        kind,
        name,
        total_memory,
        settings,
        memory_fraction,
        dropped,
        segment_order,
        pool_names,
        notes,
    } = device;
    out.open_dict()?;
    out.text("device")?;
    out.integer(*device)?;
    out.text("kind")?;
    out.text_once(kind)?;
    out.text("name")?;
    out.text_once(name)?;
    out.text("total_memory")?;
    out.integer(*total_memory)?;
    out.text("settings")?;
    out.text_once(settings)?;
    out.text("memory_fraction")?;
    out.float(*memory_fraction)?;
    out.text("dropped")?;
    out.integer(*dropped)?;
    out.text("segment_order")?;
    out.list(segment_order, |out, &address| out.integer(address))?;
    if !pool_names.is_empty() {
        out.text("pool_names")?;
        out.list(pool_names, write_pool_name)?;
    }
    out.text("notes")?;
    out.list(notes, write_note)?;
    out.close_dict()
}

fn write_pool_name<W: Write>(out: &mut Writer<W>, ((graph, user), name): &(PoolId, String)) -> io::Result<()> {
    out.open_dict()?;
    out.text("pool")?;
    out.integer(*graph)?;
    out.integer(*user)?;
    out.pair()?;
    out.text("name")?;
    out.text_once(name)?;
    out.close_dict()
}

fn write_note<W: Write>(out: &mut Writer<W>, note: &Note) -> io::Result<()> {
    out.open_dict()?;
    out.text("before")?;
    out.integer(note.before)?;
    out.text("kind")?;
    match &note.kind {
        NoteKind::CacheEmptied => out.text("cache_emptied")?,
        NoteKind::Refused => out.text("refused")?,
        NoteKind::Settings(settings) => {
            out.text("settings")?;
            out.text("value")?;
            out.text_once(settings)?;
        }
        NoteKind::MemoryFraction(fraction) => {
            out.text("memory_fraction")?;
            out.text("value")?;
            out.float(*fraction)?;
        }
    }
    out.close_dict()
}

pub(super) fn read(heap: &mut Heap, value: Value) -> Result<Vec<DeviceNotes>, Wrong> {
    let view = View::new(heap, value);
    let fields = Fields::new("the value of `accelerator`", view, 0);
    let mut devices = Vec::new();
    for (key, value) in fields.of_own(view)? {
        match &**key {
            "version" if value.unsigned() == Some(VERSION) => {}
            "version" => {
                let what = "was written by a newer version of this library: read it with that one";
                return Err(fields.wrong(format!("the snapshot {what}")));
            }
            "devices" => devices = fields.items(key, value)?,
            _ => {}
        }
    }
    let mut reading = Reading { heap, bytes: MOST };
    devices.into_iter().map(|device| reading.device(device, fields.offset())).collect()
}

struct Reading<'h> {
    heap: &'h mut Heap,
    /// The number of bytes that may still be copied.
    bytes: usize,
}

impl Reading<'_> {
    fn device(&mut self, value: Value, offset: u64) -> Result<DeviceNotes, Wrong> {
        let view = View::new(self.heap, value);
        let fields = Fields::new("the notes of a device", view, offset);
        let mut read = DeviceNotes { memory_fraction: 1.0, ..DeviceNotes::default() };
        let (mut order, mut pools, mut notes) = (None, None, None);
        for (key, value) in fields.of_own(view)? {
            match &**key {
                "device" => read.device = fields.device(key, value)?,
                "kind" => read.kind = copy(&mut self.bytes, fields, key, value)?,
                "name" => read.name = copy(&mut self.bytes, fields, key, value)?,
                "total_memory" => read.total_memory = fields.unsigned(key, value)?,
                "settings" => read.settings = copy(&mut self.bytes, fields, key, value)?,
                "memory_fraction" => read.memory_fraction = fields.float(key, value)?,
                "dropped" => read.dropped = fields.unsigned(key, value)?,
                "segment_order" => order = Some(value),
                "pool_names" => pools = Some(value.value()),
                "notes" => notes = Some(value.value()),
                _ => {}
            }
        }
        if let Some(order) = order {
            let items = order.items().ok_or_else(|| fields.unfit("segment_order", order, "a list"))?;
            spend(&mut self.bytes, 8 * items.len(), fields)?;
            let addresses = items.map(|item| fields.unsigned("segment_order", item));
            read.segment_order = addresses.collect::<Result<_, _>>()?;
        }
        for part in [Some(value), order.map(View::value)].into_iter().flatten() {
            self.heap.hand(part);
        }
        if let Some(pools) = pools {
            let items = fields.items("pool_names", View::new(self.heap, pools))?;
            self.heap.hand(pools);
            read.pool_names =
                items.into_iter().map(|item| self.pool_name(item, fields.offset())).collect::<Result<_, _>>()?;
        }
        if let Some(notes) = notes {
            let items = fields.items("notes", View::new(self.heap, notes))?;
            self.heap.hand(notes);
            read.notes = items.into_iter().map(|item| self.note(item, fields.offset())).collect::<Result<_, _>>()?;
        }
        Ok(read)
    }

    fn pool_name(&mut self, value: Value, offset: u64) -> Result<(PoolId, String), Wrong> {
        let view = View::new(self.heap, value);
        let fields = Fields::new("the name of a pool", view, offset);
        let (mut pool, mut name) = (None, None);
        for (key, value) in fields.of_own(view)? {
            match &**key {
                "pool" => pool = Some(fields.pair(key, value)?),
                "name" => name = Some(copy(&mut self.bytes, fields, key, value)?),
                _ => {}
            }
        }
        self.heap.hand(value);
        Ok((pool.ok_or_else(|| fields.missing("pool"))?, name.ok_or_else(|| fields.missing("name"))?))
    }

    fn note(&mut self, value: Value, offset: u64) -> Result<Note, Wrong> {
        let view = View::new(self.heap, value);
        let fields = Fields::new("a note", view, offset);
        let (mut before, mut kind, mut of) = (None, None, None);
        for (key, value) in fields.of_own(view)? {
            match &**key {
                "before" => before = Some(fields.unsigned(key, value)?),
                "kind" => kind = Some(fields.text(key, value)?),
                "value" => of = Some(value),
                _ => {}
            }
        }
        let of = of.ok_or_else(|| fields.missing("value"));
        let kind = match &**kind.ok_or_else(|| fields.missing("kind"))? {
            "cache_emptied" => NoteKind::CacheEmptied,
            "refused" => NoteKind::Refused,
            "settings" => NoteKind::Settings(copy(&mut self.bytes, fields, "value", of?)?),
            "memory_fraction" => NoteKind::MemoryFraction(fields.float("value", of?)?),
            other => return Err(fields.wrong(format!("unknown kind of note `{}`", excerpt(other)))),
        };
        self.heap.hand(value);
        Ok(Note { before: before.ok_or_else(|| fields.missing("before"))?, kind })
    }
}

fn copy(left: &mut usize, fields: Fields, key: &str, value: View<'_>) -> Result<String, Wrong> {
    let text = fields.text(key, value)?;
    spend(left, text.len(), fields)?;
    Ok(text.to_string())
}

fn spend(left: &mut usize, bytes: usize, fields: Fields) -> Result<(), Wrong> {
    let rest = left.checked_sub(bytes);
    *left = rest.ok_or_else(|| fields.wrong(format!("the notes have more than {MOST} bytes")))?;
    Ok(())
}
