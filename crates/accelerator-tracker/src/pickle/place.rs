use std::sync::Arc;

use super::heap::Heap;
use super::value::{Body, Value};

/// The place of a list in a pickle, with only the distinctions that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is the pickled object itself.
    Root,
    /// It is the value of this key of the pickled dictionary.
    Key(Arc<str>),
    /// It is in the list under this key, at this index.
    Index(Arc<str>, u64),
}

/// Returns the place of the value that is pushed next. This is a guess, since the operations that build objects come
/// after their values. It is right for pickles that Python writes.
pub(super) fn of_next(heap: &Heap, stack: &[Value], marks: &[usize]) -> Option<Place> {
    if stack.is_empty() {
        return Some(Place::Root);
    }
    match owner(heap, stack, marks, stack.len())? {
        (0, Step::Key(key)) => Some(Place::Key(key)),
        (position, Step::Index(index)) if position > 0 => match owner(heap, stack, marks, position)? {
            (0, Step::Key(key)) => Some(Place::Index(key, index)),
            _ => None,
        },
        _ => None,
    }
}

enum Step {
    Key(Arc<str>),
    Index(u64),
}

/// Returns the position of the object that will contain the value at a position, and the key or index of the value.
fn owner(heap: &Heap, stack: &[Value], marks: &[usize], position: usize) -> Option<(usize, Step)> {
    let below = |distance: usize| position.checked_sub(distance).map(|at| (at, body(heap, stack[at])));
    let key_of = |at: usize| match body(heap, stack[position.checked_sub(1)?])? {
        Body::Text(key) => Some((at, Step::Key(Arc::clone(key)))),
        _ => None,
    };
    let inner = marks.partition_point(|&mark| mark <= position);
    let Some(&mark) = inner.checked_sub(1).map(|index| &marks[index]) else {
        // Values are added one by one: `list value`, `dict key value`.
        return match (below(1), below(2)) {
            (Some((at, Some(Body::List { items, .. }))), _) => Some((at, Step::Index(items.len() as u64))),
            (_, Some((at, Some(Body::Dict { .. })))) => key_of(at),
            _ => None,
        };
    };
    // Many values are added at once: `list mark value value …`, `dict mark key value key value …`. Objects within them
    // may be built one by one.
    let count = position - mark;
    let at = mark.checked_sub(1)?;
    match body(heap, stack[at])? {
        Body::List { items, .. } => Some((at, Step::Index((items.len() + count) as u64))),
        Body::Dict { .. } if count % 2 == 1 => key_of(at),
        Body::Dict { .. } => match below(1)? {
            (at, Some(Body::List { items, .. })) if count > 0 => Some((at, Step::Index(items.len() as u64))),
            _ => None,
        },
        _ => None,
    }
}

fn body(heap: &Heap, value: Value) -> Option<&Body> {
    let Value::Live(number) = value else { return None };
    heap.part(number).map(|part| &part.body)
}
