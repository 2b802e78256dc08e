//! Links in Markdown, including rustdoc's links to Rust items.

/// A link `[text](target)` or `[text](target "title")`.
#[derive(Debug, PartialEq)]
pub(crate) struct Link<'a> {
    pub(crate) text: &'a str,
    pub(crate) target: &'a str,
    /// The title with the space before it and its quotation marks; often empty.
    pub(crate) title: &'a str,
}

/// Replaces the links of a document outside code, and marks code blocks without a language as Rust, as rustdoc does.
/// `replace` returns the replacement for a link, or `None` to keep it. A name that is only in brackets, which rustdoc
/// turns into a link, loses its brackets.
pub(crate) fn rewrite(document: &str, mut replace: impl FnMut(&Link<'_>) -> Option<String>) -> String {
    let mut out = String::with_capacity(document.len());
    let mut fence: Option<&str> = None;
    for line in document.split_inclusive('\n') {
        let trimmed = line.trim();
        match fence {
            Some(open) if trimmed == open => fence = None,
            Some(_) => {}
            None if trimmed.starts_with("```") => {
                fence = Some(&trimmed[..trimmed.len() - trimmed.trim_start_matches('`').len()]);
                if trimmed == "```" {
                    out.push_str(&line.replace("```", "```rust"));
                    continue;
                }
            }
            None => {
                rewrite_line(line, &mut out, &mut replace);
                continue;
            }
        }
        out.push_str(line);
    }
    out
}

fn rewrite_line(line: &str, out: &mut String, replace: &mut impl FnMut(&Link<'_>) -> Option<String>) {
    let mut rest = line;
    while let Some(at) = rest.find(['`', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.starts_with('`') {
            true => code(rest),
            false => link(rest, out, replace),
        };
        match taken {
            Taken::Copied(length) => {
                out.push_str(&rest[..length]);
                rest = &rest[length..];
            }
            Taken::Replaced(length) => rest = &rest[length..],
        }
    }
    out.push_str(rest);
}

/// The number of bytes of a line that were parsed. They are still to be copied, or were already replaced.
enum Taken {
    Copied(usize),
    Replaced(usize),
}

/// Parses inline code, which ends with as many backticks as it begins with.
fn code(rest: &str) -> Taken {
    let ticks = &rest[..rest.len() - rest.trim_start_matches('`').len()];
    Taken::Copied(rest[ticks.len()..].find(ticks).map_or(ticks.len(), |end| end + 2 * ticks.len()))
}

fn link(rest: &str, out: &mut String, replace: &mut impl FnMut(&Link<'_>) -> Option<String>) -> Taken {
    let Some(end) = end_of_text(rest) else { return Taken::Copied(1) };
    let (text, after) = (&rest[1..end], &rest[end + 1..]);
    if let Some((target, title)) = destination(after) {
        let length = end + 1 + target.len() + title.len() + 2;
        return match replace(&Link { text, target, title }) {
            Some(replacement) => {
                out.push_str(&replacement);
                Taken::Replaced(length)
            }
            None => Taken::Copied(length),
        };
    }
    let is_name = text.len() > 2 && text.starts_with('`') && text.ends_with('`');
    if is_name && !after.starts_with(['[', ':']) {
        out.push_str(text);
        return Taken::Replaced(end + 1);
    }
    Taken::Copied(1)
}

/// Returns the target and the title of a link. `after` starts after the link's text.
fn destination(after: &str) -> Option<(&str, &str)> {
    let inner = after.strip_prefix('(')?;
    let target = &inner[..inner.find([' ', ')'])?];
    let rest = &inner[target.len()..];
    let title = if rest.starts_with(" \"") { &rest[..rest.find("\")")? + 1] } else { "" };
    rest[title.len()..].starts_with(')').then_some((target, title))
}

/// Returns the position at which the opening bracket at the start is closed. Skips code and inner brackets.
fn end_of_text(rest: &str) -> Option<usize> {
    let (mut depth, mut in_code) = (0, false);
    for (at, c) in rest.char_indices() {
        match c {
            '`' => in_code = !in_code,
            '[' if !in_code => depth += 1,
            ']' if !in_code => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(document: &str) -> String {
        rewrite(document, |link| (link.target != "keep").then(|| format!("<{}|{}>", link.text, link.target)))
    }

    #[test]
    fn links_are_replaced_outside_code() {
        assert_eq!(rewritten("a [b](c#d), [`e`](f) [g](keep)\n"), "a <b|c#d>, <`e`|f> [g](keep)\n");
        assert_eq!(rewritten("`[a](b)` ``[`a](b)`` [[c]](d)"), "`[a](b)` ``[`a](b)`` <[c]|d>");
        assert_eq!(rewritten("```text\n[a](b)\n```\n[a](b)"), "```text\n[a](b)\n```\n<a|b>");
        assert_eq!(rewritten("![a](b) x[0] [a\n"), "!<a|b> x[0] [a\n");
        assert_eq!(rewritten("[a](b \"c (d)\") [e](f g)"), "<a|b> [e](f g)");
    }

    #[test]
    fn names_of_rustdoc_lose_their_brackets() {
        assert_eq!(rewritten("[`a::b`], [`c()`]; [a] [`d`][e]"), "`a::b`, `c()`; [a] [`d`][e]");
        assert_eq!(rewritten("| `x(\\|y\\| z)` | [`w`] |"), "| `x(\\|y\\| z)` | `w` |");
    }

    #[test]
    fn code_without_a_language_is_rust() {
        assert_eq!(rewritten("```\na\n```\n````\n```\n````\n"), "```rust\na\n```\n````\n```\n````\n");
    }
}
