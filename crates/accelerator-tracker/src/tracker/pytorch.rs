//! Reads and writes a run in the format of PyTorch's `MemoryTracker`: a pickle of a dictionary, with amounts in MiB.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::Path;

use super::BYTES_PER_MIB;
use super::files::foreign;
use super::stats::{Marker, MemoryUse, OperatorStats, TrackerStats};
use crate::file::{FileError, excerpt};
use crate::limits::{Budget, LimitError, Limits};
use crate::pickle::{self, PickleError, View, Writer};

const ALLOCATED: &str = "memories_allocated";
const ACTIVE: &str = "memories_active";
const RESERVED: &str = "memories_reserved";
const MARKERS: &str = "markers";
const RETRIES: &str = "num_alloc_retries";
const COUNT: &str = "op_index";

/// The key of information for which PyTorch's format has no place. PyTorch ignores it.
const OURS: &str = "accelerator";
const VERSION: &str = "version";
const DEVICE: &str = "device";
const TOTAL_MEMORY: &str = "total_memory";
/// The key that says whether the first entry is the memory at the start instead of an operator.
const HAS_START: &str = "has_start";
/// The name of that entry. PyTorch's summary counts relative to the first entry, so it omits none of our operators.
const START: &str = "start_monitor";

/// Returns the amount of memory that a dictionary in the file contains.
type Amount = fn(&MemoryUse) -> u64;

pub(super) fn write(stats: &TrackerStats, out: &mut dyn Write) -> io::Result<()> {
    let TrackerStats { device, total_memory, start, operators, markers, num_alloc_retries } = stats;
    let first = start.iter().map(|memory| (START, memory));
    let entries = first.chain(operators.iter().map(|operator| (operator.name.as_str(), &operator.memory)));
    let shift = u64::from(start.is_some());

    let mut pickle = Writer::new(out)?;
    pickle.open_dict()?;
    let amounts: [(&str, Amount); 3] = [
        (ALLOCATED, |memory| memory.allocated),
        (ACTIVE, |memory| memory.active),
        (RESERVED, |memory| memory.reserved),
    ];
    for (key, amount) in amounts {
        pickle.text(key)?;
        pickle.dict((0_u64..).zip(entries.clone()), |pickle, (index, (name, memory))| {
            pickle.integer(index)?;
            pickle.text(name)?;
            // The largest amounts would be rounded up to what no device has.
            let bytes = (amount(memory) as f64).min((MemoryUse::END as f64).next_down());
            pickle.float(bytes / BYTES_PER_MIB)?;
            pickle.pair()
        })?;
    }
    pickle.text(MARKERS)?;
    pickle.dict(last_of_each(markers), |pickle, (name, position)| {
        pickle.text(name)?;
        pickle.integer(position as u64 + shift)
    })?;
    pickle.text(RETRIES)?;
    pickle.integer(*num_alloc_retries)?;
    pickle.text(COUNT)?;
    pickle.integer(operators.len() as u64 + shift)?;

    pickle.text(OURS)?;
    pickle.open_dict()?;
    pickle.text(VERSION)?;
    pickle.integer(1)?;
    pickle.text(HAS_START)?;
    pickle.flag(start.is_some())?;
    if let Some(device) = device {
        pickle.text(DEVICE)?;
        pickle.text(device)?;
    }
    if let Some(total_memory) = total_memory {
        pickle.text(TOTAL_MEMORY)?;
        pickle.integer(*total_memory)?;
    }
    pickle.close_dict()?;
    pickle.close_dict()?;
    pickle.finish()
}

/// Returns markers by name, as in a Python dictionary: the last position of each, in the order of first occurrence.
fn last_of_each(markers: &[Marker]) -> Vec<(&str, usize)> {
    let mut places = HashMap::new();
    let mut kept: Vec<(&str, usize)> = Vec::new();
    for Marker { name, position, .. } in markers {
        let place = *places.entry(name.as_str()).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(earlier) => earlier.1 = *position,
            None => kept.push((name, *position)),
        }
    }
    kept
}

pub(super) fn read(reader: &mut dyn Read, path: &Path, limits: Limits) -> Result<TrackerStats, FileError> {
    let pickle = pickle::read(reader, path, limits)?;
    let mut file = PyTorchFile { path, root: pickle.root(), budget: pickle.budget() };
    file.check_kind()?;
    let allocated = file.amounts(ALLOCATED)?;
    let active = file.amounts(ACTIVE)?;
    let reserved = file.amounts(RESERVED)?;
    let count = match file.root.get(COUNT) {
        Some(count) => file.number(count, COUNT)?,
        None => allocated.len() as u64, // older files do not contain it
    };
    let mut operators = Vec::new();
    for index in 0..count {
        let (name, allocated) = file.entry(&allocated, ALLOCATED, index)?;
        let (_, active) = file.entry(&active, ACTIVE, index)?;
        let (_, reserved) = file.entry(&reserved, RESERVED, index)?;
        let memory = MemoryUse { allocated, active, reserved };
        let name = file.copy(name)?;
        file.keep(&mut operators, OperatorStats { name, time: None, memory })?;
    }
    let markers = file.markers(count)?;
    let num_alloc_retries = file.number(file.part(RETRIES)?, RETRIES)?;
    let stats = TrackerStats { operators, markers, num_alloc_retries, ..TrackerStats::default() };
    Ok(with_ours(stats, file.root.get(OURS)))
}

