//! Backends that a machine must have.

use libtest_mimic::{Completion, Failed};

/// Returns the result of a trial of your own when its backend is not available: ignored with the reason, or failed if
/// the environment variable `ACCELERATOR_REQUIRE`, a list such as `host,cuda`, names the backend.
///
/// # Errors
/// The backend is required.
pub fn unavailable(name: &str, reason: &str) -> Result<Completion, Failed> {
    match requirement(name, reason) {
        Some(required) => Err(required.into()),
        None => Ok(Completion::ignored_with(format!("not available: {reason}"))),
    }
}

/// Returns why trials fail when their backend is not available, or `None` if they are ignored instead.
pub(super) fn requirement(name: &str, reason: &str) -> Option<String> {
    let required = std::env::var_os("ACCELERATOR_REQUIRE").unwrap_or_default();
    contains(&required.to_string_lossy(), name)
        .then(|| format!("ACCELERATOR_REQUIRE asks for `{name}`, which is not available: {reason}"))
}

fn contains(list: &str, name: &str) -> bool {
    list.split(',').any(|required| required.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_between_commas() {
        assert!(contains("host,cuda", "cuda"));
        assert!(contains(" host , cuda", "host"));
        assert!(!contains("host,cuda", "cud"));
        assert!(!contains("", "host"));
    }
}
