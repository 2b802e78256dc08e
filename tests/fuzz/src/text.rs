//! What holds for every message.

/// Checks a message that may quote an input: it says something, and its characters control no terminal.
pub(crate) fn check_message(message: &str) {
    assert!(!message.is_empty());
    let control = message.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "in {message:?}");
}
