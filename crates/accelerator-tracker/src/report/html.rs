use crate::file;

/// Escapes text. Names come from files, so they can contain anything.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in shortened(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the name of a module or operator, with possible line breaks between its parts.
pub(super) fn breakable(name: &str) -> String {
    let parts: Vec<_> = shortened(name).split_inclusive(['.', '/', ':', '_']).map(escape).collect();
    parts.join("<wbr>").replace(":<wbr>:", "::")
}

/// Returns a printable name that does not fill the page.
pub(super) fn shortened(name: &str) -> String {
    file::shortened(name, 300)
}
