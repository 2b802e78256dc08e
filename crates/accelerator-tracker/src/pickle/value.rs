use std::sync::Arc;

use crate::limits::ALLOCATION;

/// A value. Small values are stored directly, others as the number of their object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    None,
    Flag(bool),
    Integer(i64),
    /// An integer above the largest `i64`.
    Unsigned(u64),
    /// An integer of more than 64 bits.
    Huge,
    Float(Real),
    Class(Class),
    /// An object that stays on the heap only as long as the element that it belongs to.
    Live(u32),
    /// An object that is kept to the end.
    Kept(u32),
    /// An object that was handed over and forgotten.
    Gone,
}

/// The bits of a float, so that values can be compared and hashed.
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
    /// A Python type that creates an empty value, used as the default of a `defaultdict`.
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
        /// Whether its elements were handed over, and are not here.
        handed: bool,
    },
    Tuple(Vec<Value>),
    Set(Vec<Value>),
    Dict {
        pairs: Vec<(Value, Value)>,
        /// Whether a class created it. Attributes may then follow.
        of_class: bool,
        /// Whether it was handed over. It is not handed over again.
        handed: bool,
    },
}

impl Body {
    /// Returns the bytes that it needs in addition to the `Part` itself.
    pub(super) fn cost(&self) -> u64 {
        let bytes = match self {
            // Includes the reference count.
            Self::Text(text) => text.len() + ALLOCATION as usize,
            Self::Bytes(bytes) => bytes.len() + ALLOCATION as usize,
            Self::List { items, .. } | Self::Tuple(items) | Self::Set(items) => items.capacity() * size_of::<Value>(),
            Self::Dict { pairs, .. } => pairs.capacity() * size_of::<(Value, Value)>(),
        };
        // An empty one also counts an allocation, so that its growth counts only the elements.
        bytes as u64 + ALLOCATION
    }
}

/// A kept object. Equal objects are stored once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    Plain(Value),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<[u32]>),
    Tuple(Arc<[u32]>),
    Dict(Arc<[(u32, u32)]>),
}
