//! Reads and writes pickles, but only as data: code in a pickle is never run. The reader need not keep a whole pickle
//! in memory.

mod build;
mod classes;
mod fault;
mod heap;
mod machine;
mod memo;
mod number;
mod opcode;
mod place;
mod read;
mod source;
mod stack;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod view;
mod write;

pub use fault::{PickleError, PickleFault};
pub(crate) use heap::Heap;
pub(crate) use place::Place;
pub(crate) use read::{begins, read, stream};
pub(crate) use stream::{Halt, ReadError, Sink};
pub(crate) use value::Value;
pub(crate) use view::View;
pub(crate) use write::Writer;
