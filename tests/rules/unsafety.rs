//! Every unsafe operation has its proof, every unsafe function its conditions.

use super::source::{Finding, Source, words};

/// Blocks and implementations without a `// SAFETY:` comment, functions and traits without a `# Safety` section.
pub(crate) fn missing_proofs(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (index, code) in source.code.iter().enumerate() {
            for (end, _) in words(code).filter(|(_, word)| *word == "unsafe") {
                let next = what_follows(source, index, end);
                let declares = matches!(next.as_str(), "fn" | "trait");
                if next == "fn(" || (declares && is_implementation(source, index)) {
                    continue; // a type; a method whose trait says it
                }
                let (marker, todo) = match declares {
                    true => ("# Safety", "add a `# Safety` section that lists what the caller upholds"),
                    false => {
                        ("SAFETY:", "add a `// SAFETY:` comment above it that says why it is sound here")
                    }
                };
                if !is_explained(source, index, marker) {
                    findings
                        .push(source.finding(index + 1, format!("`{}`: {todo}", source.code[index].trim())));
                }
            }
        }
    }
    findings
}

/// The word behind `unsafe`, an ABI skipped; `fn(` for a function pointer.
fn what_follows(source: &Source, index: usize, end: usize) -> String {
    let rest =
        source.code[index][end..].to_owned() + " " + source.code.get(index + 1).map_or("", String::as_str);
    let rest = rest.trim_start();
    let behind_abi = rest.strip_prefix("extern").map(|rest| rest.trim_start_matches(['"', ' ']));
    let rest = behind_abi.filter(|rest| rest.starts_with("fn")).unwrap_or(rest);
    if rest.starts_with("fn(") || rest.starts_with("fn (") {
        return "fn(".to_owned();
    }
    rest.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Whether the line stands in an `impl … for …`: by the indentation that rustfmt gives it.
fn is_implementation(source: &Source, index: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(&source.code[index]);
    let outer = source.code[..index].iter().rev().filter(|line| !line.trim().is_empty());
    let header =
        outer.clone().find(|line| indent(line) < own && !line.trim_start().starts_with([')', '}', '>']));
    header.is_some_and(|line| line.contains("impl") && line.contains(" for "))
}

/// Whether a comment with the marker stands directly above the line, or above the statement that it continues.
fn is_explained(source: &Source, index: usize, marker: &str) -> bool {
    let has = |line: &str| line.split_once("//").is_some_and(|(_, comment)| comment.contains(marker));
    let mut in_statement = true;
    for above in (0..index).rev() {
        let line = source.lines[above].trim();
        let code = source.code[above].trim_end();
        if line.starts_with("//") || line.starts_with("#[") {
            if has(line) {
                return true;
            }
            in_statement = false;
        } else if line.is_empty() || !in_statement || code.ends_with([';', '{', '}', ',']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        missing_proofs(&[Source::new("a.rs", text)]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn what_has_no_proof_is_found() {
        assert_eq!(lines("fn a() {\n    unsafe { b() }\n}"), [2]);
        assert_eq!(lines("// SAFETY: far away\n\nunsafe impl A for B {}"), [3]);
        assert_eq!(lines("// SAFETY: of the other\nb();\nlet c = unsafe { d() };"), [3]);
        assert_eq!(lines("/// Does a.\npub unsafe fn a() {}"), [2]);
        assert_eq!(lines("/// A.\nunsafe trait A {}"), [2]);
        assert_eq!(lines("unsafe extern \"C\" {}"), [1]);
        assert_eq!(lines("\"// SAFETY: \"; unsafe { a() }"), [1]);
        assert_eq!(lines("impl A {\n    unsafe fn b() {}\n}"), [2]);
    }

    #[test]
    fn what_has_one_is_not() {
        for text in [
            "// SAFETY: so\n// and so\nunsafe impl A for B {}",
            "// SAFETY: so\nlet a =\n    unsafe { b() };",
            "// SAFETY: so\n#[allow(x)]\nunsafe { b() }",
            "/// # Safety\n/// * Do.\n#[must_use]\npub unsafe fn a() {}",
            "impl A for B {\n    fn x() {\n    }\n\n    unsafe fn b() {}\n}",
            "// SAFETY: x\nunsafe impl A for B {\n    unsafe fn b() {}\n}",
            "type A = unsafe extern \"C\" fn(u8);\n#![deny(unsafe_code)]\n// unsafe { }",
        ] {
            assert_eq!(lines(text), [], "{text}");
        }
    }
}
