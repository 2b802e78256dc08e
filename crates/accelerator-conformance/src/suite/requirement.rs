//! Backends that must be there.

/// Whether the environment variable `ACCELERATOR_REQUIRE`, a list as `host,cuda`, has this name.
pub(super) fn is_required(name: &str) -> bool {
    let required = std::env::var_os("ACCELERATOR_REQUIRE").unwrap_or_default();
    contains(&required.to_string_lossy(), name)
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
