use std::io;

use crate::limits::LimitError;

/// Why a pickle is not read: where, and what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}: {fault}")]
pub struct PickleError {
    /// The byte at which the wrong operation begins, from 0. For a file that ends too early, its length.
    pub offset: u64,
    /// What is wrong.
    #[source]
    pub fault: PickleFault,
}

/// What can be wrong with a pickle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PickleFault {
    /// It would run code, or make an object by running code.
    #[error("refused {opcode} of `{name}`: a pickle may hold data only")]
    Refused {
        /// The operation.
        opcode: &'static str,
        /// What it asks for: a module and a name, or a number. Long names are shortened.
        name: String,
    },
    /// It is not whole.
    #[error("the pickle ends here in the middle of {opcode}: the file is cut short")]
    Truncated {
        /// The operation, or a phrase for the next one.
        opcode: &'static str,
    },
    /// No pickle has such a byte here.
    #[error("0x{0:02x} is no operation of a pickle: the file is damaged, or no pickle")]
    UnknownOpcode(u8),
    /// A protocol that did not exist when this was written.
    #[error("protocol {0}: only 0 to 5 are known")]
    UnknownProtocol(u8),
    /// Something behind the end.
    #[error("the pickle ends before this byte, but the file goes on")]
    Trailing,
    /// An operation lacks what it works on.
    #[error("{opcode} has not enough to work on: the pickle is damaged")]
    Missing {
        /// The operation.
        opcode: &'static str,
    },
    /// An operation cannot work on what there is.
    #[error("{opcode} cannot work on {found}: the pickle is damaged")]
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
    #[error("the pickle refers to its part number {0}, which it does not have: it is damaged")]
    NotInMemo(u64),
    /// What was handed over already is to be changed.
    #[error("{opcode} changes a part of the pickle that was complete before: such a pickle cannot be read")]
    Changed {
        /// The operation.
        opcode: &'static str,
    },
    /// It holds too much that must be in memory at once.
    #[error("{0}")]
    TooLarge(#[from] LimitError),
    /// Its parts are in one another too deeply.
    #[error("more than {limit} levels of parts in parts")]
    TooDeep {
        /// How many levels are allowed.
        limit: usize,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}
