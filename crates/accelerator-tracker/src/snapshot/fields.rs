use std::sync::Arc;

use crate::pickle::{PickleFault, Value, View};

/// The position of an error in a snapshot, and the reason.
pub(super) struct Wrong {
    pub(super) offset: u64,
    pub(super) reason: String,
}

/// The description of a dictionary in a snapshot, to report errors in it.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// What the dictionary describes, such as `a block`.
    what: &'static str,
    offset: u64,
}

impl Fields {
    /// Creates the description of `view`. `offset` is a byte near it, in case its own position is unknown.
    pub(super) fn new(what: &'static str, view: View<'_>, offset: u64) -> Self {
        Self { what, offset: view.offset().unwrap_or(offset) }
    }

    pub(super) fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the keys and values. Keys that are not strings are skipped, since no such key is known.
    pub(super) fn of<'a>(self, view: View<'a>) -> Result<impl Iterator<Item = (&'a Arc<str>, View<'a>)>, Wrong> {
        let found = || format!("{} is {}, but should be a dict", self.what, view.type_name());
        let pairs = view.pairs().ok_or_else(|| self.wrong(found()))?;
        Ok(pairs.filter_map(|(key, value)| Some((key.text()?, value))))
    }

    /// Like [`of`](Self::of), for an object that no other object may contain.
    pub(super) fn of_own<'a>(self, view: View<'a>) -> Result<impl Iterator<Item = (&'a Arc<str>, View<'a>)>, Wrong> {
        let pairs = self.of(view)?;
        if view.is_kept() {
            Err(self.wrong(format!("{} is also part of another object", self.what)))
        } else {
            Ok(pairs)
        }
    }

    pub(super) fn unsigned(self, key: &str, value: View<'_>) -> Result<u64, Wrong> {
        value.unsigned().ok_or_else(|| self.unfit(key, value, "a whole number from 0 to 2^64"))
    }

    pub(super) fn integer(self, key: &str, value: View<'_>) -> Result<i64, Wrong> {
        value.integer().ok_or_else(|| self.unfit(key, value, "a whole number"))
    }

    pub(super) fn device(self, key: &str, value: View<'_>) -> Result<u32, Wrong> {
        let number = value.unsigned().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.unfit(key, value, "the number of a device"))
    }

    pub(super) fn float(self, key: &str, value: View<'_>) -> Result<f64, Wrong> {
        value.float().ok_or_else(|| self.unfit(key, value, "a float"))
    }

    pub(super) fn flag(self, key: &str, value: View<'_>) -> Result<bool, Wrong> {
        value.flag().ok_or_else(|| self.unfit(key, value, "True or False"))
    }

    pub(super) fn text<'v>(self, key: &str, value: View<'v>) -> Result<&'v Arc<str>, Wrong> {
        value.text().ok_or_else(|| self.unfit(key, value, "a str"))
    }

    /// Returns the elements of a list or tuple. Python's `None` has no elements.
    pub(super) fn items(self, key: &str, value: View<'_>) -> Result<Vec<Value>, Wrong> {
        match value.items() {
            Some(items) => Ok(items.map(View::value).collect()),
            None if value.is_none() => Ok(Vec::new()),
            None => Err(self.unfit(key, value, "a list")),
        }
    }

    /// Returns a pair of integers.
    pub(super) fn pair(self, key: &str, value: View<'_>) -> Result<(u64, u64), Wrong> {
        let mut numbers = value.items().into_iter().flatten().map(View::unsigned);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(first)), Some(Some(second)), None) => Ok((first, second)),
            _ => Err(self.unfit(key, value, "a pair of whole numbers")),
        }
    }

    pub(super) fn missing(self, key: &str) -> Wrong {
        self.wrong(format!("{} has no `{key}`", self.what))
    }

    pub(super) fn unfit(self, key: &str, value: View<'_>, expected: &str) -> Wrong {
        let found = value.integer().map_or(value.type_name().to_owned(), |integer| integer.to_string());
        self.wrong(format!("`{key}` of {} is {found}, but should be {expected}", self.what))
    }

    pub(super) fn too_large(self, fault: PickleFault) -> Wrong {
        self.wrong(fault.to_string())
    }

    pub(super) fn wrong(self, reason: String) -> Wrong {
        Wrong { offset: self.offset, reason }
    }
}
