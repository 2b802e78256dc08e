//! Backends that a machine must have.

/// Decides about a trial of your own whose backend is not available. Returns the reason with which it is ignored, or
/// with which it fails if the environment variable `ACCELERATOR_REQUIRE`, a list such as `host,cuda`, names the
/// backend.
///
/// # Errors
/// The backend is required.
pub fn unavailable(name: &str, reason: &str) -> Result<String, String> {
    match requirement(name, reason) {
        Some(required) => Err(required),
        None => Ok(format!("not available: {reason}")),
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
