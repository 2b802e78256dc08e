use std::io;

use crate::limits::LimitError;

/// Why a pickle cannot be read: the position and the problem.
#[derive(thiserror::Error)]
#[error("at byte {offset}: {fault}")]
pub struct PickleError {
    /// The byte at which the wrong operation begins, from 0. If the file ends too early, its length.
    pub offset: u64,
    /// What is wrong.
    #[source]
    pub fault: PickleFault,
}

/// A problem with a pickle.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PickleFault {
    /// It would run code, or create an object by running code.
    #[error("refused {opcode} of `{name}`: a pickle may only hold data")]
    Refused {
        /// The operation.
        opcode: &'static str,
        /// The requested object: a module and a name, or a number. Long names are shortened.
        name: String,
    },
    /// It is truncated.
    #[error("the pickle ends in the middle of {opcode}: the file is truncated")]
    Truncated {
        /// The operation, or a description of the next one.
        opcode: &'static str,
    },
    /// This byte is not an opcode.
    #[error("0x{0:02x} is not a pickle opcode: the file is damaged or not a pickle")]
    UnknownOpcode(u8),
    /// The protocol is unknown.
    #[error("unknown pickle protocol {0}: only 0 to 5 are supported")]
    UnknownProtocol(u8),
    /// There is data after the end.
    #[error("the pickle ends before this byte, but the file continues")]
    Trailing,
    /// An operation lacks an operand.
    #[error("{opcode} lacks an operand: the pickle is damaged")]
    Missing {
        /// The operation.
        opcode: &'static str,
    },
    /// An operation cannot be applied to its operand.
    #[error("{opcode} cannot be applied to {found}: the pickle is damaged")]
    Unfit {
        /// The operation.
        opcode: &'static str,
        /// The operand that was found.
        found: &'static str,
    },
    /// A number or a string is malformed.
    #[error("{opcode}: {what}")]
    Unreadable {
        /// The operation.
        opcode: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// An entry of the memo was never set.
    #[error("the pickle refers to memo entry {0}, which does not exist: the pickle is damaged")]
    NotInMemo(u64),
    /// An operation would change an object that was already handed over.
    #[error("{opcode} changes an object that was already complete: such a pickle cannot be read")]
    Changed {
        /// The operation.
        opcode: &'static str,
    },
    /// It needs too much memory at once.
    #[error("{0}")]
    TooLarge(#[from] LimitError),
    /// Its objects are nested too deeply.
    #[error("objects are nested more than {limit} levels deep")]
    TooDeep {
        /// The maximum number of levels.
        limit: usize,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

accelerator_core::debug_as_display!(PickleError, PickleFault);
