use std::io::Read;
use std::sync::Arc;

use super::classes::{class, refused};
use super::fault::{PickleError, PickleFault};
use super::heap::Heap;
use super::memo::{Memo, Slot};
use super::opcode::*;
use super::source::Source;
use super::stack::Stack;
use super::stream::{Halt, ReadError, Sink, Stream};
use super::value::{Body, Real, Value};
use super::view::View;
use super::{number, opcode, text};
use crate::limits::Limits;

const NEWEST_PROTOCOL: u8 = 5;

/// The memory for a conversion to UTF-8, relative to the bytes. Latin-1 can double in length. A growing text has room
/// for twice that, and is copied at the end.
const LONGER_AS_TEXT: u64 = 6;

/// Reads a pickle operation by operation, and builds the objects that it describes.
pub(super) struct Machine<'s, S> {
    source: Source<'s>,
    pub(super) sink: &'s mut S,
    pub(super) heap: Heap,
    pub(super) stack: Stack,
    pub(super) memo: Memo,
    pub(super) stream: Option<Stream>,
    /// The entries added to the memo since elements were last forgotten.
    pub(super) memorised: Vec<u32>,
    /// The offset and the name of the current operation.
    pub(super) at: u64,
    pub(super) name: &'static str,
}

impl<'s, S: Sink> Machine<'s, S> {
    pub(super) fn new(reader: &'s mut dyn Read, sink: &'s mut S, limits: Limits) -> Self {
        Self {
            source: Source::new(reader),
            sink,
            heap: Heap::new(limits),
            stack: Stack::default(),
            memo: Memo::default(),
            stream: None,
            memorised: Vec::new(),
            at: 0,
            name: "",
        }
    }

    /// Executes the pickle. Returns its object, without the parts that were handed over.
    pub(super) fn run(mut self) -> Result<(Heap, Value), ReadError<S::Stop>> {
        loop {
            match self.step() {
                Ok(None) => {}
                Ok(Some(whole)) => return Ok((self.heap, whole)),
                Err(Halt::Stop(stop)) => return Err(ReadError::Stop(stop)),
                Err(Halt::Fault(fault)) => {
                    let behind = matches!(fault, PickleFault::Truncated { .. } | PickleFault::Trailing);
                    let offset = if behind { self.source.offset() } else { self.at };
                    return Err(ReadError::Pickle(PickleError { offset, fault }));
                }
            }
        }
    }

    /// Executes one operation. After the last one, returns the object of the pickle.
    fn step(&mut self) -> Result<Option<Value>, Halt<S::Stop>> {
        self.at = self.source.offset();
        self.heap.was_read(self.at);
        self.source.begin("an operation");
        let code = self.source.byte()?;
        self.name = opcode::name(code).ok_or(PickleFault::UnknownOpcode(code))?;
        self.source.begin(self.name);
        match code {
            STOP => return self.whole().map(Some).map_err(Halt::Fault),
            EMPTY_DICT => {
                self.hand_over_complete()?;
                self.add(Body::Dict { pairs: Vec::new(), of_class: false, handed: false })?;
            }
            EMPTY_LIST => self.begin_list()?,
            APPEND => self.append()?,
            APPENDS => self.appends()?,
            LIST => self.list()?,
            _ => self.plain_step(code)?,
        }
        self.end_stream();
        Ok(None)
    }

