//! The report of a failing input.

use std::fs::read_to_string;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::collection::vec;
use proptest::prelude::any;

use super::cases::check_in;

#[test]
fn an_input_that_fails_is_shrunk_and_written_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let run = |fails: bool| {
        let inputs = vec(any::<u8>(), 300..600);
        check_in(folder.path(), "planted::fails", 1, inputs, |input| {
            assert!(!fails, "{} bytes", input.len());
        });
    };
    let panic = catch_unwind(AssertUnwindSafe(|| run(true))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    let file = folder.path().join("planted.fails.txt");
    assert_eq!(*message, format!("300 bytes\nThe input is in {}, shrunk and in full", file.display()));
    let text = read_to_string(&file).unwrap();
    let first = "planted::fails: 300 bytes\nThe same inputs again: PROPTEST_RNG_SEED=";
    assert!(text.starts_with(first), "{text}");
    assert!(text.ends_with(&format!("\n\n{:#?}\n", [0_u8; 300])), "{text}");
    run(false);
    assert!(!file.exists(), "the property holds now");
}
