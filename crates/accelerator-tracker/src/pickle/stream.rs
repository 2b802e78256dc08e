use super::fault::{PickleError, PickleFault};
use super::heap::Heap;
use super::memo::{Memo, Slot};
use super::place::Place;
use super::value::{Body, Stay, Value};
use super::view::View;

/// What takes the elements of lists while a pickle is read, so that nobody holds all of it.
pub(crate) trait Sink {
    /// Why it stops.
    type Stop;

    /// Whether the elements of the list that begins at this place are handed over one by one, and then forgotten.
    /// `below`: what is complete or begun so far, the whole itself first.
    fn takes(&mut self, heap: &mut Heap, place: &Place, below: &[Value]) -> Result<bool, Self::Stop>;

    /// Takes an element. `offset`: the byte up to which the pickle was read.
    fn element(
        &mut self,
        heap: &mut Heap,
        place: &Place,
        element: Value,
        offset: u64,
    ) -> Result<(), Halt<Self::Stop>>;

    /// Whether later elements may refer to this part of an element: then it stays.
    fn shares(&self, part: View<'_>) -> bool;
}

/// Why the reading of a pickle ends early.
pub(crate) enum Halt<S> {
    /// The pickle.
    Fault(PickleFault),
    /// The sink.
    Stop(S),
}

impl<S> From<PickleFault> for Halt<S> {
    fn from(fault: PickleFault) -> Self {
        Self::Fault(fault)
    }
}

/// Why a pickle was not read to its end.
pub(crate) enum ReadError<S> {
    /// The pickle.
    Pickle(PickleError),
    /// The sink.
    Stop(S),
}

/// The list whose elements are handed over at present.
pub(super) struct Stream {
    /// Its position on the stack.
    pub(super) position: usize,
    /// Its number among the parts.
    pub(super) list: u32,
    /// Parts from this one on belong to its elements.
    pub(super) first: u32,
    pub(super) place: Place,
}

/// Forgets the parts of elements that were handed over, those apart to which later ones may refer. `memorised`: what was put
/// into the memo since the last time.
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
