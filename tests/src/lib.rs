//! Tests of the workspace as a whole: see the files beside this folder.

/// The examples of the documents outside the crates.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/ADDING_A_BACKEND.md")]
    struct AddingABackend;
}
