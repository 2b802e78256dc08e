use std::collections::HashMap;

use super::fault::PickleFault;
use crate::limits::Budget;

const UNSET: u32 = u32::MAX;
const GONE: u32 = u32::MAX - 1;
const KEPT: u32 = 1 << 31;

/// The contents of a memo entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// An object that may still change.
    Live(u32),
    /// An object that is kept to the end.
    Kept(u32),
    /// An object that was handed over and forgotten.
    Gone,
}

/// The objects of a pickle, by the numbers that it uses to refer to them. An entry has only four bytes, since a pickle
/// of two gigabytes has a hundred million entries.
#[derive(Default)]
pub(super) struct Memo {
    dense: Vec<u32>,
    /// Numbers out of order, which no known writer produces.
    sparse: HashMap<u32, u32>,
    filled: usize,
}

impl Memo {
    /// Returns the number that `MEMOIZE` uses next.
    pub(super) fn next(&self) -> u32 {
        self.filled as u32 // each is charged, so the memory limit prevents an overflow
    }

    pub(super) fn put(&mut self, number: u32, slot: Slot, budget: &mut Budget) -> Result<(), PickleFault> {
        let coded = match slot {
            Slot::Live(part) => part,
            Slot::Kept(part) => part | KEPT,
            Slot::Gone => GONE,
        };
        let place = number as usize;
        // Python 2 starts with 1.
        if place == self.dense.len() + 1 && self.dense.is_empty() {
            budget.push(&mut self.dense, UNSET)?;
        }
        if place < self.dense.len() {
            self.filled += usize::from(self.dense[place] == UNSET);
            self.dense[place] = coded;
        } else if place == self.dense.len() {
            budget.push(&mut self.dense, coded)?;
            self.filled += usize::from(self.sparse.remove(&number).is_none());
        } else {
            budget.reserve_in_table(&mut self.sparse)?;
            self.filled += usize::from(self.sparse.insert(number, coded).is_none());
        }
        Ok(())
    }

    pub(super) fn slot(&self, number: u32) -> Option<Slot> {
        let dense = self.dense.get(number as usize).copied().filter(|&coded| coded != UNSET);
        let coded = dense.or_else(|| self.sparse.get(&number).copied())?;
        Some(match coded {
            GONE => Slot::Gone,
            kept if kept & KEPT != 0 => Slot::Kept(kept & !KEPT),
            live => Slot::Live(live),
        })
    }
}
