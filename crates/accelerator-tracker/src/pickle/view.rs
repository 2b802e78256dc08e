use std::sync::Arc;

use super::heap::Heap;
use super::value::{Body, Class, Kept, Value};

/// A read-only view of a value in a pickle.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    heap: &'a Heap,
    value: Value,
}

impl<'a> View<'a> {
    pub(crate) fn new(heap: &'a Heap, value: Value) -> Self {
        Self { heap, value }
    }

    pub(crate) fn value(self) -> Value {
        self.value
    }

    /// Returns whether it is kept to the end, so that any number of others may contain it.
    pub(crate) fn is_kept(self) -> bool {
        matches!(self.value, Value::Kept(_))
    }

    pub(crate) fn is_none(self) -> bool {
        self.plain() == Value::None
    }

    pub(crate) fn flag(self) -> Option<bool> {
        if let Value::Flag(flag) = self.plain() { Some(flag) } else { None }
    }

    pub(crate) fn integer(self) -> Option<i64> {
        if let Value::Integer(integer) = self.plain() { Some(integer) } else { None }
    }

    /// Returns a non-negative integer.
    pub(crate) fn unsigned(self) -> Option<u64> {
        match self.plain() {
            Value::Integer(integer) => u64::try_from(integer).ok(),
            Value::Unsigned(unsigned) => Some(unsigned),
            _ => None,
        }
    }

    pub(crate) fn float(self) -> Option<f64> {
        if let Value::Float(real) = self.plain() { Some(real.value()) } else { None }
    }

    pub(crate) fn text(self) -> Option<&'a Arc<str>> {
        match self.body()? {
            Shape::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the elements of a list or tuple.
    pub(crate) fn items(self) -> Option<impl ExactSizeIterator<Item = View<'a>> + Clone> {
        let Shape::Items(items) = self.body()? else { return None };
        let heap = self.heap;
        Some((0..items.len()).map(move |index| View { heap, value: items.value(index) }))
    }

    /// Returns the keys and values of a dictionary, in its order. A key that was set twice appears twice.
    pub(crate) fn pairs(self) -> Option<impl ExactSizeIterator<Item = (View<'a>, View<'a>)> + Clone> {
        let Shape::Pairs(pairs) = self.body()? else { return None };
        let heap = self.heap;
        let view = move |value| View { heap, value };
        Some((0..pairs.len()).map(move |index| {
            let (key, value) = pairs.pair(index);
            (view(key), view(value))
        }))
    }

    /// Returns the value of a key in a dictionary.
    pub(crate) fn get(self, key: &str) -> Option<View<'a>> {
        let found = |(own, value): (View<'a>, _)| (&**own.text()? == key).then_some(value);
        self.pairs()?.filter_map(found).last()
    }

    /// Returns the byte at which it begins, for an object that is not kept.
    pub(crate) fn offset(self) -> Option<u64> {
        let Value::Live(number) = self.value else { return None };
        self.heap.part(number).map(|part| part.offset)
    }

    /// Returns its type, in Python's terms.
    pub(crate) fn type_name(self) -> &'static str {
        match self.plain() {
            Value::None => "None",
            Value::Flag(_) => "a bool",
            Value::Integer(_) | Value::Unsigned(_) | Value::Huge => "an int",
            Value::Float(_) => "a float",
            Value::Class(Class::DefaultDict | Class::OrderedDict | Class::Plain) => "a class",
            Value::Gone => GONE,
            Value::Live(_) | Value::Kept(_) => match self.body() {
                Some(Shape::Text(_)) => "a str",
                Some(Shape::Bytes) => "bytes",
                Some(Shape::Items(_)) => "a list or tuple",
                Some(Shape::Pairs(_)) => "a dict",
                Some(Shape::Set) => "a set",
                Some(Shape::Gone) | None => GONE,
            },
        }
    }

    /// Returns a small value itself, even if it was kept like an object.
    fn plain(self) -> Value {
        match self.value {
            Value::Kept(number) => self.heap.kept_value(number),
            value => value,
        }
    }

    fn body(self) -> Option<Shape<'a>> {
        match self.value {
            Value::Live(number) => Some(match &self.heap.part(number)?.body {
                Body::Text(text) => Shape::Text(text),
                Body::Bytes(_) => Shape::Bytes,
                Body::List { handed: true, .. } | Body::Dict { handed: true, .. } => Shape::Gone,
                Body::List { items, .. } | Body::Tuple(items) => Shape::Items(Items::Live(items)),
                Body::Set(_) => Shape::Set,
                Body::Dict { pairs, .. } => Shape::Pairs(Pairs::Live(pairs)),
            }),
            Value::Kept(number) => match self.heap.kept(number)? {
                Kept::Plain(_) => None,
                Kept::Text(text) => Some(Shape::Text(text)),
                Kept::Bytes(_) => Some(Shape::Bytes),
                Kept::List(items) | Kept::Tuple(items) => Some(Shape::Items(Items::Kept(items))),
                Kept::Dict(pairs) => Some(Shape::Pairs(Pairs::Kept(pairs))),
            },
            _ => None,
        }
    }
}

const GONE: &str = "an object that was already read and is not kept in memory";

enum Shape<'a> {
    Text(&'a Arc<str>),
    Bytes,
    Items(Items<'a>),
    Pairs(Pairs<'a>),
    Set,
    Gone,
}

#[derive(Clone, Copy)]
enum Items<'a> {
    Live(&'a [Value]),
    Kept(&'a [u32]),
}

impl Items<'_> {
    fn len(self) -> usize {
        match self {
            Self::Live(items) => items.len(),
            Self::Kept(items) => items.len(),
        }
    }

    fn value(self, index: usize) -> Value {
        match self {
            Self::Live(items) => items[index],
            Self::Kept(items) => Value::Kept(items[index]),
        }
    }
}

#[derive(Clone, Copy)]
enum Pairs<'a> {
    Live(&'a [(Value, Value)]),
    Kept(&'a [(u32, u32)]),
}

impl Pairs<'_> {
    fn len(self) -> usize {
        match self {
            Self::Live(pairs) => pairs.len(),
            Self::Kept(pairs) => pairs.len(),
        }
    }

    fn pair(self, index: usize) -> (Value, Value) {
        match self {
            Self::Live(pairs) => pairs[index],
            Self::Kept(pairs) => (Value::Kept(pairs[index].0), Value::Kept(pairs[index].1)),
        }
    }
}
