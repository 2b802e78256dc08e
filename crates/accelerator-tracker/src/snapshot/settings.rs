use std::io::{self, Write};

use super::types::Setting;
use crate::pickle::{View, Writer};

/// The maximum number of lines in a table. PyTorch's largest table has 16.
const LINES: usize = 64;

/// The maximum length of a setting's name. Names are copied, and a file can refer to a string a million times.
const LONGEST_NAME: usize = 1 << 10;

/// The maximum length of a setting's text.
const LONGEST: usize = 1 << 14;

/// Returns whether this may be the name of a setting, or of a line in a table.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME
}

/// Reads a setting, or returns `None` for a value that a setting cannot have.
pub(super) fn of(value: View<'_>) -> Option<Setting> {
    plain(value, LONGEST).or_else(|| {
        let lines = value.pairs().filter(|lines| lines.len() <= LINES)?;
        let line = |(key, value): (View<'_>, View<'_>)| {
            let name = key.text().filter(|name| is_name(name))?;
            Some((name.to_string(), value.integer()?))
        };
        lines.map(line).collect::<Option<_>>().map(Setting::Table)
    })
}

/// Reads a setting with a simple value. Text may have at most `longest` bytes.
pub(super) fn plain(value: View<'_>, longest: usize) -> Option<Setting> {
    let flag = value.flag().map(Setting::Flag);
    let integer = || value.integer().map(Setting::Integer);
    let real = || value.float().map(Setting::Real);
    let text = || value.text().filter(|text| text.len() <= longest).cloned().map(Setting::Text);
    flag.or_else(integer).or_else(real).or_else(text)
}

pub(super) fn write<W: Write>(out: &mut Writer<W>, setting: &Setting) -> io::Result<()> {
    match setting {
        Setting::Flag(flag) => out.flag(*flag),
        Setting::Integer(integer) => out.integer(*integer),
        Setting::Real(real) => out.float(*real),
        Setting::Text(text) => out.text_once(text),
        Setting::Table(lines) => out.dict(lines, |out, (key, value)| {
            out.text(key)?;
            out.integer(*value)
        }),
    }
}
