//! The inputs that the fuzzer kept: its corpora, and what failed once. `tests/fuzz/README.md` says how to fuzz.

#[cfg(target_os = "linux")]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "the library of another workspace, in which a panic is a finding"
)]
#[path = "fuzz/src/lib.rs"]
mod targets;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}

/// The targets write to pipes by names that only Linux has.
#[cfg(not(target_os = "linux"))]
fn trials() -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials() -> Vec<Trial> {
    let trials = targets::TARGETS.into_iter().flat_map(|(name, run)| {
        ["corpus", "findings"].map(|kind| Trial::test(format!("{kind}::{name}"), move || replay(kind, name, run)))
    });
    trials.collect()
}

/// Runs each input in a folder of a target, in order, and names the one that fails.
#[cfg(target_os = "linux")]
fn replay(kind: &str, target: &str, run: fn(&[u8])) -> Result<(), libtest_mimic::Failed> {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use std::{fs, thread};

    const LONGEST: Duration = Duration::from_secs(60);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(kind).join(target);
    if kind == "findings" && !folder.exists() {
        return Ok(());
    }
    let mut files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    files.sort();
    for file in files {
        let input = fs::read(&file)?;
        let (done, is_done) = channel();
        // A panic drops the sender. An input that takes too long keeps it.
        thread::spawn(move || {
            run(&input);
            done.send(())
        });
        let took = is_done.recv_timeout(LONGEST);
        took.map_err(|error| format!("{}: failed, or took more than {LONGEST:?}: {error}", file.display()))?;
    }
    Ok(())
}
