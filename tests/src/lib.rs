//! Tests of the whole workspace, in the files next to this folder.

/// The examples in documents outside the crates.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/ADDING_A_BACKEND.md")]
    struct AddingABackend;
}
