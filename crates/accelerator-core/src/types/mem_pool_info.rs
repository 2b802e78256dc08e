use std::sync::Arc;

/// The name of a private pool, and the memory that it has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemPoolInfo {
    /// The name that the program has given it, if any. Several pools may have the same name.
    pub name: Option<Arc<str>>,
    /// Bytes held from the driver, or paused.
    pub reserved_bytes: u64,
    /// Bytes of `reserved_bytes` that are back with the driver while the pool is paused.
    pub paused_bytes: u64,
}

/// The longest name of a pool, in characters.
const LONGEST: usize = 100;

/// Returns whether a pool may have this name: it fits into a line, and shows all of its characters.
pub(crate) fn is_pool_name(name: &str) -> bool {
    let is_shown = super::printable(name) == name && name.trim() == name;
    !name.is_empty() && name.chars().count() <= LONGEST && is_shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_visible_text_of_one_line() {
        for name in ["w", "kv_cache", "layer 3/weights", "<b>", "重み", &"é".repeat(100)] {
            assert!(is_pool_name(name), "{name}");
        }
        for name in ["", " ", "weights ", "\tweights", "a\nb", "\u{1b}[31mred", "a\u{202e}b", "a\0", &"x".repeat(101)] {
            assert!(!is_pool_name(name), "{name:?}");
        }
    }
}
