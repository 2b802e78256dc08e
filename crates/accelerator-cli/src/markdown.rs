//! Tables in Markdown.

use std::fmt;

use accelerator_core::printable;
use comfy_table::{CellAlignment, ColumnConstraint, Width, presets};

/// A Markdown table that is also aligned as plain text: the first column to the left, the others to the right.
pub(crate) struct Table {
    table: comfy_table::Table,
    numbers: bool,
}

impl Table {
    pub(crate) fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let mut words = Self::of_words(header);
        let numbers = words.table.column_iter_mut().skip(1);
        numbers.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        Self { numbers: true, ..words }
    }

    /// Creates a table of words: every column is aligned to the left.
    pub(crate) fn of_words<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        const NARROWEST: u16 = 5; // including a space on each side
        let mut table = comfy_table::Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(cells(header));
        for column in table.column_iter_mut() {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST)));
        }
        Self { table, numbers: false }
    }

    pub(crate) fn add<T: Into<String>>(&mut self, row: impl IntoIterator<Item = T>) {
        self.table.add_row(cells(row));
    }
}

/// Escapes text so that it cannot end its cell, act as HTML or control a terminal.
fn cells<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    let escaped = texts.into_iter().map(|text| text.into().replace('|', "\\|").replace('<', "\\<"));
    escaped.map(|text| printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SEPARATOR: usize = 1;
        for (number, line) in self.table.lines().enumerate() {
            match number == SEPARATOR && self.numbers {
                // In rendered Markdown, a colon at the end aligns the column to the right.
                true => writeln!(f, "{}", line.replace("-|", ":|").replacen(":|", "-|", 1))?,
                false => writeln!(f, "{line}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["size", "GB/s"]);
        table.add(["1 MiB", "12.50"]);
        table.add(["a|b\nc", "7"]);
        let text = "| size   |  GB/s |\n|--------|------:|\n| 1 MiB  | 12.50 |\n| a\\|b c |     7 |\n";
        assert_eq!(table.to_string(), text);
        let mut words = Table::of_words(["", ""]);
        words.add(["name", "µ"]);
        words.add(["<i>", "x"]);
        assert_eq!(words.to_string(), "|      |     |\n|------|-----|\n| name | µ   |\n| \\<i> | x   |\n");
    }
}
