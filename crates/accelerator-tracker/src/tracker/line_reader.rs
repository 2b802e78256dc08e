use std::fmt;
use std::io::BufRead;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::file::FileError;
use crate::limits::{Budget, LimitError, Limits};

/// The lines of a file, with their positions.
pub(super) struct Lines<'a> {
    reader: &'a mut dyn BufRead,
    path: &'a Path,
    limits: Limits,
    /// The memory of everything created from the lines.
    budget: Budget,
    text: Vec<u8>,
    /// The number of the line, from 1.
    number: u64,
    /// The offset at which the line starts.
    start: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(reader: &'a mut dyn BufRead, path: &'a Path, limits: Limits) -> Self {
        let budget = Budget::new(limits.memory);
        Self { reader, path, limits, budget, text: Vec::new(), number: 0, start: 0 }
    }

    /// Reads the next line. Returns whether there was one.
    pub(super) fn advance(&mut self) -> Result<bool, FileError> {
        self.start += self.text.len() as u64;
        self.number += 1;
        self.text.clear();
        let read = self.limits.read_line(&mut self.reader, &mut self.text);
        read.map(|count| count > 0).map_err(|error| match LimitError::of(&error) {
            Some(limit) => self.beyond(limit.clone()),
            None => FileError::io(self.path, "read", error),
        })
    }

    /// Appends an element that was created from a line to a list. `name` is the length of its name in bytes.
    pub(super) fn keep<T>(&mut self, list: &mut Vec<T>, element: T, name: usize) -> Result<(), FileError> {
        let counted = self.budget.charge(name as u64).and_then(|()| self.budget.push(list, element));
        counted.map_err(|limit| self.beyond(limit))
    }

    fn beyond(&self, source: LimitError) -> FileError {
        FileError::Limit { path: self.path.to_owned(), offset: self.start, line: self.number, source }
    }

    /// Parses the object on the line.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        let wrong_at = |offset: usize, what: &str| match self.text.ends_with(b"\n") {
            true => self.wrong_at(offset as u64, &format!("{what:.200}")),
            false => self.wrong("the file is truncated in this line"),
        };
        // All of it is checked here: serde_json skips what is ignored.
        let text = str::from_utf8(&self.text).map_err(|error| wrong_at(error.valid_up_to(), "this is not UTF-8"))?;
        serde_json::from_str(text).map(|Object(value)| value).map_err(|error| {
            // Our message contains the position, since serde_json sees only one line.
            let text = error.to_string();
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            wrong_at(error.column().saturating_sub(1), what)
        })
    }

    /// Returns an error in the line, or at the place where a line is missing.
    pub(super) fn wrong(&self, what: impl AsRef<str>) -> FileError {
        self.wrong_at(0, what.as_ref())
    }

    /// Returns an error at this offset in the line.
    fn wrong_at(&self, offset: u64, what: &str) -> FileError {
        FileError::content(self.path, self.start + offset, format!("line {}: {what}", self.number))
    }
}

/// A struct that is read from an object. On its own, it would also be read from a list of its fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Reads a struct from an object or from `null`.
pub(super) fn optional_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer).map(|object: Option<Object<T>>| object.map(|Object(value)| value))
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}
