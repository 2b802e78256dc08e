//! The grammar of a settings string: `key:value,key:[a:b,c:d]`, white space ignored. PyTorch: `ConfigTokenizer`.

use std::iter::Peekable;
use std::str::Chars;

use crate::types::MIB;

/// What stands behind a key.
pub(crate) enum Value {
    Text(String),
    Table(Vec<(String, Value)>),
}

/// A settings string, taken apart.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Value)>, String> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut rest = compact.chars().peekable();
    let mut pairs = Vec::new();
    while rest.peek().is_some() {
        pairs.push(pair(&mut rest)?);
        match rest.next() {
            None | Some(',') => {}
            Some(other) => return Err(format!("expected `,` between settings, but found `{other}`")),
        }
    }
    Ok(pairs)
}

fn pair(rest: &mut Peekable<Chars<'_>>) -> Result<(String, Value), String> {
    let key = word(rest);
    if key.is_empty() {
        return Err(format!("expected a key{}", found(rest)));
    }
    if rest.next_if_eq(&':').is_none() {
        return Err(format!("expected `:` and a value after `{key}`{}", found(rest)));
    }
    if rest.next_if_eq(&'[').is_some() {
        return Ok((key.clone(), Value::Table(table(&key, rest)?)));
    }
    let text = word(rest);
    if text.is_empty() {
        return Err(format!("expected a value for `{key}`{}", found(rest)));
    }
    Ok((key, Value::Text(text)))
}

fn table(key: &str, rest: &mut Peekable<Chars<'_>>) -> Result<Vec<(String, Value)>, String> {
    let mut entries = Vec::new();
    loop {
        if rest.next_if_eq(&']').is_some() {
            return Ok(entries);
        }
        entries.push(pair(rest)?);
        if rest.peek() != Some(&']') && rest.next_if_eq(&',').is_none() {
            return Err(format!("expected `,` or `]` in the table of `{key}`{}", found(rest)));
        }
    }
}

fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    std::iter::from_fn(|| rest.next_if(|c| !",:[]".contains(*c))).collect()
}

fn found(rest: &mut Peekable<Chars<'_>>) -> String {
    rest.peek().map_or_else(|| ", but the text ends".to_owned(), |c| format!(", but found `{c}`"))
}

impl Value {
    pub(crate) fn integer(&self, key: &str) -> Result<u64, String> {
        self.read(key, "a whole number", |text| text.parse().ok())
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64, String> {
        self.read(key, "a number", |text| text.parse().ok())
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<bool, String> {
        Ok(self.one_of(key, &["True", "False"])? == 0)
    }

    /// One of these words: its number among them.
    pub(crate) fn one_of(&self, key: &str, words: &[&str]) -> Result<usize, String> {
        let expected = format!("`{}`", words.join("` or `"));
        self.read(key, &expected, |text| words.iter().position(|word| *word == text))
    }

    /// A number of MiB, in bytes; more than fit become the most whole MiB that do.
    pub(crate) fn mebibytes(&self, key: &str) -> Result<u64, String> {
        Ok(self.integer(key)?.min(u64::MAX / MIB) * MIB)
    }

    fn read<T>(&self, key: &str, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let (value, found) = match self {
            Self::Text(text) => (read(text), format!("`{text}`")),
            Self::Table(_) => (None, "a table".to_owned()),
        };
        value.ok_or_else(|| format!("`{key}` takes {expected}, not {found}"))
    }
}
