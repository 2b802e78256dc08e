use std::io;

use crate::limits::LimitError;

/// Why a pickle is not read: where, and what is wrong.
#[derive(thiserror::Error)]
#[error("at byte {offset}: {fault}")]
pub struct PickleError {
    /// The byte at which the wrong operation begins, from 0. For a file that ends too early, its length.
    pub offset: u64,
    /// What is wrong.
    #[source]
    pub fault: PickleFault,
}

/// What can be wrong with a pickle.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PickleFault {
    /// It would run code, or make an object by running code.
    #[error("refused {opcode} of `{name}`: a pickle may only hold data")]
    Refused {
        /// The operation.
        opcode: &'static str,
        /// What it asks for: a module and a name, or a number. Long names are shortened.
        name: String,
    },
    /// It is not whole.
    #[error("the pickle ends in the middle of {opcode}: the file is truncated")]
    Truncated {
        /// The operation, or a phrase for the next one.
        opcode: &'static str,
    },
    /// No pickle has such a byte here.
    #[error("0x{0:02x} is not a pickle opcode: the file is damaged or not a pickle")]
    UnknownOpcode(u8),
    /// A protocol that did not exist when this was written.
    #[error("unknown pickle protocol {0}: only 0 to 5 are supported")]
    UnknownProtocol(u8),
    /// Something behind the end.
    #[error("the pickle ends before this byte, but the file continues")]
    Trailing,
    /// An operation lacks what it works on.
    #[error("{opcode} lacks an operand: the pickle is damaged")]
    Missing {
        /// The operation.
        opcode: &'static str,
    },
    /// An operation cannot be applied to what there is.
    #[error("{opcode} cannot be applied to {found}: the pickle is damaged")]
    Unfit {
        /// The operation.
        opcode: &'static str,
        /// The operand that was found.
        found: &'static str,
    },
    /// Text of a number that is none, or a text that is none.
    #[error("{opcode}: {what}")]
    Unreadable {
        /// The operation.
        opcode: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A place of the memo that was never filled.
    #[error("the pickle refers to memo entry {0}, which does not exist: the pickle is damaged")]
    NotInMemo(u64),
    /// What was handed over already is to be changed.
    #[error("{opcode} changes an object that was already complete: such a pickle cannot be read")]
    Changed {
        /// The operation.
        opcode: &'static str,
    },
    /// It holds too much that must be in memory at once.
    #[error("{0}")]
    TooLarge(#[from] LimitError),
    /// Its parts are in one another too deeply.
    #[error("objects are nested more than {limit} levels deep")]
    TooDeep {
        /// How many levels are allowed.
        limit: usize,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

accelerator_core::debug_as_display!(PickleError, PickleFault);
