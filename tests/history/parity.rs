//! The history of our allocator equals PyTorch's own, entry for entry, for the same trace.

use libtest_mimic::{Failed, Trial};

use crate::lines::same;
use crate::ours;
use crate::recorded::{self, Recorded};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |recorded: Recorded| Trial::test(format!("parity::{}", recorded.name), move || compare(&recorded));
    recorded::all().into_iter().map(trial).collect()
}

/// Compares line by line where PyTorch's lines are stored, and by hash otherwise.
fn compare(recorded: &Recorded) -> Result<(), Failed> {
    let ours = ours::lines(&ours::replay(recorded.trace(), usize::MAX)?);
    if let Some(whole) = recorded.whole() {
        let theirs = whole.lines().filter(|line| !line.starts_with("setting ")).map(str::to_owned);
        same(&theirs.collect::<Vec<_>>(), &ours)?;
    }
    match (ours.len() == recorded.lines, recorded::hash(&ours) == recorded.hash) {
        (false, _) => Err(format!("{} lines, PyTorch has {}", ours.len(), recorded.lines).into()),
        (true, false) => Err("as many lines as PyTorch, but different ones".into()),
        (true, true) => Ok(()),
    }
}