    /// Executes an operation that does not concern the sink.
    fn plain_step(&mut self, code: u8) -> Result<(), PickleFault> {
        match code {
            PROTO => match self.source.byte()? {
                0..=NEWEST_PROTOCOL => Ok(()),
                newer => Err(PickleFault::UnknownProtocol(newer)),
            },
            // Tells a reader how many bytes to read at once. The source decides that itself.
            FRAME => self.source.array::<8>().map(drop),
            MARK => self.stack.mark(&mut self.heap.budget),
            POP if self.stack.is_at_mark() => self.stack.unmark(self.name).map(drop),
            POP => self.stack.pop(self.name).map(drop),
            POP_MARK => self.take_marked().map(drop),
            DUP => self.stack.top(self.name).and_then(|top| self.push(top)),
            NONE => self.push(Value::None),
            NEWTRUE => self.push(Value::Flag(true)),
            NEWFALSE => self.push(Value::Flag(false)),
            INT | LONG | BININT | BININT1 | BININT2 | LONG1 | LONG4 | FLOAT | BINFLOAT => self.number(code),
            UNICODE | SHORT_BINUNICODE | BINUNICODE | BINUNICODE8 | STRING | SHORT_BINSTRING | BINSTRING
            | SHORT_BINBYTES | BINBYTES | BINBYTES8 | BYTEARRAY8 => self.text(code),
            EMPTY_TUPLE => self.add(Body::Tuple(Vec::new())),
            TUPLE1 => self.tuple(1),
            TUPLE2 => self.tuple(2),
            TUPLE3 => self.tuple(3),
            TUPLE => {
                let items = self.take_marked()?;
                self.add(Body::Tuple(items))
            }
            EMPTY_SET => self.add(Body::Set(Vec::new())),
            FROZENSET => {
                let items = self.take_marked()?;
                self.add(Body::Set(items))
            }
            ADDITEMS => self.add_items(),
            DICT => self.dict(),
            SETITEM => self.set_item(),
            SETITEMS => self.set_items(),
            PUT | BINPUT | LONG_BINPUT | MEMOIZE => self.memorise(code),
            GET | BINGET | LONG_BINGET => self.recall(code),
            GLOBAL | STACK_GLOBAL => self.global(code),
            REDUCE => self.reduce(),
            BUILD => self.build(),
            _ => Err(self.refusal(code)?),
        }
    }

    fn whole(&mut self) -> Result<Value, PickleFault> {
        let whole = self.stack.pop(self.name)?;
        if !self.stack.values().is_empty() {
            return Err(PickleFault::Unfit { opcode: self.name, found: "more than one value" });
        }
        if self.source.at_end()? { Ok(whole) } else { Err(PickleFault::Trailing) }
    }

    fn number(&mut self, code: u8) -> Result<(), PickleFault> {
        let value = match code {
            BININT1 => Value::Integer(i64::from(self.source.byte()?)),
            BININT2 => Value::Integer(i64::from(u16::from_le_bytes(self.source.array()?))),
            BININT => Value::Integer(i64::from(i32::from_le_bytes(self.source.array()?))),
            BINFLOAT => Value::Float(Real::new(f64::from_be_bytes(self.source.array()?))),
            LONG1 => number::of_bytes(&self.counted(1)?),
            LONG4 => number::of_bytes(&self.counted(4)?),
            FLOAT => number::float_of_text(&self.line()?, self.name)?,
            _ => number::of_text(&self.line()?, self.name)?,
        };
        self.push(value)
    }

    fn text(&mut self, code: u8) -> Result<(), PickleFault> {
        let body = match code {
            UNICODE => text::of_raw_unicode(&self.line()?, self.name)?,
            STRING => text::of_quoted(&self.line()?, self.name)?,
            SHORT_BINUNICODE => text::of_utf8(self.counted(1)?, self.name)?,
            BINUNICODE => text::of_utf8(self.counted(4)?, self.name)?,
            BINUNICODE8 => text::of_utf8(self.counted(8)?, self.name)?,
            SHORT_BINSTRING => text::of_bytes(self.counted(1)?),
            BINSTRING => text::of_bytes(self.counted(4)?),
            SHORT_BINBYTES => Body::Bytes(self.counted(1)?.into()),
            BINBYTES => Body::Bytes(self.counted(4)?.into()),
            _ => Body::Bytes(self.counted(8)?.into()),
        };
        self.add(body)
    }

    fn memorise(&mut self, code: u8) -> Result<(), PickleFault> {
        let number = match code {
            MEMOIZE => self.memo.next(),
            BINPUT => u32::from(self.source.byte()?),
            LONG_BINPUT => u32::from_le_bytes(self.source.array()?),
            _ => number::place_of_text(&self.line()?, self.name)?,
        };
        let slot = match self.stack.top(self.name)? {
            Value::Live(part) => {
                // Objects from before the stream stay anyway.
                if self.stream.is_some() {
                    self.heap.budget.push(&mut self.memorised, number)?;
                }
                Slot::Live(part)
            }
            Value::Kept(part) => Slot::Kept(part),
            // A small value is kept: writers memorise classes, and some memorise any value.
            plain => self.heap.keep(plain)?.map_or(Slot::Gone, Slot::Kept),
        };
        self.memo.put(number, slot, &mut self.heap.budget)
    }

