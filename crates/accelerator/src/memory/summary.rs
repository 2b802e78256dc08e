//! The table of `torch.cuda.memory_summary`.

use std::collections::BTreeMap;

use accelerator_core::{Device, MemPoolId, MemPoolInfo, PoolStat, Stat, Statistics};

const WIDTH: usize = 75;
/// The width of the first column.
const LABEL: usize = 21;

/// Returns the table of [`memory_summary`](super::memory_summary) for existing statistics, for example from a file.
/// `abbreviated` omits the lines of the two pools. PyTorch: `torch.cuda.memory_summary`.
///
/// As in PyTorch, the first line of each group determines the unit, and values are truncated to whole units. Unlike in
/// PyTorch, there are lines for the bytes that [each private pool](super::reserved_by_private_pools) has now, with the
/// names in [`pools`](super::mem_pools), lines for what is paused, and one at the end if
/// [`Statistics::expandable_segments`] are in use.
pub fn memory_summary_of(
    device: Device,
    statistics: &Statistics,
    private: &BTreeMap<MemPoolId, PoolStat>,
    pools: &BTreeMap<MemPoolId, MemPoolInfo>,
    abbreviated: bool,
) -> String {
    let (rule, thick_rule) = ("-".repeat(WIDTH), "=".repeat(WIDTH));
    let title = format!("Memory summary of {device}");
    let ooms = format!("OOMs: {}", statistics.num_ooms);
    let retries = format!("allocation retries: {}", statistics.num_alloc_retries);
    let columns = ["Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"].map(|name| format!("{name:^10}"));
    let mut lines = vec![
        thick_rule.clone(),
        format!("{title:^WIDTH$}"),
        rule.clone(),
        format!(" {ooms:^35} | {retries:^35} "),
        thick_rule.clone(),
        format!(" {:^21} | {} ", "Metric", columns.join(" | ")),
    ];
    let private = private.iter().filter(|(_, reserved)| reserved.all.current > 0);
    let private = private.map(|(id, reserved)| {
        let pool = pools.get(id);
        let paused = pool.map_or(0, |pool| pool.paused_bytes as i64);
        (pool_label(*id, pool.and_then(|pool| pool.name.as_deref())), reserved, size as Format, paused)
    });
    let groups = groups(statistics).map(|(name, pools, format)| {
        let paused = if name == RESERVED { statistics.paused_bytes } else { 0 };
        (name.to_owned(), pools, format, paused)
    });
    for (name, pools, format, paused) in groups.into_iter().chain(private) {
        lines.push(rule.clone());
        lines.push(line(&name, &pools.all, &pools.all, format));
        if !abbreviated {
            lines.push(line("      from large pool", &pools.large_pool, &pools.all, format));
            lines.push(line("      from small pool", &pools.small_pool, &pools.all, format));
        }
        if paused > 0 {
            let values = [size(paused, pools.all.current), String::new(), String::new(), String::new()];
            lines.push(row("               paused", &values));
        }
    }
    for (name, stat) in [
        ("Oversize allocations", &statistics.oversize_allocations),
        ("Oversize segments", &statistics.oversize_segments),
    ] {
        lines.push(rule.clone());
        lines.push(line(name, stat, stat, count));
    }
    if statistics.expandable_segments {
        lines.push(rule.clone());
        lines.push(format!("{:^WIDTH$}", "expandable segments in use, which are not counted among segments"));
    }
    lines.push(thick_rule);
    lines.iter().map(|line| format!("|{line}|\n")).collect()
}

const RESERVED: &str = "Reserved memory";

/// Returns what a private pool is called in the first column. A name that is too long for it is shortened.
fn pool_label(id: MemPoolId, name: Option<&str>) -> String {
    let Some(name) = name else { return format!("Private pool {id}") };
    let whole = id.with_name(Some(name));
    let excess = whole.chars().count().saturating_sub(LABEL);
    if excess == 0 {
        return whole;
    }
    let kept = name.chars().count().saturating_sub(excess + 1);
    id.with_name(Some(&(name.chars().take(kept).collect::<String>() + "…")))
}

/// Formats a value in the unit that suits a second value.
type Format = fn(i64, i64) -> String;

fn groups(statistics: &Statistics) -> [(&'static str, &PoolStat, Format); 9] {
    [
        ("Allocated memory", &statistics.allocated_bytes, size),
        ("Active memory", &statistics.active_bytes, size),
        ("Requested memory", &statistics.requested_bytes, size),
        (RESERVED, &statistics.reserved_bytes, size),
        ("Non-releasable memory", &statistics.inactive_split_bytes, size),
        ("Allocations", &statistics.allocation, count),
        ("Active allocs", &statistics.active, count),
        ("Reserved segments", &statistics.segment, count),
        ("Non-releasable allocs", &statistics.inactive_split, count),
    ]
}

fn line(name: &str, stat: &Stat, unit_of: &Stat, format: Format) -> String {
    let values = [
        format(stat.current, unit_of.current),
        format(stat.peak, unit_of.peak),
        format(stat.allocated, unit_of.allocated),
        format(stat.freed, unit_of.freed),
    ];
    row(name, &values)
}

fn row(name: &str, values: &[String; 4]) -> String {
    let values = values.each_ref().map(|value| format!("{value:10}"));
    format!(" {name:<LABEL$} | {} ", values.join(" | "))
}

fn size(value: i64, unit_of: i64) -> String {
    let units = ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (value, unit) = scale(value, unit_of, 1024, 768 * 1024, &units);
    format!("{value:6} {unit}")
}

fn count(value: i64, unit_of: i64) -> String {
    let (value, unit) = scale(value, unit_of, 1000, 750 * 1000, &[" ", "K", "M"]);
    format!("{value:7} {unit} ")
}

/// Divides both values by `step` as long as the second is at least `limit` and there is a larger unit.
fn scale<'a>(value: i64, unit_of: i64, step: i64, limit: i64, units: &[&'a str]) -> (i64, &'a str) {
    let (mut value, mut unit_of) = (value, unit_of as f64);
    let mut chosen = 0;
    while chosen + 1 < units.len() && unit_of >= limit as f64 {
        value /= step;
        unit_of /= step as f64;
        chosen += 1;
    }
    (value, units[chosen])
}
