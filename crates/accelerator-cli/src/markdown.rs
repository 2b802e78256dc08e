//! Tables in Markdown.

use std::fmt;

use accelerator_core::printable;

/// A table in Markdown whose columns are aligned as plain text, too: the first to the left, the others to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    numbers: bool,
}

impl Table {
    pub(crate) fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self { rows: Vec::new(), numbers: true };
        table.add(header);
        table
    }

    /// One of words: every column is aligned to the left.
    pub(crate) fn of_words<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { numbers: false, ..Self::new(header) }
    }

    pub(crate) fn add<T: Into<String>>(&mut self, row: impl IntoIterator<Item = T>) {
        self.rows.push(row.into_iter().map(|cell| escaped(&cell.into())).collect());
    }
}

/// What neither ends the cell, nor is HTML, nor is obeyed by a terminal.
fn escaped(cell: &str) -> String {
    printable(&cell.replace('|', "\\|").replace('<', "\\<").split_whitespace().collect::<Vec<_>>().join(" "))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let length =
            |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
        let width = |column| self.rows.iter().map(|row| length(row, column)).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let to_the_right = |column| self.numbers && column > 0;
        for (number, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().copied().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                match to_the_right(column) {
                    true => write!(f, "| {cell:>width$} ")?,
                    false => write!(f, "| {cell:<width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let end = if to_the_right(column) { ':' } else { '-' };
                    write!(f, "|{}{end}", "-".repeat(width + 1))?;
                }
                writeln!(f, "|")?;
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
