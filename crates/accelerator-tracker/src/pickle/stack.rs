use super::fault::PickleFault;
use super::value::Value;
use crate::limits::Budget;

/// The maximum nesting of incomplete objects.
const LEVELS: usize = 1 << 16;

/// The values that are not yet part of an object, with marks between them.
#[derive(Default)]
pub(super) struct Stack {
    values: Vec<Value>,
    /// The number of values below each mark.
    marks: Vec<usize>,
}

impl Stack {
    pub(super) fn values(&self) -> &[Value] {
        &self.values
    }

    pub(super) fn marks(&self) -> &[usize] {
        &self.marks
    }

    pub(super) fn push(&mut self, value: Value, budget: &mut Budget) -> Result<(), PickleFault> {
        Ok(budget.push(&mut self.values, value)?)
    }

    pub(super) fn mark(&mut self, budget: &mut Budget) -> Result<(), PickleFault> {
        if self.marks.len() == LEVELS {
            return Err(PickleFault::TooDeep { limit: LEVELS });
        }
        Ok(budget.push(&mut self.marks, self.values.len())?)
    }

    pub(super) fn pop(&mut self, opcode: &'static str) -> Result<Value, PickleFault> {
        let value = self.top(opcode)?;
        self.values.pop();
        Ok(value)
    }

    pub(super) fn top(&self, opcode: &'static str) -> Result<Value, PickleFault> {
        let top = self.values[self.fence()..].last().copied();
        top.ok_or(PickleFault::Missing { opcode })
    }

    /// Returns whether the last mark is above all values.
    pub(super) fn is_at_mark(&self) -> bool {
        self.marks.last() == Some(&self.values.len())
    }

    /// Removes the last mark. Returns the position of the first value after it.
    pub(super) fn unmark(&mut self, opcode: &'static str) -> Result<usize, PickleFault> {
        self.marks.pop().filter(|&mark| mark <= self.values.len()).ok_or(PickleFault::Missing { opcode })
    }

    /// Returns the position of the value below `first`.
    pub(super) fn below(&self, first: usize, opcode: &'static str) -> Result<usize, PickleFault> {
        first.checked_sub(1).filter(|&at| at >= self.fence()).ok_or(PickleFault::Missing { opcode })
    }

    /// Removes and returns all values from a position on.
    pub(super) fn take_from(&mut self, first: usize) -> impl ExactSizeIterator<Item = Value> {
        self.values.drain(first..)
    }

    /// Returns the position of the first value that may be removed. Values below the last mark may not.
    fn fence(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }
}
