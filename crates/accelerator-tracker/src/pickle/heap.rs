use std::collections::HashMap;
use std::sync::Arc;

use super::fault::PickleFault;
use super::value::{Body, Kept, Part, Stay, Value};
use super::view::View;
use crate::limits::{ALLOCATION, Budget, Limits};

/// The maximum nesting of a kept object: enough for a list of frames, each with its strings, and a few more levels.
const KEPT_LEVELS: u32 = 6;

/// The objects of a pickle. They refer to each other by number, so an object may contain itself or be shared by a
/// thousand others.
pub(crate) struct Heap {
    live: Vec<Part>,
    kept: Vec<Kept>,
    numbers: HashMap<Kept, u32>,
    limits: Limits,
    /// The budget for the memory of the objects and of everything else that is stored while the pickle is read.
    pub(super) budget: Budget,
}

impl Heap {
    pub(super) fn new(limits: Limits) -> Self {
        let budget = Budget::new(limits.memory_of_pickle(0));
        Self { live: Vec::new(), kept: Vec::new(), numbers: HashMap::new(), limits, budget }
    }

    /// Notes how many bytes of the pickle were read. A longer pickle may use more memory.
    pub(super) fn was_read(&mut self, bytes: u64) {
        self.budget.set_limit(self.limits.memory_of_pickle(bytes));
    }

    /// Returns the number of objects that are not kept.
    pub(super) fn live(&self) -> u32 {
        self.live.len() as u32 // each is charged, so the memory limit prevents an overflow
    }

    pub(super) fn add(&mut self, offset: u64, body: Body) -> Result<Value, PickleFault> {
        self.budget.charge(body.cost())?;
        let number = self.live();
        self.budget.push(&mut self.live, Part { offset, stay: Stay::Open, body })?;
        Ok(Value::Live(number))
    }

    /// Forgets all objects from this one on. Kept objects are stored separately.
    pub(super) fn forget_from(&mut self, first: u32) {
        for part in self.live.drain(first as usize..) {
            self.budget.discharge(part.body.cost());
        }
    }

    pub(super) fn part(&self, number: u32) -> Option<&Part> {
        self.live.get(number as usize)
    }

    pub(super) fn kept(&self, number: u32) -> Option<&Kept> {
        self.kept.get(number as usize)
    }

    /// Returns a kept value. A small value is stored directly.
    pub(super) fn kept_value(&self, number: u32) -> Value {
        match self.kept(number) {
            Some(Kept::Plain(value)) => *value,
            _ => Value::Kept(number),
        }
    }

    pub(super) fn body_mut(&mut self, number: u32) -> Option<&mut Body> {
        self.live.get_mut(number as usize).map(|part| &mut part.body)
    }

    /// Returns an object to change, and the budget for its memory.
    pub(super) fn change(&mut self, number: u32) -> Option<(&mut Body, &mut Budget)> {
        let part = self.live.get_mut(number as usize)?;
        Some((&mut part.body, &mut self.budget))
    }

    /// Marks a list or dictionary as handed over, so that it is not handed over again. So an object that thousands of
    /// others share is not expanded thousands of times.
    pub(crate) fn hand(&mut self, value: Value) {
        let Value::Live(number) = value else { return };
        match self.body_mut(number) {
            Some(Body::List { items, handed }) => *handed = !items.is_empty(),
            Some(Body::Dict { pairs, handed, .. }) => *handed = !pairs.is_empty(),
            _ => {}
        }
    }

