//! The few classes that a pickle may name, since they only contain data.

use super::fault::PickleFault;
use super::value::Class;
use crate::file::excerpt;

/// Returns the class with this name.
pub(super) fn class(module: &str, name: &str, opcode: &'static str) -> Result<Class, PickleFault> {
    match (module, name) {
        ("collections", "defaultdict") => Ok(Class::DefaultDict),
        ("collections", "OrderedDict") => Ok(Class::OrderedDict),
        // Python 2 and the protocols that it can read use the second name.
        (
            "builtins" | "__builtin__",
            "bool" | "bytes" | "dict" | "float" | "int" | "list" | "set" | "str" | "tuple",
        ) => Ok(Class::Plain),
        _ => Err(refused(opcode, format!("{module}.{name}"))),
    }
}

pub(super) fn refused(opcode: &'static str, name: String) -> PickleFault {
    PickleFault::Refused { opcode, name: excerpt(&name) }
}
