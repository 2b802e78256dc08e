//! The operations that build objects from values.

use super::classes::refused;
use super::fault::PickleFault;
use super::machine::Machine;
use super::place;
use super::stream::{Halt, Sink, Stream, forget};
use super::value::{Body, Class, Value};
use super::view::View;
use crate::limits::Budget;

impl<S: Sink> Machine<'_, S> {
    pub(super) fn tuple(&mut self, count: usize) -> Result<(), PickleFault> {
        let mut items = vec![Value::None; count];
        for item in items.iter_mut().rev() {
            *item = self.stack.pop(self.name)?;
        }
        self.add(Body::Tuple(items))
    }

    pub(super) fn add_items(&mut self) -> Result<(), PickleFault> {
        let items = self.take_marked()?;
        let target = self.stack.top(self.name)?;
        match self.changing(target)? {
            (Body::Set(own), budget) => {
                budget.reserve(own, items.len())?;
                own.extend(items);
                Ok(())
            }
            _ => Err(self.unfit(target)),
        }
    }

    pub(super) fn dict(&mut self) -> Result<(), PickleFault> {
        let flat = self.take_marked()?;
        let pairs = self.pairs(&flat)?;
        self.add(Body::Dict { pairs, of_class: false, handed: false })
    }

    pub(super) fn set_item(&mut self) -> Result<(), PickleFault> {
        let value = self.stack.pop(self.name)?;
        let key = self.stack.pop(self.name)?;
        self.set(&[key, value])
    }

    pub(super) fn set_items(&mut self) -> Result<(), PickleFault> {
        let flat = self.take_marked()?;
        self.set(&flat)
    }

    fn set(&mut self, flat: &[Value]) -> Result<(), PickleFault> {
        let target = self.stack.top(self.name)?;
        let more = self.pairs(flat)?;
        match self.changing(target)? {
            (Body::Dict { pairs, .. }, budget) => {
                budget.reserve(pairs, more.len())?;
                pairs.extend(more);
                Ok(())
            }
            _ => Err(self.unfit(target)),
        }
    }

    fn pairs(&self, flat: &[Value]) -> Result<Vec<(Value, Value)>, PickleFault> {
        if !flat.len().is_multiple_of(2) {
            return Err(PickleFault::Missing { opcode: self.name });
        }
        // Not `collect`: with possible errors it does not know their number, and takes more than there is room for.
        let mut pairs = Vec::with_capacity(flat.len() / 2);
        for pair in flat.chunks_exact(2) {
            if let Some(Body::List { .. } | Body::Dict { .. } | Body::Set(_)) = self.body(pair[0]) {
                return Err(self.unfit(pair[0]));
            }
            pairs.push((pair[0], pair[1]));
        }
        Ok(pairs)
    }

    /// Calls one of the known classes. The result can only be a dictionary, empty or with pairs.
    pub(super) fn reduce(&mut self) -> Result<(), PickleFault> {
        let arguments = self.stack.pop(self.name)?;
        let called = self.stack.pop(self.name)?;
        let Some(Body::Tuple(arguments)) = self.body(arguments) else { return Err(self.unfit(arguments)) };
        let pairs = match (called, arguments.as_slice()) {
            (Value::Class(Class::DefaultDict | Class::OrderedDict), [])
            | (Value::Class(Class::DefaultDict), [Value::None | Value::Class(Class::Plain)]) => Vec::new(),
            // Python 2 passes a list of two-element lists.
            (Value::Class(Class::OrderedDict), [listed]) => {
                let listed = *listed;
                let pairs = self.listed_pairs(listed)?;
                self.heap.hand(listed);
                pairs
            }
            (Value::Class(_), [.., other]) => return Err(self.unfit(*other)),
            _ => return Err(self.unfit(called)),
        };
        self.add(Body::Dict { pairs, of_class: true, handed: false })
    }

    /// Returns the pairs of a list that is handed over then, and so copied only once. Otherwise, a short pickle could
    /// copy a long list any number of times.
    fn listed_pairs(&self, listed: Value) -> Result<Vec<(Value, Value)>, PickleFault> {
        if !matches!(self.body(listed), Some(Body::List { .. })) {
            return Err(self.unfit(listed));
        }
        let items = View::new(&self.heap, listed).items().ok_or_else(|| self.unfit(listed))?;
        self.heap.budget.has_room(4 * (items.len() * size_of::<Value>()) as u64)?;
        let mut flat = Vec::with_capacity(2 * items.len());
        for item in items {
            let mut pair = item.items().filter(|pair| pair.len() == 2).ok_or_else(|| self.unfit(listed))?;
            flat.extend(pair.by_ref().map(View::value));
        }
        self.pairs(&flat)
    }

    /// Ignores the attributes of an `OrderedDict`, which are not part of its data.
    pub(super) fn build(&mut self) -> Result<(), PickleFault> {
        self.stack.pop(self.name)?;
        let target = self.stack.top(self.name)?;
        match self.body(target) {
            Some(Body::Dict { of_class: true, .. }) => Ok(()),
            _ => Err(refused(self.name, View::new(&self.heap, target).type_name().to_owned())),
        }
    }

    pub(super) fn begin_list(&mut self) -> Result<(), Halt<S::Stop>> {
        let position = self.stack.values().len();
        let place = place::of_next(&self.heap, self.stack.values(), self.stack.marks());
        let taken = match &place {
            Some(place) => self.sink.takes(&mut self.heap, place, self.stack.values()).map_err(Halt::Stop)?,
            None => false,
        };
        self.add(Body::List { items: Vec::new(), handed: false })?;
        // If a previous list was being handed over, it is now complete, although it is still on the stack: the new list
        // is not inside it.
        if let Some(place) = place.filter(|_| taken) {
            let first = self.heap.live();
            self.stream = Some(Stream { position, list: first - 1, first, place });
        }
        Ok(())
    }

    pub(super) fn list(&mut self) -> Result<(), Halt<S::Stop>> {
        let items = self.take_marked()?;
        if items.is_empty() {
            return self.begin_list();
        }
        Ok(self.add(Body::List { items, handed: false })?)
    }

    pub(super) fn append(&mut self) -> Result<(), Halt<S::Stop>> {
        let item = self.stack.values().len().saturating_sub(1);
        self.extend(item)
    }

    pub(super) fn appends(&mut self) -> Result<(), Halt<S::Stop>> {
        let first = self.stack.unmark(self.name)?;
        self.extend(first)
    }

    /// Appends all values from a position on to the list below them, or hands them over.
    fn extend(&mut self, first: usize) -> Result<(), Halt<S::Stop>> {
        let below = self.stack.below(first, self.name)?;
        if self.stream.as_ref().is_some_and(|stream| stream.position == below) {
            return self.hand_over(first);
        }
        let items = self.take_from(first)?;
        let target = self.stack.top(self.name)?;
        match self.changing(target)? {
            (Body::List { items: own, .. }, budget) => {
                budget.reserve(own, items.len()).map_err(PickleFault::from)?;
                own.extend(items);
                Ok(())
            }
            _ => Err(self.unfit(target).into()),
        }
    }

    /// Hands over the last element if it is complete, which it is when the next one begins. Otherwise a thousand
    /// elements would pile up.
    pub(super) fn hand_over_complete(&mut self) -> Result<(), Halt<S::Stop>> {
        let Some(stream) = &self.stream else { return Ok(()) };
        let values = self.stack.values();
        let element = stream.position + 1;
        let complete = values.len() == element + 1
            && self.stack.marks().last() == Some(&element)
            && matches!(self.body(values[element]), Some(Body::Dict { .. }));
        if complete { self.hand_over(element) } else { Ok(()) }
    }

    /// Hands over all values from a position on, and forgets them.
    fn hand_over(&mut self, first: usize) -> Result<(), Halt<S::Stop>> {
        let Some(stream) = &self.stream else { return Ok(()) };
        for element in self.stack.take_from(first) {
            self.sink.element(&mut self.heap, &stream.place, element, self.at)?;
        }
        if let Some(Body::List { handed, .. }) = self.heap.body_mut(stream.list) {
            *handed = true;
        }
        Ok(forget(self.sink, &mut self.heap, &mut self.memo, &mut self.memorised, stream.first)?)
    }

    /// Forgets the stream once its list has left the stack.
    pub(super) fn end_stream(&mut self) {
        if let Some(stream) = &self.stream
            && self.stack.values().get(stream.position) != Some(&Value::Live(stream.list))
        {
            self.stream = None;
        }
    }

    /// Returns an object to change, and the budget for its memory. An object must not be changed if it outlives the
    /// values that are put into it.
    fn changing(&mut self, target: Value) -> Result<(&mut Body, &mut Budget), PickleFault> {
        self.end_stream();
        let outlives = |number| self.stream.as_ref().is_some_and(|stream| number < stream.first);
        match target {
            Value::Live(number) if !outlives(number) => {
                self.heap.change(number).ok_or(PickleFault::Missing { opcode: self.name })
            }
            Value::Live(_) | Value::Kept(_) | Value::Gone => Err(PickleFault::Changed { opcode: self.name }),
            other => Err(self.unfit(other)),
        }
    }

    fn body(&self, value: Value) -> Option<&Body> {
        let Value::Live(number) = value else { return None };
        self.heap.part(number).map(|part| &part.body)
    }
}
