use accelerator_core::Bytes;

use super::html::{breakable, escape};
use crate::grouped;
use crate::picture::{MapSegment, Profile, grid, power, size_bins};
use crate::snapshot::BlockState;

/// The maximum number of rows in a table.
const MOST_OPERATORS: usize = 30;
const MOST_SEGMENTS: usize = 250;

pub(super) fn fact(name: &str, value: &str) -> String {
    format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value))
}

/// Returns a table that scrolls separately on a narrow page.
fn table(class: &str, head: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"{class}\">\
         <thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )
}

pub(super) fn largest(profile: &Profile) -> String {
    let largest = profile.largest(MOST_OPERATORS);
    let Some(most) = largest.first().map(|largest| largest.bytes) else {
        return "<p>No operator added any memory.</p>\n".to_owned();
    };
    let rows: String = largest
        .iter()
        .map(|largest| {
            format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\" data-unit=\"{}\">{}</td>\
                 <td class=\"number\" data-unit=\"in total\">{}</td></tr>",
                breakable(&largest.name),
                bar(largest.bytes, most, &Bytes(largest.bytes).to_string(), "allocated"),
                if largest.calls == 1 { "call" } else { "calls" },
                grouped(largest.calls),
                Bytes(largest.total)
            )
        })
        .collect();
    let head = "<th scope=\"col\">operator</th><th scope=\"col\">most in one call</th>\
                <th scope=\"col\" class=\"number\">calls</th><th scope=\"col\" class=\"number\">total</th>";
    table("bars operators", head, &rows)
}

/// Returns a bar and its value.
fn bar(value: u64, most: u64, text: &str, class: &str) -> String {
    let share = 100.0 * value as f64 / most.max(1) as f64;
    format!("<span class=\"bar {class}\" style=\"--share:{share:.1}%\"></span><span class=\"value\">{text}</span>")
}

pub(super) fn sizes(profile: &Profile) -> String {
    let bins = size_bins(&profile.spans);
    let most_count = bins.iter().map(|bin| bin.count).max().unwrap_or(0);
    let most_bytes = bins.iter().map(|bin| bin.bytes).max().unwrap_or(0);
    let rows: String = bins
        .iter()
        .filter(|bin| bin.count > 0)
        .map(|bin| {
            format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
                power(bin.power),
                bar(bin.count, most_count, &grouped(bin.count), "allocated"),
                bar(bin.bytes, most_bytes, &Bytes(bin.bytes).to_string(), "active")
            )
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = "<th scope=\"col\">from, to twice that</th><th scope=\"col\">allocations</th>\
                <th scope=\"col\">total bytes</th>";
    table("bars", head, &rows)
}

pub(super) fn lifetimes(profile: &Profile) -> String {
    let grid = grid(&profile.spans);
    let columns = grid.cells.first().map_or(0, Vec::len);
    // Sizes without allocations are omitted.
    let used = |column: &usize| grid.cells.iter().any(|row| row[*column] > 0);
    let used: Vec<usize> = (0..columns).filter(used).collect();
    let most = grid.cells.iter().flatten().copied().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let column_name = |column: usize| power(grid.least_size + column as u32);
    let head: String = used.iter().map(|column| format!("<th scope=\"col\">{}</th>", column_name(*column))).collect();
    let last = grid.cells.len() - 1;
    let row = |(number, row): (usize, &Vec<u64>)| {
        let name = match number {
            _ if number == last => "alive at the end".to_owned(),
            0 => "1".to_owned(),
            _ => format!("{}–{}", grouped(1 << number), grouped((1 << (number + 1)) - 1)),
        };
        let cells: String = used.iter().map(|column| cell(row[*column], most)).collect();
        format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>")
    };
    let rows: String = grid.cells.iter().enumerate().map(row).collect();
    let about = "<p>The number of allocations of each size (from, to twice that), by the number of operators until \
                 they were freed.</p>\n";
    about.to_owned() + &table("heat", &format!("<th scope=\"col\">operators</th>{head}"), &rows)
}

/// Returns the cell of a count, coloured by its logarithm.
fn cell(count: u64, most: u64) -> String {
    const LEVELS: f64 = 6.0;
    if count == 0 {
        return "<td></td>".to_owned();
    }
    let level = (LEVELS * (count as f64).ln() / (most as f64).ln().max(1.0)).min(LEVELS - 1.0) as u32;
    format!("<td class=\"level{level}\">{}</td>", grouped(count))
}

pub(super) fn segments(profile: &Profile, segments: &[MapSegment]) -> String {
    // Aliases have no memory of their own.
    let mut sorted: Vec<_> = segments.iter().filter(|segment| !segment.is_alias).collect();
    sorted.sort_by_key(|segment| (std::cmp::Reverse(segment.size()), segment.address));
    let shown = sorted.len().min(MOST_SEGMENTS);
    let rows: String = sorted[..shown]
        .iter()
        .map(|segment| {
            let pool = match segment.mem_pool.is_default() {
                true => segment.pool.name().to_owned(),
                false => format!("{}, private {}", segment.pool.name(), profile.pool(segment.mem_pool)),
            };
            format!(
                "<tr><td class=\"number\">{:#x}</td><td>{}</td>\
                 <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
                segment.address,
                escape(&pool),
                segment.stream,
                Bytes(segment.size()),
                Bytes(segment.present(BlockState::Allocated)),
                Bytes(segment.present(BlockState::Aliased)),
                Bytes(segment.present(BlockState::Inactive)),
                Bytes(segment.paused()),
                grouped(segment.blocks.len() as u64)
            )
        })
        .collect();
    let heads = ["address", "pool", "stream", "size", "allocated", "aliased", "free", "paused", "blocks"];
    let head = heads.map(|name| {
        let class = if name == "pool" { "" } else { " class=\"number\"" };
        format!("<th scope=\"col\"{class}>{name}</th>")
    });
    let which = match sorted.len() {
        all if all > shown => format!("the {shown} largest of {} segments", grouped(all as u64)),
        all => format!("{} segments", grouped(all as u64)),
    };
    format!("<details><summary>Table of {which} at the end</summary>{}</details>\n", table("", &head.concat(), &rows))
}

pub(super) fn statistics(profile: &Profile) -> String {
    let row = |(name, value): &(String, i64)| {
        let sign = if *value < 0 { "−" } else { "" };
        let exact = format!("{sign}{}", grouped(value.unsigned_abs()));
        let bytes = match name.contains("bytes") && *value >= 1024 {
            true => Bytes(value.unsigned_abs()).to_string(),
            false => String::new(),
        };
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{exact}</td><td class=\"number\">{bytes}</td></tr>",
            escape(name)
        )
    };
    let rows: String = profile.statistics.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = "<th scope=\"col\">name</th><th scope=\"col\" class=\"number\">value</th><td></td>";
    let count = match profile.statistics.len() {
        1 => "1 value".to_owned(),
        count => format!("{count} values"),
    };
    format!("<details><summary>{count}</summary>{}</details>\n", table("", head, &rows))
}