/// Adds the additional information from our own files.
fn with_ours(mut stats: TrackerStats, ours: Option<View<'_>>) -> TrackerStats {
    let part = |key| ours.and_then(|ours| ours.get(key));
    stats.device = part(DEVICE).and_then(View::text).map(|device| device.to_string());
    stats.total_memory = part(TOTAL_MEMORY).and_then(View::unsigned);
    if part(HAS_START).and_then(View::flag) == Some(true) && !stats.operators.is_empty() {
        stats.start = Some(stats.operators.remove(0).memory);
        stats.markers.iter_mut().for_each(|marker| marker.position = marker.position.saturating_sub(1));
    }
    stats
}

struct PyTorchFile<'a> {
    path: &'a Path,
    root: View<'a>,
    /// The memory of the pickle and of everything created from it. A file can refer to the same part a million times.
    budget: Budget,
}

/// The name and the bytes of each operator, by its index.
type Amounts<'a> = HashMap<u64, (&'a str, u64)>;

impl<'a> PyTorchFile<'a> {
    fn check_kind(&self) -> Result<(), FileError> {
        let seems = match self.root.pairs() {
            Some(_) if self.root.get(ALLOCATED).is_some() => return Ok(()),
            Some(_) if self.root.get("segments").is_some() => {
                "it is a snapshot of allocators, such as `torch.cuda.memory._dump_snapshot` writes".to_owned()
            }
            Some(_) => format!("it is a pickle of a dict without `{ALLOCATED}`"),
            None => format!("it is a pickle of {}", self.root.type_name()),
        };
        Err(FileError::content(self.path, 0, foreign(&seems)))
    }

    fn amounts(&mut self, key: &str) -> Result<Amounts<'a>, FileError> {
        let part = self.part(key)?;
        let pairs =
            part.pairs().ok_or_else(|| self.wrong(part, format!("`{key}` is {}, not a dict", part.type_name())))?;
        let mut amounts = Amounts::new();
        for (index, value) in pairs {
            let (index, amount) = self.amount(key, index, value)?;
            let counted = self.budget.reserve_in_table(&mut amounts);
            counted.map_err(|limit| self.beyond(part, limit))?;
            amounts.insert(index, amount);
        }
        Ok(amounts)
    }

    fn amount(&self, key: &str, index: View<'a>, value: View<'a>) -> Result<(u64, (&'a str, u64)), FileError> {
        let index = self.number(index, key)?;
        let mut items = value.items().into_iter().flatten();
        let name = items.next().and_then(View::text);
        let amount =
            items.next().and_then(|amount| amount.float().or_else(|| amount.unsigned().map(|whole| whole as f64)));
        match name.zip(amount) {
            // The range also excludes infinity and NaN.
            Some((name, mib)) if (0.0..MemoryUse::END as f64).contains(&(mib * BYTES_PER_MIB)) => {
                Ok((index, (&**name, (mib * BYTES_PER_MIB).round() as u64)))
            }
            _ => Err(self.wrong(value, format!("`{key}` has no name and amount of memory for operator {index}"))),
        }
    }

    fn entry(&self, amounts: &Amounts<'a>, key: &str, index: u64) -> Result<(&'a str, u64), FileError> {
        let missing = || self.wrong(self.root, format!("`{key}` lacks operator {index}"));
        amounts.get(&index).copied().ok_or_else(missing)
    }

    /// Copies a name.
    fn copy(&mut self, name: &str) -> Result<String, FileError> {
        let counted = self.budget.charge(name.len() as u64);
        counted.map_err(|limit| self.beyond(self.root, limit))?;
        Ok(name.to_owned())
    }

    fn keep<T>(&mut self, list: &mut Vec<T>, element: T) -> Result<(), FileError> {
        self.budget.push(list, element).map_err(|limit| self.beyond(self.root, limit))
    }

    /// Returns the markers. `count` is the number of operators.
    fn markers(&mut self, count: u64) -> Result<Vec<Marker>, FileError> {
        let part = self.part(MARKERS)?;
        let pairs =
            part.pairs().ok_or_else(|| self.wrong(part, format!("`{MARKERS}` is {}, not a dict", part.type_name())))?;
        let mut markers = Vec::new();
        for (name, position) in pairs {
            let name =
                name.text().ok_or_else(|| self.wrong(part, format!("`{MARKERS}` has a name that is not a str")))?;
            let position = self.number(position, MARKERS)?;
            if position > count {
                let name = excerpt(name);
                let reason = format!(
                    "the marker `{name}` comes after {position} operators, but there are only \
                                      {count}"
                );
                return Err(self.wrong(part, reason));
            }
            let name = self.copy(name)?;
            self.keep(&mut markers, Marker { name, position: position as usize, time: None })?;
        }
        Ok(markers)
    }

    fn part(&self, key: &str) -> Result<View<'a>, FileError> {
        self.root.get(key).ok_or_else(|| self.wrong(self.root, format!("`{key}` is missing")))
    }

    fn number(&self, number: View<'a>, key: &str) -> Result<u64, FileError> {
        let wrong = || self.wrong(number, format!("`{key}` has {} where a count should be", number.type_name()));
        number.unsigned().ok_or_else(wrong)
    }

    /// Returns an error in a part, at its offset if it has one.
    fn wrong(&self, part: View<'a>, reason: String) -> FileError {
        FileError::content(self.path, part.offset().unwrap_or_default(), reason)
    }

    fn beyond(&self, part: View<'a>, limit: LimitError) -> FileError {
        let source = PickleError { offset: part.offset().unwrap_or_default(), fault: limit.into() };
        FileError::Pickle { path: self.path.to_owned(), source }
    }
}
