//! Relative paths as text, with `/`.

/// Returns the folder of a file, which is empty for a file at the top.
pub(crate) fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Resolves a target relative to a folder, and removes `.` and `..`. Returns `None` if the result is outside the top
/// folder.
pub(crate) fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the path of a file relative to a folder. Both are given from the same top folder.
pub(crate) fn relative(folder: &str, file: &str) -> String {
    let from: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let to: Vec<&str> = file.split('/').collect();
    let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = std::iter::repeat_n("..", from.len() - shared);
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

#[test]
fn paths_are_resolved_and_made_relative() {
    assert_eq!((folder("a/b/c.md"), folder("c.md")), ("a/b", ""));
    assert_eq!(resolve("a/b", "../c.md").as_deref(), Some("a/c.md"));
    assert_eq!(resolve("a", "./b/").as_deref(), Some("a/b"));
    assert_eq!(resolve("a", "../../c.md"), None);
    assert_eq!(relative("a/b", "a/c.md"), "../c.md");
    assert_eq!(relative("", "a/c.md"), "a/c.md");
    assert_eq!(relative("a", "a/c.md"), "c.md");
}
