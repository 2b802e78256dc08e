//! What a process that imports memory must know of it.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::interprocess::Exported;
use crate::types::{DeviceKind, SharingProblem, Uuid};

/// The largest number of pieces in one message, each of which may have a file descriptor. Linux allows 253.
pub(super) const PIECES: usize = 64;
/// The largest number of exported bytes of a piece.
const BYTES: usize = 256;
/// The largest length of a message.
pub(super) const MESSAGE: usize = PIECES * (BYTES + 24);

/// How memory is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As one segment.
    Segment,
    /// As pages, to be mapped one after another.
    Pages,
}

/// Memory that the driver has exported once.
#[derive(Debug)]
pub(crate) struct Export {
    /// A number that no other memory of its process has.
    number: u64,
    pub(crate) exported: Exported,
}

impl From<Exported> for Export {
    fn from(exported: Exported) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self { number: COUNT.fetch_add(1, Ordering::Relaxed), exported }
    }
}

/// Exported memory with one address, or without.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) len: u64,
    pub(crate) export: Arc<Export>,
}

/// Shared memory: the device that it belongs to, and where in its pieces it is.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) kind: String,
    pub(crate) ordinal: u32,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) form: Form,
    /// The offset of the memory from the start of the first piece.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) pieces: Vec<Piece>,
}

impl Description {
    /// Returns whether the memory belongs to this device.
    pub(crate) fn is_of(&self, kind: DeviceKind, ordinal: u32, uuid: Option<Uuid>) -> bool {
        let same = match (self.uuid, uuid) {
            (Some(own), Some(other)) => own.0 == other.0, // numbers differ between processes that see other devices
            _ => self.ordinal == ordinal,
        };
        same && self.kind == kind.name()
    }

    /// Returns a name of the pieces that no others of their process have.
    pub(crate) fn name(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.export.number.to_le_bytes()).collect()
    }

    /// Returns everything but the pieces as a message.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = vec![u8::from(self.form == Form::Pages), u8::from(self.uuid.is_some())];
        head.extend(self.uuid.map_or([0; 16], |uuid| uuid.0));
        head.extend(self.ordinal.to_le_bytes());
        for number in [self.offset, self.len, self.pieces.len() as u64] {
            head.extend(number.to_le_bytes());
        }
        head.extend(self.kind.as_bytes());
        head
    }

    /// Reads a head. Returns the description without its pieces, and their number.
    pub(super) fn read_head(mut bytes: &[u8]) -> Result<(Self, u64), SharingProblem> {
        let [form, has_uuid] = take(&mut bytes)?;
        let uuid = take(&mut bytes)?;
        let ordinal = u32::from_le_bytes(take(&mut bytes)?);
        let [offset, len, pieces] = [number(&mut bytes)?, number(&mut bytes)?, number(&mut bytes)?];
        let kind = str::from_utf8(bytes).map_err(|_| SharingProblem::NoAnswer)?.to_owned();
        let (form, uuid) = match (form, has_uuid) {
            (form @ 0..=1, has @ 0..=1) => {
                ([Form::Segment, Form::Pages][usize::from(form)], (has == 1).then_some(Uuid(uuid)))
            }
            _ => return Err(SharingProblem::NoAnswer),
        };
        Ok((Self { kind, ordinal, uuid, form, offset, len, pieces: Vec::new() }, pieces))
    }

    /// Adds the pieces of a message, with the files that came with it.
    pub(super) fn add_pieces(
        &mut self,
        mut bytes: &[u8],
        files: impl IntoIterator<Item = File>,
    ) -> Result<(), SharingProblem> {
        let mut files = files.into_iter();
        while !bytes.is_empty() {
            let [len, number] = [number(&mut bytes)?, number(&mut bytes)?];
            let [has_file, low, high] = take(&mut bytes)?;
            let (own, rest) =
                bytes.split_at_checked(u16::from_le_bytes([low, high]).into()).ok_or(SharingProblem::NoAnswer)?;
            bytes = rest;
            let file = (has_file == 1).then(|| files.next().ok_or(SharingProblem::NoAnswer)).transpose()?;
            let exported = Exported { bytes: own.to_vec(), file };
            self.pieces.push(Piece { len, export: Arc::new(Export { number, exported }) });
        }
        Ok(())
    }

    /// Fails unless the pieces contain the memory.
    pub(super) fn check(&self) -> Result<(), SharingProblem> {
        let total = self.pieces.iter().try_fold(0, |sum: u64, piece| sum.checked_add(piece.len));
        let end = self.offset.checked_add(self.len);
        let fits = end.zip(total).is_some_and(|(end, total)| 0 < self.len && end <= total);
        let whole = self.form == Form::Pages || self.pieces.len() == 1;
        if fits && whole && self.pieces.iter().all(|piece| piece.len > 0) {
            Ok(())
        } else {
            Err(SharingProblem::NoAnswer)
        }
    }
}