    /// Counts bytes that a caller creates from the objects and keeps to the end.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), PickleFault> {
        Ok(self.budget.charge(bytes as u64 + ALLOCATION)?)
    }

    /// Counts a copy of the values of a list, and a `T` for each. Returns the bytes, which a caller that drops them
    /// discharges.
    pub(crate) fn charge_each<T>(&mut self, list: Value) -> Result<u64, PickleFault> {
        let count = View::new(self, list).items().map_or(0, |items| items.len());
        let bytes = (count * (size_of::<Value>() + size_of::<T>())) as u64 + 2 * ALLOCATION;
        self.budget.charge(bytes)?;
        Ok(bytes)
    }

    /// Stops counting bytes that are dropped.
    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.budget.discharge(bytes);
    }

    /// Returns the number of a value among those that are kept to the end, and adds the value if necessary. Returns
    /// `None` if it cannot be kept, because it is nested too deeply, contains itself, or was partly handed over.
    pub(crate) fn keep(&mut self, value: Value) -> Result<Option<u32>, PickleFault> {
        self.keep_to(value, KEPT_LEVELS)
    }

    fn keep_to(&mut self, value: Value, levels: u32) -> Result<Option<u32>, PickleFault> {
        let number = match value {
            Value::Kept(number) => return Ok(Some(number)),
            Value::Gone => return Ok(None),
            Value::Live(number) => number,
            plain => return self.kept_number(Kept::Plain(plain)).map(Some),
        };
        let Some(part) = self.part(number) else { return Ok(None) };
        match part.stay {
            Stay::Kept(kept) => return Ok(Some(kept)),
            Stay::Never => return Ok(None),
            Stay::Open => {}
        }
        // An object that contains itself reaches this function again before the result is known.
        self.set_stay(number, Stay::Never);
        // Temporary copies: first of values, then of numbers, twice.
        let copies = self.part(number).map_or(0, |part| 2 * part.body.cost());
        self.budget.charge(copies)?;
        let kept = self.keep_part(number, levels)?;
        self.budget.discharge(copies);
        let kept = kept.map(|kept| self.kept_number(kept)).transpose()?;
        if let Some(kept) = kept {
            self.set_stay(number, Stay::Kept(kept));
        }
        Ok(kept)
    }

    /// Returns the kept form of an object.
    fn keep_part(&mut self, number: u32, levels: u32) -> Result<Option<Kept>, PickleFault> {
        let Some(part) = self.part(number).filter(|_| levels > 0) else { return Ok(None) };
        Ok(match &part.body {
            Body::Text(text) => Some(Kept::Text(Arc::clone(text))),
            Body::Bytes(bytes) => Some(Kept::Bytes(Arc::clone(bytes))),
            Body::List { handed: true, .. } | Body::Dict { handed: true, .. } | Body::Set(_) => None,
            Body::List { items, .. } => {
                let items = items.clone();
                self.keep_all(&items, levels)?.map(|items| Kept::List(items.into()))
            }
            Body::Tuple(items) => {
                let items = items.clone();
                self.keep_all(&items, levels)?.map(|items| Kept::Tuple(items.into()))
            }
            Body::Dict { pairs, .. } => {
                let flat: Vec<_> = pairs.iter().flat_map(|&(key, value)| [key, value]).collect();
                let flat = self.keep_all(&flat, levels)?;
                flat.map(|flat| Kept::Dict(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()))
            }
        })
    }

    fn set_stay(&mut self, number: u32, stay: Stay) {
        if let Some(part) = self.live.get_mut(number as usize) {
            part.stay = stay;
        }
    }

    fn keep_all(&mut self, values: &[Value], levels: u32) -> Result<Option<Vec<u32>>, PickleFault> {
        let mut numbers = Vec::with_capacity(values.len());
        for &value in values {
            match self.keep_to(value, levels - 1)? {
                Some(number) => numbers.push(number),
                None => return Ok(None),
            }
        }
        Ok(Some(numbers))
    }

    fn kept_number(&mut self, kept: Kept) -> Result<u32, PickleFault> {
        if let Some(&number) = self.numbers.get(&kept) {
            return Ok(number);
        }
        let payload = match &kept {
            Kept::Plain(_) => None,
            Kept::Text(text) => Some(text.len()),
            Kept::Bytes(bytes) => Some(bytes.len()),
            Kept::List(numbers) | Kept::Tuple(numbers) => Some(4 * numbers.len()),
            Kept::Dict(pairs) => Some(8 * pairs.len()),
        };
        self.budget.charge(payload.map_or(0, |bytes| bytes as u64 + 2 * ALLOCATION))?;
        self.budget.reserve_in_table(&mut self.numbers)?;
        let number = self.kept.len() as u32; // as in `live`
        self.budget.push(&mut self.kept, kept.clone())?;
        self.numbers.insert(kept, number);
        Ok(number)
    }
}
