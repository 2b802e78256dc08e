//! Checks the links of the built pages.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::path;

/// Reads all pages below a folder, by their path from that folder. Skips mdBook's page for addresses that do not exist,
/// because its links start at the root of a server.
pub(crate) fn read(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    fn walk(folder: &Path, name: &str, pages: &mut BTreeMap<String, String>) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let name = if name.is_empty() { file.into_owned() } else { format!("{name}/{file}") };
            if path.is_dir() {
                walk(&path, &name, pages)?;
            } else if name.ends_with(".html") && name != "404.html" {
                pages.insert(name, std::fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }
    let mut pages = BTreeMap::new();
    walk(folder, "", &mut pages)?;
    Ok(pages)
}

/// Returns links that lead to no file or to no heading, as `page: link`, and directives that mdBook did not understand.
pub(crate) fn broken_links(folder: &Path, pages: &BTreeMap<String, String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (page, html) in pages {
        let links = ["href", "src"].into_iter().flat_map(|name| attributes(html, name));
        let dead = links.filter(|link| !leads_somewhere(folder, pages, page, link));
        broken.extend(dead.map(|link| format!("{page}: {link}")));
        broken.extend(html.match_indices("{{#").map(|(at, _)| {
            let rest: String = html[at..].chars().take(60).collect();
            format!("{page}: {rest}")
        }));
    }
    broken
}

/// Returns the values of an attribute in all tags.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let start = format!(" {name}=\"");
    let places: Vec<usize> = html.match_indices(&start).map(|(at, _)| at + start.len()).collect();
    places.into_iter().filter_map(|at| Some(html[at..].split_once('"')?.0.replace("&amp;", "&")))
}

fn leads_somewhere(folder: &Path, pages: &BTreeMap<String, String>, page: &str, link: &str) -> bool {
    let is_elsewhere = ["https://", "http://", "mailto:", "data:", "javascript:"];
    if is_elsewhere.iter().any(|start| link.starts_with(start)) {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = file.split('?').next().unwrap_or_default();
    let target = if file.is_empty() { Some(page.to_owned()) } else { path::resolve(path::folder(page), file) };
    let Some(mut target) = target else { return false };
    if folder.join(&target).is_dir() {
        target = format!("{target}/index.html").trim_start_matches('/').to_owned();
    }
    match pages.get(&target) {
        Some(_) if anchor.is_empty() => true,
        Some(html) => attributes(html, "id").any(|id| id == anchor),
        None => folder.join(&target).is_file(),
    }
}

#[test]
fn dead_links_are_found() {
    let page = "<h1 id=\"top\"></h1><a href=\"b.html#there\"><a href=\"#top\"><a href=\"c.html\"><a href=\"b.html#no\">\
                <a href=\"#no\"><img alt=\"\" src=\"no.svg\"><a href=\"../a.html\"><a href=\"https://e.org\">{{#include}}";
    let pages = [("a.html", page), ("b.html", "<h2 id=\"there\">")];
    let pages = pages.map(|(name, html)| (name.to_owned(), html.to_owned())).into();
    let broken = broken_links(Path::new("no-such-folder"), &pages);
    let expected = ["c.html", "b.html#no", "#no", "../a.html", "no.svg", "{{#include}}"];
    assert_eq!(broken, expected.map(|link| format!("a.html: {link}")));
}
