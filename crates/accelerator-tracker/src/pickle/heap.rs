use std::collections::HashMap;
use std::sync::Arc;

use super::fault::PickleFault;
use super::value::{Body, Kept, Part, Stay, Value};

/// How deeply a part that stays may be made of parts: a list of frames, each with its texts, and some more.
const KEPT_LEVELS: u32 = 6;

/// The parts of a pickle. They refer to one another by number, so a part that is in itself, or in a thousand others, is
/// nothing special.
pub(crate) struct Heap {
    live: Vec<Part>,
    kept: Vec<Kept>,
    numbers: HashMap<Kept, u32>,
    /// Bytes in use, about, and how many there may be.
    used: u64,
    limit: u64,
}

impl Heap {
    pub(super) fn new(limit: u64) -> Self {
        Self { live: Vec::new(), kept: Vec::new(), numbers: HashMap::new(), used: 0, limit }
    }

    /// How many parts there are that do not stay.
    pub(super) fn live(&self) -> u32 {
        self.live.len() as u32 // each is charged, and so many do not fit into the limit
    }

    pub(super) fn add(&mut self, offset: u64, body: Body) -> Result<Value, PickleFault> {
        self.charge(body.cost() + size_of::<Part>() as u64)?;
        let number = self.live();
        self.live.push(Part { offset, stay: Stay::Open, body });
        Ok(Value::Live(number))
    }

    /// Forgets all parts from this one on, those that stay apart.
    pub(super) fn forget_from(&mut self, first: u32) {
        for part in self.live.drain(first as usize..) {
            self.used -= part.body.cost() + size_of::<Part>() as u64;
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

    /// A part to change. What is put into it is charged by the caller.
    pub(super) fn body_mut(&mut self, number: u32) -> Option<&mut Body> {
        self.live.get_mut(number as usize).map(|part| &mut part.body)
    }

    /// Whether there is room for so many bytes beside those that are counted.
    pub(super) fn has_room(&self, bytes: u64) -> Result<(), PickleFault> {
        if self.used + bytes > self.limit { Err(PickleFault::TooLarge { limit: self.limit }) } else { Ok(()) }
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

    /// Counts bytes that are about to be used.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), PickleFault> {
        self.has_room(bytes)?;
        self.used += bytes;
        Ok(())
    }

    /// No longer used.
    pub(super) fn discharge(&mut self, bytes: u64) {
        self.used -= bytes;
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
        let kept = self.keep_part(number, levels)?;
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
            Kept::Plain(_) => 0,
            Kept::Text(text) => text.len(),
            Kept::Bytes(bytes) => bytes.len(),
            Kept::List(numbers) | Kept::Tuple(numbers) => 4 * numbers.len(),
            Kept::Dict(pairs) => 8 * pairs.len(),
        };
        self.charge((payload + 3 * size_of::<Kept>()) as u64)?;
        let number = self.kept.len() as u32; // as in `live`
        self.kept.push(kept.clone());
        self.numbers.insert(kept, number);
        Ok(number)
    }
}
