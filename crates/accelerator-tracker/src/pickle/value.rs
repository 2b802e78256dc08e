use std::sync::Arc;

use crate::limits::ALLOCATION;

/// A value: itself if it is small, otherwise the number of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    None,
    Flag(bool),
    Integer(i64),
    /// Above the largest `i64`.
    Unsigned(u64),
    /// A whole number of more than 64 bits.
    Huge,
    Float(Real),
    Class(Class),
    /// An object that stays on the heap as long as the element that it belongs to.
    Live(u32),
    /// An object that is kept to the end.
    Kept(u32),
    /// An object that was handed over and forgotten.
    Gone,
}

/// A float by its bits, so that values can be compared and looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Real(u64);

impl Real {
    pub(crate) fn new(value: f64) -> Self {
        Self(value.to_bits())
    }

    pub(crate) fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// The classes that a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    DefaultDict,
    OrderedDict,
    /// A type of Python's that makes an empty value, used as the default of a `defaultdict`.
    Plain,
}

/// An object of a pickle.
pub(super) struct Part {
    /// The byte at which it begins.
    pub(super) offset: u64,
    pub(super) stay: Stay,
    pub(super) body: Body,
}

/// Whether an object is kept to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    /// Not decided yet.
    Open,
    /// It cannot be kept.
    Never,
    /// It is kept under this number.
    Kept(u32),
}

pub(super) enum Body {
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List {
        items: Vec<Value>,
        /// Its elements were handed over, and are not here.
        handed: bool,
    },
    Tuple(Vec<Value>),
    Set(Vec<Value>),
    Dict {
        pairs: Vec<(Value, Value)>,
        /// Made by a class: its attributes may follow.
        of_class: bool,
        /// It was handed over, and is not handed over again.
        handed: bool,
    },
}

impl Body {
    /// Bytes that it takes besides the `Part` itself.
    pub(super) fn cost(&self) -> u64 {
        let bytes = match self {
            // With its reference count.
            Self::Text(text) => text.len() + ALLOCATION as usize,
            Self::Bytes(bytes) => bytes.len() + ALLOCATION as usize,
            Self::List { items, .. } | Self::Tuple(items) | Self::Set(items) => items.capacity() * size_of::<Value>(),
            Self::Dict { pairs, .. } => pairs.capacity() * size_of::<(Value, Value)>(),
        };
        // An empty one counts an allocation too, so that its growth counts only the elements.
        bytes as u64 + ALLOCATION
    }
}

/// An object that is kept. Equal objects are stored once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    Plain(Value),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<[u32]>),
    Tuple(Arc<[u32]>),
    Dict(Arc<[(u32, u32)]>),
}