    fn recall(&mut self, code: u8) -> Result<(), PickleFault> {
        let number = match code {
            BINGET => u32::from(self.source.byte()?),
            LONG_BINGET => u32::from_le_bytes(self.source.array()?),
            _ => number::place_of_text(&self.line()?, self.name)?,
        };
        let value = match self.memo.slot(number).ok_or(PickleFault::NotInMemo(u64::from(number)))? {
            Slot::Live(part) => Value::Live(part),
            Slot::Kept(part) => self.heap.kept_value(part),
            Slot::Gone => Value::Gone,
        };
        self.push(value)
    }

    fn global(&mut self, code: u8) -> Result<(), PickleFault> {
        let (module, name) = if code == GLOBAL {
            (self.text_line()?.into(), self.text_line()?.into())
        } else {
            let name = self.stack.pop(self.name)?;
            let module = self.stack.pop(self.name)?;
            let text = |value| match View::new(&self.heap, value).text() {
                Some(text) => Ok(Arc::clone(text)),
                None => Err(self.unfit(value)),
            };
            (text(module)?, text(name)?)
        };
        self.push(Value::Class(class(&module, &name, self.name)?))
    }

    /// Returns the fault for an operation that would create something other than data.
    fn refusal(&mut self, code: u8) -> Result<PickleFault, PickleFault> {
        let name = match code {
            INST => format!("{}.{}", self.text_line()?, self.text_line()?),
            PERSID => format!("persistent object {}", self.text_line()?),
            BINPERSID => "a persistent object".to_owned(),
            EXT1 => format!("extension {}", self.source.byte()?),
            EXT2 => format!("extension {}", u16::from_le_bytes(self.source.array()?)),
            EXT4 => format!("extension {}", u32::from_le_bytes(self.source.array()?)),
            NEXT_BUFFER | READONLY_BUFFER => "a buffer outside the file".to_owned(),
            _ => "an object".to_owned(), // its class, if it has one, was already refused
        };
        Ok(refused(self.name, name))
    }

    /// Reads bytes that follow their length, which itself has `digits` bytes.
    fn counted(&mut self, digits: usize) -> Result<Vec<u8>, PickleFault> {
        let mut length = [0; 8];
        for digit in &mut length[..digits] {
            *digit = self.source.byte()?;
        }
        let bytes = self.source.bytes(u64::from_le_bytes(length), &mut self.heap.budget)?;
        self.copied(&bytes, 1)?;
        Ok(bytes)
    }

    fn line(&mut self) -> Result<Vec<u8>, PickleFault> {
        let bytes = self.source.line(&mut self.heap.budget)?;
        self.copied(&bytes, LONGER_AS_TEXT)?;
        Ok(bytes)
    }

    /// Checks that there is room for a copy of up to `times` the size of the bytes, and stops counting the bytes, which
    /// are about to be dropped.
    fn copied(&mut self, bytes: &Vec<u8>, times: u64) -> Result<(), PickleFault> {
        self.heap.budget.has_room(times * bytes.len() as u64)?;
        self.heap.budget.discharge(bytes.capacity() as u64);
        Ok(())
    }

    fn text_line(&mut self) -> Result<String, PickleFault> {
        Ok(String::from_utf8_lossy(&self.line()?).into_owned())
    }

    pub(super) fn add(&mut self, body: Body) -> Result<(), PickleFault> {
        let value = self.heap.add(self.at, body)?;
        self.push(value)
    }

    pub(super) fn push(&mut self, value: Value) -> Result<(), PickleFault> {
        self.stack.push(value, &mut self.heap.budget)
    }

    pub(super) fn take_marked(&mut self) -> Result<Vec<Value>, PickleFault> {
        let first = self.stack.unmark(self.name)?;
        self.take_from(first)
    }

    /// Removes and returns all values from a position on. A caller that stores them must charge them.
    pub(super) fn take_from(&mut self, first: usize) -> Result<Vec<Value>, PickleFault> {
        let values = self.stack.take_from(first);
        // Room for the values, and for a copy in pairs or in an object.
        self.heap.budget.has_room(2 * (values.len() * size_of::<Value>()) as u64)?;
        Ok(values.collect())
    }

    pub(super) fn unfit(&self, value: Value) -> PickleFault {
        PickleFault::Unfit { opcode: self.name, found: View::new(&self.heap, value).type_name() }
    }
}
