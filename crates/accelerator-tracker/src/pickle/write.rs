use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::opcode::*;

/// Writes a pickle of protocol 4, using only operations that PyTorch's viewer supports. The viewer has its own pickle
/// reader.
pub(crate) struct Writer<W> {
    out: W,
    /// The memorised strings.
    texts: HashMap<Arc<str>, u32>,
    memorised: u32,
}

impl<W: Write> Writer<W> {
    /// The number of values that Python adds to a list or dictionary at once.
    pub(crate) const BATCH: usize = 1000;

    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[PROTO, 4])?;
        Ok(Self { out, texts: HashMap::new(), memorised: 0 })
    }

    /// Ends the pickle.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[STOP])?;
        self.out.flush()
    }

    pub(crate) fn flag(&mut self, flag: bool) -> io::Result<()> {
        self.out.write_all(&[if flag { NEWTRUE } else { NEWFALSE }])
    }

    pub(crate) fn integer(&mut self, integer: impl Into<i128>) -> io::Result<()> {
        let integer = integer.into();
        if let Ok(byte) = u8::try_from(integer) {
            return self.out.write_all(&[BININT1, byte]);
        }
        if let Ok(short) = u16::try_from(integer) {
            return self.with_operand(BININT2, &short.to_le_bytes());
        }
        if let Ok(int) = i32::try_from(integer) {
            return self.with_operand(BININT, &int.to_le_bytes());
        }
        let bytes = integer.to_le_bytes();
        // The smallest number of bytes whose last bit still has the sign of the number.
        let length = (1..16).find(|&length| {
            let shift = 128 - 8 * length as u32;
            (integer << shift) >> shift == integer
        });
        let length = length.unwrap_or(16);
        self.out.write_all(&[LONG1, length as u8])?;
        self.out.write_all(&bytes[..length])
    }

    pub(crate) fn float(&mut self, float: f64) -> io::Result<()> {
        self.with_operand(BINFLOAT, &float.to_be_bytes())
    }

    /// Writes a string. If it was written before, writes a reference to it.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&number) = self.texts.get(text) {
            return self.recall(number);
        }
        self.text_once(text)?;
        let number = self.memorise()?;
        self.texts.insert(text.into(), number);
        Ok(())
    }

    /// Writes a string that is unlikely to be written again.
    pub(crate) fn text_once(&mut self, text: &str) -> io::Result<()> {
        match (u8::try_from(text.len()), u32::try_from(text.len())) {
            (Ok(length), _) => self.out.write_all(&[SHORT_BINUNICODE, length])?,
            (_, Ok(length)) => self.with_operand(BINUNICODE, &length.to_le_bytes())?,
            _ => self.with_operand(BINUNICODE8, &(text.len() as u64).to_le_bytes())?,
        }
        self.out.write_all(text.as_bytes())
    }

    /// Writes a list. `each` writes an element.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        each: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(&[EMPTY_LIST])?;
        self.batches(items, APPENDS, each)
    }

    /// Writes a dictionary. `each` writes a key and a value for each item.
    pub(crate) fn dict<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        each: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(&[EMPTY_DICT])?;
        self.batches(items, SETITEMS, each)
    }

    fn batches<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        put_in: u8,
        mut each: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.out.write_all(&[MARK])?;
            items.by_ref().take(Self::BATCH).try_for_each(|item| each(self, item))?;
            self.out.write_all(&[put_in])?;
        }
        Ok(())
    }

    /// Begins a list. Batches of elements follow, each of which is opened and closed.
    pub(crate) fn open_list(&mut self) -> io::Result<()> {
        self.out.write_all(&[EMPTY_LIST])
    }

    pub(crate) fn open_batch(&mut self) -> io::Result<()> {
        self.out.write_all(&[MARK])
    }

    pub(crate) fn close_batch(&mut self) -> io::Result<()> {
        self.out.write_all(&[APPENDS])
    }

    /// Begins a dictionary. Keys and values follow.
    pub(crate) fn open_dict(&mut self) -> io::Result<()> {
        self.out.write_all(&[EMPTY_DICT, MARK])
    }

    /// Ends the dictionary.
    pub(crate) fn close_dict(&mut self) -> io::Result<()> {
        self.out.write_all(&[SETITEMS])
    }

    /// Creates a tuple of the last two values.
    pub(crate) fn pair(&mut self) -> io::Result<()> {
        self.out.write_all(&[TUPLE2])
    }

    /// Memorises the last value. Returns its number for [`recall`](Self::recall).
    pub(crate) fn memorise(&mut self) -> io::Result<u32> {
        self.out.write_all(&[MEMOIZE])?;
        let number = self.memorised;
        self.memorised = number.checked_add(1).ok_or_else(|| io::Error::other("too many shared values"))?;
        Ok(number)
    }

    /// Writes a reference to a memorised value.
    pub(crate) fn recall(&mut self, number: u32) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(byte) => self.out.write_all(&[BINGET, byte]),
            Err(_) => self.with_operand(LONG_BINGET, &number.to_le_bytes()),
        }
    }

    fn with_operand(&mut self, opcode: u8, operand: &[u8]) -> io::Result<()> {
        self.out.write_all(&[opcode])?;
        self.out.write_all(operand)
    }
}
