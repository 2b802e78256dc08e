//! Helps mdBook to build the site from `docs`, and checks the result.
//!
//! ```text
//! mdbook build                                              # runs this program as a preprocessor, see book.toml
//! cargo run --package accelerator-site -- check target/site # every link of every page leads somewhere
//! ```

mod check;
mod links;
mod path;
mod preprocess;

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        [] => preprocess(),
        ["supports", _renderer] => Ok(()), // mdBook asks before it sends the book
        ["check", folder] => check(Path::new(folder)),
        _ => Err("usage: accelerator-site check FOLDER; without arguments, a preprocessor for mdBook".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads `[context, book]` from standard input and writes the book with its links rewritten.
fn preprocess() -> Result<(), Box<dyn Error>> {
    let input: [serde_json::Value; 2] = serde_json::from_reader(std::io::stdin().lock())?;
    let [context, mut book] = input;
    preprocess::rewrite(&context, &mut book)?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &book)?;
    Ok(out.flush()?)
}

fn check(folder: &Path) -> Result<(), Box<dyn Error>> {
    let pages = check::read(folder)?;
    let broken = check::broken_links(folder, &pages);
    if broken.is_empty() {
        println!("all links of {} pages lead somewhere", pages.len());
        return Ok(());
    }
    Err(format!("{} links lead nowhere\n{}", broken.len(), broken.join("\n")).into())
}
