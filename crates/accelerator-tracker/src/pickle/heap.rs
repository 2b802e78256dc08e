use std::collections::HashMap;
use std::sync::Arc;

use super::fault::PickleFault;
use super::value::{Body, Kept, Part, Stay, Value};
use crate::limits::{ALLOCATION, Budget, Limits};

/// How deeply a part that stays may be made of parts: a list of frames, each with its texts, and some more.
const KEPT_LEVELS: u32 = 6;

/// The parts of a pickle. They refer to one another by number, so a part that is in itself, or in a thousand others, is
/// nothing special.
pub(crate) struct Heap {
    live: Vec<Part>,
    kept: Vec<Kept>,
    numbers: HashMap<Kept, u32>,
    limits: Limits,
    /// The memory of this and of all else that is held while the pickle is read.
    pub(super) budget: Budget,
}

impl Heap {
    pub(super) fn new(limits: Limits) -> Self {
        let budget = Budget::new(limits.memory_of_pickle(0));
        Self { live: Vec::new(), kept: Vec::new(), numbers: HashMap::new(), limits, budget }
    }

    /// Says how much of the pickle was read: more may be held of a longer one.
    pub(super) fn was_read(&mut self, bytes: u64) {
        self.budget.set_limit(self.limits.memory_of_pickle(bytes));
    }

    /// How many parts there are that do not stay.
    pub(super) fn live(&self) -> u32 {
        self.live.len() as u32 // each is charged, and so many do not fit into the limit
    }

    pub(super) fn add(&mut self, offset: u64, body: Body) -> Result<Value, PickleFault> {
        self.budget.charge(body.cost())?;
        let number = self.live();
        self.budget.push(&mut self.live, Part { offset, stay: Stay::Open, body })?;
        Ok(Value::Live(number))
    }

    /// Forgets all parts from this one on, those that stay apart.
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

    /// A value that stays: by itself where it is no part.
    pub(super) fn kept_value(&self, number: u32) -> Value {
        match self.kept(number) {
            Some(Kept::Plain(value)) => *value,
            _ => Value::Kept(number),
        }
    }

    pub(super) fn body_mut(&mut self, number: u32) -> Option<&mut Body> {
        self.live.get_mut(number as usize).map(|part| &mut part.body)
    }

    /// A part to change, and what counts the memory of that.
    pub(super) fn change(&mut self, number: u32) -> Option<(&mut Body, &mut Budget)> {
        let part = self.live.get_mut(number as usize)?;
        Some((&mut part.body, &mut self.budget))
    }

    /// Marks a list or dictionary as handed over: nobody gets it again. So what is shared by thousands of others is not
    /// unfolded thousands of times.
    pub(crate) fn hand(&mut self, value: Value) {
        let Value::Live(number) = value else { return };
        match self.body_mut(number) {
            Some(Body::List { items, handed }) => *handed = !items.is_empty(),
            Some(Body::Dict { pairs, handed, .. }) => *handed = !pairs.is_empty(),
            _ => {}
        }
    }

    /// Counts bytes that somebody makes of the parts and holds to the end.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), PickleFault> {
        Ok(self.budget.charge(bytes as u64 + ALLOCATION)?)
    }

    /// The number of a value among what stays to the end; it is put there now if it was not. `None`: it cannot be, being
    /// too deep, in itself, or partly gone.
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
        // Until it is known: a part that is in itself comes here again.
        self.set_stay(number, Stay::Never);
        // What is copied on the way: values, then numbers, twice.
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

    /// What a part is among those that stay.
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
