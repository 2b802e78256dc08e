//! Rewrites the chapters that mdBook reads for the site. Links to files that are not chapters, and names that only
//! rustdoc turns into links, would otherwise lead nowhere.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use serde_json::Value;

use crate::links::{self, Link};
use crate::path;

/// The data needed to rewrite the links of all chapters.
struct Site<'a> {
    /// The root of the workspace.
    root: &'a Path,
    /// The folder of the chapters, from the root.
    source: &'a str,
    /// The address of the repository, if `git-repository-url` in book.toml is set.
    repository: Option<&'a str>,
    /// The chapter that shows each file: the file itself, or a chapter that includes all of it. All paths start at the
    /// root.
    chapters: BTreeMap<String, String>,
}

pub(crate) fn rewrite(context: &Value, book: &mut Value) -> Result<(), Box<dyn Error>> {
    let text = |path: &str| context.pointer(path).and_then(Value::as_str);
    let mut site = Site {
        root: Path::new(text("/root").ok_or("the context has no root")?),
        source: text("/config/book/src").unwrap_or("src"),
        repository: text("/config/output/html/git-repository-url"),
        chapters: BTreeMap::new(),
    };
    let mut bases = BTreeMap::new();
    for_each_chapter(book, &mut |file, _| {
        let file = format!("{}/{file}", site.source);
        let included = site.included(&file)?;
        for (included, is_whole) in &included {
            if *is_whole {
                site.chapters.insert(included.clone(), file.clone());
            }
        }
        site.chapters.insert(file.clone(), file.clone());
        bases.insert(file, included.into_iter().map(|(file, _)| file).collect::<Vec<_>>());
        Ok(())
    })?;
    for_each_chapter(book, &mut |file, content| {
        let file = format!("{}/{file}", site.source);
        let files = || std::iter::once(&file).chain(&bases[&file]);
        *content = links::rewrite(content, |link| files().find_map(|from| site.link(link, from, &file)));
        Ok(())
    })
}

/// Calls a function with the source file and the content of each chapter.
fn for_each_chapter(
    value: &mut Value,
    call: &mut impl FnMut(&str, &mut String) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    match value {
        Value::Array(values) => values.iter_mut().try_for_each(|value| for_each_chapter(value, call)),
        Value::Object(fields) => {
            let file = fields.get("source_path").and_then(Value::as_str).map(|file| file.replace('\\', "/"));
            if let (Some(file), Some(Value::String(content))) = (file, fields.get_mut("content")) {
                call(&file, content)?;
            }
            fields.values_mut().try_for_each(|value| for_each_chapter(value, call))
        }
        _ => Ok(()),
    }
}

impl Site<'_> {
    /// Returns the files that a chapter includes, and whether each is included as a whole.
    fn included(&self, chapter: &str) -> Result<Vec<(String, bool)>, Box<dyn Error>> {
        let document = std::fs::read_to_string(self.root.join(chapter))?;
        let targets = document.split("{{#include ").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0));
        let files = targets.filter_map(|target| {
            let (file, part) = target.trim().split_once(':').unwrap_or((target.trim(), ""));
            Some((path::resolve(path::folder(chapter), file)?, part.is_empty()))
        });
        Ok(files.collect())
    }

    /// Returns the replacement for a link in the file `from` that is shown in a chapter; `None` if the link is to stay,
    /// or names no file relative to `from`.
    fn link(&self, link: &Link<'_>, from: &str, chapter: &str) -> Option<String> {
        let Link { text, target, title } = link;
        if target.starts_with('#') || target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        if target.contains("::") {
            return Some((*text).to_owned()); // an item of Rust
        }
        let (file, anchor) =
            target.split_once('#').map_or((*target, String::new()), |(file, anchor)| (file, format!("#{anchor}")));
        let file = path::resolve(path::folder(from), file)?;
        if !self.root.join(&file).exists() {
            return None;
        }
        if let Some(shown_in) = self.chapters.get(&file) {
            let page = match shown_in.strip_suffix("README.md") {
                Some(folder) => format!("{folder}index.md"), // the name of its page
                None => shown_in.clone(),
            };
            return Some(format!("[{text}]({}{anchor}{title})", path::relative(path::folder(chapter), &page)));
        }
        let below_source = file.strip_prefix(self.source).is_some_and(|rest| rest.starts_with('/'));
        if below_source && self.root.join(&file).is_file() {
            return Some(format!("[{text}]({}{anchor}{title})", path::relative(path::folder(chapter), &file)));
        }
        if let Some(repository) = self.repository {
            return Some(format!("[{text}]({}/blob/main/{file}{anchor}{title})", repository.trim_end_matches('/')));
        }
        let name = file.rsplit('/').next().unwrap_or(&file);
        Some(if text.contains(name) { (*text).to_owned() } else { format!("{text} (`{file}`)") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(repository: Option<&str>, target: &str) -> Option<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let chapters = [("docs/README.md", "docs/README.md"), ("tests/site/src/main.rs", "docs/a/b.md")];
        let chapters = chapters.map(|(file, chapter)| (file.to_owned(), chapter.to_owned())).into();
        let site = Site { root: &root, source: "docs", repository, chapters };
        site.link(&Link { text: "t", target, title: "" }, "docs/a/c.md", "docs/a/c.md")
    }

    #[test]
    fn links_lead_to_pages_or_to_the_repository() {
        assert_eq!(link(None, "../README.md#d").as_deref(), Some("[t](../index.md#d)"));
        assert_eq!(link(None, "../../tests/site/src/main.rs").as_deref(), Some("[t](b.md)"));
        assert_eq!(link(None, "../pictures/train_mlp.png").as_deref(), Some("[t](../pictures/train_mlp.png)"));
        assert_eq!(link(None, "../../tests/site").as_deref(), Some("t (`tests/site`)"));
        assert_eq!(link(Some("https://e.org/"), "../../tests").as_deref(), Some("[t](https://e.org/blob/main/tests)"));
    }

    #[test]
    fn other_links_stay_or_become_text() {
        assert_eq!((link(None, "#a"), link(None, "https://e.org"), link(None, "none.md")), (None, None, None));
        assert_eq!(link(None, "crate::a::b").as_deref(), Some("t"));
    }
}
