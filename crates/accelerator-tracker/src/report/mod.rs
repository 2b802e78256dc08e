//! Writes a [`Profile`] as a self-contained HTML page. It needs no network, and no scripts for its tables.

mod data;
mod html;
mod tables;

use std::path::Path;

use accelerator_core::Bytes;

use self::html::escape;
use crate::file::{FileError, write_whole};
use crate::grouped;
use crate::picture::{Profile, Series};

/// Writes the page to a file, completely or not at all.
///
/// # Errors
/// [`FileError::Io`].
pub fn save(profile: &Profile, path: &Path) -> Result<(), FileError> {
    write_whole(path, |file| file.write_all(html(profile).as_bytes()))
}

/// Returns the page.
pub fn html(profile: &Profile) -> String {
    let title = escape(&profile.title);
    let facts: String = profile.facts.iter().map(|(name, value)| tables::fact(name, value)).collect();
    let sections = [
        section("memory", "Memory", &memory(profile)),
        section("largest", "Operators that allocate most", &tables::largest(profile)),
        section("segments", "Segments", &segments(profile)),
        section("sizes", "Sizes of allocations", &tables::sizes(profile)),
        section("lifetimes", "Lifetimes of allocations", &tables::lifetimes(profile)),
        section("statistics", "Statistics at the end", &tables::statistics(profile)),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; \
         style-src 'unsafe-inline'\">\n\
         <title>{title}: memory</title>\n<style>{css}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n\
         <dl class=\"facts\">{facts}</dl>\n{tiles}</header>\n<main>\n{sections}</main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n",
        css = include_str!("page.css"),
        tiles = tiles(profile),
        sections = sections.concat(),
        data = data::json(profile),
        script = concat!(include_str!("memory.js"), include_str!("segments.js")),
    )
}

fn section(id: &str, title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n{content}</section>\n")
}

/// Returns the most important figures.
fn tiles(profile: &Profile) -> String {
    let mut tiles: Vec<(String, String, String)> = Vec::new();
    for series in Series::ALL {
        if let Some((call, bytes)) = profile.peak(series) {
            let at = format!("at call {}", grouped(call as u64));
            tiles.push((format!("peak {}", series.name()), Bytes(bytes).to_string(), at));
        }
    }
    if let (Some((_, allocated)), Some((_, reserved))) =
        (profile.peak(Series::Allocated), profile.peak(Series::Reserved))
    {
        let share = 100.0 * allocated as f64 / reserved.max(1) as f64;
        tiles.push(("allocated / reserved".to_owned(), format!("{share:.1} %"), "at their peaks".to_owned()));
    }
    if let Some(capacity) = profile.capacity {
        tiles.push(("capacity".to_owned(), Bytes(capacity).to_string(), String::new()));
    }
    tiles.push(("operator calls".to_owned(), grouped(profile.samples.len() as u64), String::new()));
    let tile = |(name, value, note): (String, String, String)| {
        format!("<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>")
    };
    format!("<dl class=\"tiles\">{}</dl>\n", tiles.into_iter().map(tile).collect::<String>())
}

fn memory(profile: &Profile) -> String {
    let along = if profile.has_times() {
        "<fieldset><legend>along</legend>\
         <label><input type=\"radio\" name=\"along\" value=\"call\" checked>calls</label>\
         <label><input type=\"radio\" name=\"along\" value=\"time\">time</label></fieldset>"
    } else {
        ""
    };
    let series = Series::ALL.map(|series| {
        let name = series.name();
        let equal = if series == Series::Active && profile.is_active_allocated() { " (as allocated)" } else { "" };
        format!(
            "<label class=\"{name}\">\
             <input type=\"checkbox\" name=\"series\" value=\"{name}\" checked><i></i>{name}{equal}</label>"
        )
    });
    format!(
        "<div class=\"controls needs-script\" hidden><fieldset><legend>show</legend>{}</fieldset>{along}\
         <button type=\"button\" id=\"peak\">go to the peak</button></div>\n\
         <div id=\"memory\" class=\"needs-script chart\" tabindex=\"0\" role=\"application\" hidden \
         aria-label=\"Memory over operator calls. Arrow keys go from call to call.\" \
         aria-describedby=\"at-call\"></div>\n\
         <p id=\"at-call\" class=\"needs-script readout\" role=\"status\" hidden></p>\n{}",
        series.concat(),
        without_script(profile, Figure::Memory)
    )
}

fn segments(profile: &Profile) -> String {
    let Some(end) = profile.moments.last() else { return String::new() };
    let (last, peak) = (profile.moments.len() - 1, profile.moment_of_the_peak());
    format!(
        "<div class=\"controls needs-script\" hidden><label class=\"wide\">moment \
         <input type=\"range\" id=\"moment\" min=\"0\" max=\"{last}\" value=\"{peak}\" \
         aria-describedby=\"moment-name\"></label>\
         <output id=\"moment-name\" for=\"moment\"></output>\
         <label>colour by <select id=\"color-by\">\
         <option>state</option><option>size</option><option>scope</option></select></label></div>\n<ul id=\"legend\" class=\"needs-script legend\" hidden></ul>\n\
         <div id=\"map\" class=\"needs-script\" tabindex=\"0\" role=\"application\" hidden \
         aria-label=\"Map of the segments. Arrow keys go from block to block.\" aria-describedby=\"at-block\"></div>\n\
         <p id=\"at-block\" class=\"needs-script readout\" role=\"status\" hidden></p>\n{}{}",
        without_script(profile, Figure::Segments),
        tables::segments(profile, &end.segments)
    )
}

enum Figure {
    Memory,
    Segments,
}

/// Returns the content for readers without scripts.
#[cfg(feature = "plots")]
fn without_script(profile: &Profile, figure: Figure) -> String {
    use crate::plot::{Along, ColorBy, Picture};
    let picture = match figure {
        Figure::Memory => Picture::Memory(Along::Calls),
        Figure::Segments => Picture::Segments(profile.moment_of_the_peak(), ColorBy::State),
    };
    let picture = picture.to_svg(profile);
    picture.map_or_else(|_| String::new(), |svg| format!("<noscript><div class=\"scroll\">{svg}</div></noscript>\n"))
}

#[cfg(not(feature = "plots"))]
fn without_script(_: &Profile, figure: Figure) -> String {
    let what = match figure {
        Figure::Memory => "curves",
        Figure::Segments => "map",
    };
    format!("<noscript><p>Turn on scripts to see the {what}.</p></noscript>\n")
}

#[cfg(test)]
mod tests;
