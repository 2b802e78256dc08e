use crate::file;

/// Escapes text. Names come from files, so they may contain anything.
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

/// The name of a module or operator, in which lines may break between the parts.
pub(super) fn breakable(name: &str) -> String {
    let parts: Vec<_> = shortened(name).split_inclusive(['.', '/', ':', '_']).map(escape).collect();
    parts.join("<wbr>").replace(":<wbr>:", "::")
}

/// A name that can be shown and does not fill the page.
pub(super) fn shortened(name: &str) -> String {
    file::shortened(name, 300)
}
