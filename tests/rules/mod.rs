//! The rules, each a function from text to findings.

pub(crate) mod figures;
pub(crate) mod layers;
pub(crate) mod links;
pub(crate) mod packages;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod uses;
