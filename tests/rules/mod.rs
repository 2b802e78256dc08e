//! The rules. Each is a function that returns findings for a text.

pub(crate) mod figures;
pub(crate) mod layers;
pub(crate) mod links;
mod markdown;
pub(crate) mod packages;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod trust;
pub(crate) mod uses;
