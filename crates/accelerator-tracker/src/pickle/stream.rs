use super::fault::{PickleError, PickleFault};
use super::heap::Heap;
use super::memo::{Memo, Slot};
use super::place::Place;
use super::value::{Body, Stay, Value};
use super::view::View;

/// Receives the elements of lists while a pickle is read, so that the whole pickle is never in memory.
pub(crate) trait Sink {
    /// Why the sink stops.
    type Stop;

    /// Returns whether to hand over the elements of the list at this place one by one, and then forget them. `below`
    /// contains all values that are complete or have begun, starting with the object of the pickle.
    fn takes(&mut self, heap: &mut Heap, place: &Place, below: &[Value]) -> Result<bool, Self::Stop>;

    /// Receives an element. `offset` is the number of bytes of the pickle that were read.
    fn element(&mut self, heap: &mut Heap, place: &Place, element: Value, offset: u64) -> Result<(), Halt<Self::Stop>>;

    /// Returns whether later elements may refer to this part of an element. If so, it is kept.
    fn shares(&self, part: View<'_>) -> bool;
}

/// Why reading a pickle ends early.
pub(crate) enum Halt<S> {
    /// The pickle is wrong.
    Fault(PickleFault),
    /// The sink stopped.
    Stop(S),
}

impl<S> From<PickleFault> for Halt<S> {
    fn from(fault: PickleFault) -> Self {
        Self::Fault(fault)
    }
}

/// Why a pickle was not read to its end.
pub(crate) enum ReadError<S> {
    /// The pickle is wrong.
    Pickle(PickleError),
    /// The sink stopped.
    Stop(S),
}

/// The list whose elements are being handed over.
pub(super) struct Stream {
    /// Its position on the stack.
    pub(super) position: usize,
    /// Its number among the objects.
    pub(super) list: u32,
    /// Objects from this one on belong to its elements.
    pub(super) first: u32,
    pub(super) place: Place,
}

/// Forgets the objects of elements that were handed over, except those to which later elements may refer. `memorised`
/// contains the memo entries added since the last call.
pub(super) fn forget<S: Sink>(
    sink: &S,
    heap: &mut Heap,
    memo: &mut Memo,
    memorised: &mut Vec<u32>,
    first: u32,
) -> Result<(), PickleFault> {
    for number in memorised.drain(..) {
        let Some(Slot::Live(part)) = memo.slot(number) else { continue };
        if part < first {
            continue;
        }
        let stays = match heap.part(part).map(|part| (part.stay, &part.body)) {
            Some((Stay::Kept(_), _) | (Stay::Open, Body::Text(_) | Body::Tuple(_))) => true,
            Some((Stay::Open, Body::List { .. } | Body::Dict { .. })) => {
                sink.shares(View::new(heap, Value::Live(part)))
            }
            _ => false,
        };
        let kept = if stays { heap.keep(Value::Live(part))? } else { None };
        memo.put(number, kept.map_or(Slot::Gone, Slot::Kept), &mut heap.budget)?;
    }
    heap.forget_from(first);
    Ok(())
}
