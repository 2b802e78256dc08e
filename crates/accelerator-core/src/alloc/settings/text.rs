//! The grammar of settings strings: `key:value,key:[a:b,c:d]`, with white space ignored. PyTorch: `ConfigTokenizer`.

use std::iter::Peekable;
use std::str::Chars;

use crate::types::MIB;

/// The value of a key.
pub(crate) enum Value {
    Text(String),
    Table(Vec<(String, Value)>),
}

/// How deep tables may be inside others. No key has a table inside its table, but a message about the key says more
/// than one about the depth.
const MOST_TABLES: u32 = 4;

/// Parses a settings string into its keys and values.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Value)>, String> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut rest = compact.chars().peekable();
    let mut pairs = Vec::new();
    while rest.peek().is_some() {
        pairs.push(pair(&mut rest, MOST_TABLES)?);
        match rest.next() {
            None | Some(',') => {}
            Some(other) => return Err(format!("expected `,` between settings, but found `{other}`")),
        }
    }
    Ok(pairs)
}

fn pair(rest: &mut Peekable<Chars<'_>>, tables: u32) -> Result<(String, Value), String> {
    let key = word(rest);
    if key.is_empty() {
        return Err(format!("expected a key{}", found(rest)));
    }
    if rest.next_if_eq(&':').is_none() {
        return Err(format!("expected `:` and a value after `{key}`{}", found(rest)));
    }
    if rest.next_if_eq(&'[').is_some() {
        let inside = tables.checked_sub(1).ok_or_else(|| format!("the tables around `{key}` are nested too deep"))?;
        return Ok((key.clone(), Value::Table(table(&key, rest, inside)?)));
    }
    let text = word(rest);
    if text.is_empty() {
        return Err(format!("expected a value for `{key}`{}", found(rest)));
    }
    Ok((key, Value::Text(text)))
}

fn table(key: &str, rest: &mut Peekable<Chars<'_>>, tables: u32) -> Result<Vec<(String, Value)>, String> {
    let mut entries = Vec::new();
    loop {
        if rest.next_if_eq(&']').is_some() {
            return Ok(entries);
        }
        entries.push(pair(rest, tables)?);
        if rest.peek() != Some(&']') && rest.next_if_eq(&',').is_none() {
            return Err(format!("expected `,` or `]` in the table of `{key}`{}", found(rest)));
        }
    }
}

fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    std::iter::from_fn(|| rest.next_if(|c| !",:[]".contains(*c))).collect()
}

fn found(rest: &mut Peekable<Chars<'_>>) -> String {
    rest.peek().map_or_else(|| ", but the text ends there".to_owned(), |c| format!(", but found `{c}`"))
}

impl Value {
    pub(crate) fn text(&self, key: &str, expected: &str) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Table(_) => Err(mismatch(key, expected, "a table")),
        }
    }

    pub(crate) fn table(&self, key: &str) -> Result<&[(String, Self)], String> {
        match self {
            Self::Text(text) => Err(mismatch(key, "a table such as `[a:1,b:2]`", &format!("`{text}`"))),
            Self::Table(entries) => Ok(entries),
        }
    }

    pub(crate) fn integer(&self, key: &str) -> Result<u64, String> {
        self.read(key, "a whole number", |text| text.parse().ok())
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64, String> {
        self.read(key, "a number", |text| text.parse().ok())
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<bool, String> {
        Ok(self.one_of(key, &["True", "False"])? == 0)
    }

    /// Returns the index of the value among these words.
    pub(crate) fn one_of(&self, key: &str, words: &[&str]) -> Result<usize, String> {
        let expected = format!("`{}`", words.join("` or `"));
        self.read(key, &expected, |text| words.iter().position(|word| *word == text))
    }

    /// Returns a number of MiB, in bytes. A number too large for that becomes the largest whole number of MiB.
    pub(crate) fn mebibytes(&self, key: &str) -> Result<u64, String> {
        Ok(self.integer(key)?.min(u64::MAX / MIB) * MIB)
    }

    fn read<T>(&self, key: &str, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let text = self.text(key, expected)?;
        read(text).ok_or_else(|| mismatch(key, expected, &format!("`{text}`")))
    }
}

fn mismatch(key: &str, expected: &str, found: &str) -> String {
    format!("`{key}` must be {expected}, not {found}")
}
