//! Information for which PyTorch's format has no place, under a key that PyTorch ignores.

use std::io::{self, Write};
use std::sync::Arc;

use super::fields::{Fields, Wrong};
use super::types::{DeviceNotes, Note, NoteKind, PoolId};
use crate::file::excerpt;
use crate::pickle::{Heap, Value, View, Writer};

/// The key in the snapshot. It comes first, so that a reader receives the notes before everything else.
pub(super) const KEY: &str = "accelerator";

const VERSION: u64 = 1;

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

/// Reads the notes. All of their memory counts, since a file can refer to a string a million times.
pub(super) fn read(heap: &mut Heap, value: Value) -> Result<Vec<DeviceNotes>, Wrong> {
    let view = View::new(heap, value);
    let fields = Fields::new("the value of `accelerator`", view, 0);
    let mut devices = None;
    for (key, value) in fields.of_own(view)? {
        match &**key {
            "version" if value.unsigned() == Some(VERSION) => {}
            "version" => {
                let what = "was written by a newer version of this library: read it with that one";
                return Err(fields.wrong(format!("the snapshot {what}")));
            }
            "devices" => devices = Some(value.value()),
            _ => {}
        }
    }
    all(heap, fields, "devices", devices, device)
}

/// Makes something of each element of a list. If there is no list, it is empty.
fn all<T>(
    heap: &mut Heap,
    fields: Fields,
    key: &str,
    list: Option<Value>,
    made: fn(&mut Heap, Value, Fields) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let Some(list) = list else { return Ok(Vec::new()) };
    heap.charge_each::<T>(list).map_err(|fault| fields.too_large(fault))?;
    let items = fields.items(key, View::new(heap, list))?;
    heap.hand(list);
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        all.push(made(heap, item, fields)?);
    }
    Ok(all)
}

fn device(heap: &mut Heap, value: Value, outer: Fields) -> Result<DeviceNotes, Wrong> {
    let view = View::new(heap, value);
    let fields = Fields::new("the notes of a device", view, outer.offset());
    let mut read = DeviceNotes { memory_fraction: 1.0, ..DeviceNotes::default() };
    let (mut kind, mut name, mut settings) = (None, None, None);
    let (mut order, mut pools, mut notes) = (None, None, None);
    for (key, value) in fields.of_own(view)? {
        match &**key {
            "device" => read.device = fields.device(key, value)?,
            "kind" => kind = Some(Arc::clone(fields.text(key, value)?)),
            "name" => name = Some(Arc::clone(fields.text(key, value)?)),
            "total_memory" => read.total_memory = fields.unsigned(key, value)?,
            "settings" => settings = Some(Arc::clone(fields.text(key, value)?)),
            "memory_fraction" => read.memory_fraction = fields.float(key, value)?,
            "dropped" => read.dropped = fields.unsigned(key, value)?,
            "segment_order" => order = Some(value.value()),
            "pool_names" => pools = Some(value.value()),
            "notes" => notes = Some(value.value()),
            _ => {}
        }
    }
    heap.hand(value);
    for (text, read) in [(kind, &mut read.kind), (name, &mut read.name), (settings, &mut read.settings)] {
        *read = text.map_or(Ok(String::new()), |text| copy(heap, fields, &text))?;
    }
    read.segment_order = all(heap, fields, "segment_order", order, |heap, item, fields| {
        fields.unsigned("segment_order", View::new(heap, item))
    })?;
    read.pool_names = all(heap, fields, "pool_names", pools, pool_name)?;
    read.notes = all(heap, fields, "notes", notes, note)?;
    Ok(read)
}

fn pool_name(heap: &mut Heap, value: Value, outer: Fields) -> Result<(PoolId, String), Wrong> {
    let view = View::new(heap, value);
    let fields = Fields::new("the name of a pool", view, outer.offset());
    let (mut pool, mut name) = (None, None);
    for (key, value) in fields.of_own(view)? {
        match &**key {
            "pool" => pool = Some(fields.pair(key, value)?),
            "name" => name = Some(Arc::clone(fields.text(key, value)?)),
            _ => {}
        }
    }
    heap.hand(value);
    let name = name.ok_or_else(|| fields.missing("name"))?;
    Ok((pool.ok_or_else(|| fields.missing("pool"))?, copy(heap, fields, &name)?))
}

fn note(heap: &mut Heap, value: Value, outer: Fields) -> Result<Note, Wrong> {
    let view = View::new(heap, value);
    let fields = Fields::new("a note", view, outer.offset());
    let (mut before, mut kind, mut of) = (None, None, None);
    for (key, value) in fields.of_own(view)? {
        match &**key {
            "before" => before = Some(fields.unsigned(key, value)?),
            "kind" => kind = Some(fields.text(key, value)?),
            "value" => of = Some(value),
            _ => {}
        }
    }
    let before = before.ok_or_else(|| fields.missing("before"))?;
    let of = of.ok_or_else(|| fields.missing("value"));
    let kind = match &**kind.ok_or_else(|| fields.missing("kind"))? {
        "cache_emptied" => NoteKind::CacheEmptied,
        "refused" => NoteKind::Refused,
        "settings" => {
            let settings = Arc::clone(fields.text("value", of?)?);
            NoteKind::Settings(copy(heap, fields, &settings)?)
        }
        "memory_fraction" => NoteKind::MemoryFraction(fields.float("value", of?)?),
        other => return Err(fields.wrong(format!("unknown kind of note `{}`", excerpt(other)))),
    };
    heap.hand(value);
    Ok(Note { before, kind })
}

fn copy(heap: &mut Heap, fields: Fields, text: &str) -> Result<String, Wrong> {
    heap.charge(text.len()).map_err(|fault| fields.too_large(fault))?;
    Ok(text.to_owned())
}