impl Piece {
    /// Appends the piece to a message.
    pub(super) fn write(&self, message: &mut Vec<u8>) {
        let Export { number, exported: Exported { bytes, file } } = &*self.export;
        let bytes = &bytes[..bytes.len().min(BYTES)];
        message.extend(self.len.to_le_bytes());
        message.extend(number.to_le_bytes());
        message.push(u8::from(file.is_some()));
        message.extend((bytes.len() as u16).to_le_bytes());
        message.extend(bytes);
    }
}

fn number(bytes: &mut &[u8]) -> Result<u64, SharingProblem> {
    take(bytes).map(u64::from_le_bytes)
}

/// Takes the first bytes of a message.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], SharingProblem> {
    let (first, rest) = bytes.split_first_chunk().ok_or(SharingProblem::NoAnswer)?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Description {
        let exported = |byte| Exported { bytes: vec![byte; 3], file: None };
        let piece = |len, byte| Piece { len, export: Arc::new(Export { number: 9, exported: exported(byte) }) };
        let (kind, uuid) = ("host".to_owned(), Some(Uuid([7; 16])));
        Description {
            kind,
            ordinal: 3,
            uuid,
            form: Form::Pages,
            offset: 5,
            len: 20,
            pieces: vec![piece(16, 1), piece(9, 2)],
        }
    }

    fn read(head: &[u8], pieces: &[u8]) -> Result<Description, SharingProblem> {
        let (mut description, count) = Description::read_head(head)?;
        description.add_pieces(pieces, Vec::new())?;
        assert_eq!(count, 2);
        description.check().map(|()| description)
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let description = described();
        let mut pieces = Vec::new();
        description.pieces.iter().for_each(|piece| piece.write(&mut pieces));
        let read = read(&description.head(), &pieces).unwrap();
        assert_eq!(format!("{read:?}"), format!("{description:?}"));
    }

    #[test]
    fn what_is_no_description_is_an_error() {
        let description = described();
        let (head, mut pieces) = (description.head(), Vec::new());
        description.pieces.iter().for_each(|piece| piece.write(&mut pieces));
        for len in 0..42 {
            assert!(Description::read_head(&head[..len]).is_err(), "a head of {len} bytes");
        }
        for len in (1..pieces.len()).filter(|len| *len != 22) {
            assert!(read(&head, &pieces[..len]).is_err(), "pieces of {len} bytes");
        }
        for (offset, len) in [(5, 21), (u64::MAX, 2), (0, 0), (26, 1)] {
            assert!(Description { offset, len, ..described() }.check().is_err());
        }
        assert!(Description { form: Form::Segment, ..described() }.check().is_err());
    }

    #[test]
    fn a_device_is_known_by_its_uuid_or_else_by_its_number() {
        let (host, description) = (DeviceKind::new("host"), described());
        assert!(description.is_of(host, 9, Some(Uuid([7; 16]))));
        assert!(!description.is_of(host, 3, Some(Uuid([8; 16]))));
        assert!(description.is_of(host, 3, None) && !description.is_of(host, 4, None));
        assert!(!description.is_of(DeviceKind::new("other"), 3, None));
    }
}
