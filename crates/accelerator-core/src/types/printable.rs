//! Text from outside the program, made safe for messages.

use std::ffi::OsStr;

/// Makes text from a file, a driver or a user safe to show. Characters that control a terminal, and characters that
/// hide or reverse the text around them, become escapes such as `\n` or `\u{1b}`. Everything else stays as it is, so
/// that a file can be found by its name, and text that is already escaped does not change.
pub fn printable<T: AsRef<OsStr> + ?Sized>(text: &T) -> String {
    let text = text.as_ref().to_string_lossy();
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_unsafe(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Control characters, line and paragraph separators, characters that change the direction of text, invisible
/// characters and noncharacters. Joiners (U+200C and U+200D) are not among them, since words and emoji are spelled with
/// them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{fffe}' | '\u{ffff}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let hostile = "\u{1b}[2J\u{7}a\rb\u{9b}31m\u{7f}\u{202e}c\u{2066}\u{200b}\n";
        let shown = r"\u{1b}[2J\u{7}a\rb\u{9b}31m\u{7f}\u{202e}c\u{2066}\u{200b}\n";
        assert_eq!(printable(hostile), shown);
        assert_eq!(printable(Path::new(hostile)), shown);
        assert_eq!(printable(shown), shown, "a second time changes nothing");
        assert_eq!(printable("a\u{3164}\u{ffa0}\u{34f}b"), r"a\u{3164}\u{ffa0}\u{34f}b");
    }

    #[test]
    fn ordinary_text_stays() {
        for text in
            ["", "C:\\runs\\it's \"one\".trace", "e\u{301}té, 日本語 Ελληνικά עברית", "می\u{200c}خواهم", "👩\u{200d}🚀"]
        {
            assert_eq!(printable(text), text);
        }
    }
}
