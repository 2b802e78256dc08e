use accelerator_conformance::{CaseReport, Group, Verdict};

use super::report::{Checked, Outcome, indented};
use super::section::Progress;
use crate::markdown::Table;

/// Runs the cases of the suite. The iterator runs each case when it returns it.
pub(super) fn check(cases: impl ExactSizeIterator<Item = CaseReport>, progress: &Progress) -> Checked {
    let (all, mut done) = (cases.len(), Vec::with_capacity(cases.len()));
    progress.at(format!("case 1 of {all}"));
    for case in cases {
        let next = (done.len() + 2).min(all);
        progress.at(format!("case {next} of {all}, after {}", case.trial));
        done.push(case);
    }
    let failed = done.iter().filter_map(|case| match &case.verdict {
        Verdict::Failed(why) => Some(format!("`{}`: {why}", case.trial)),
        _ => None,
    });
    Ok(Outcome::of(text(&done), failed.collect()))
}

fn text(cases: &[CaseReport]) -> String {
    let mut table = Table::new(["group", "passed", "failed", "skipped"]);
    for group in Group::ALL {
        let counts = counts(cases.iter().filter(|case| case.group == group));
        if counts != [0; 3] {
            let title = format!("{} {}", group.letter(), group.title());
            table.add(std::iter::once(title).chain(counts.map(|count| count.to_string())));
        }
    }
    let counts = counts(cases.iter());
    table.add(std::iter::once("all".to_owned()).chain(counts.map(|count| count.to_string())));
    let mut skipped: Vec<(String, Vec<String>)> = Vec::new();
    for case in cases.iter().filter(|case| is_skipped(&case.verdict)) {
        let (why, name) = (case.verdict.to_string(), format!("`{}`", case.trial));
        match skipped.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(name),
            None => skipped.push((why, vec![name])),
        }
    }
    let skipped = skipped.iter().map(|(why, names)| format!("* {}: {}\n", names.join(", "), indented(why)));
    let skipped: String = skipped.collect();
    match skipped.as_str() {
        "" => table.to_string(),
        skipped => format!("{table}\n{skipped}"),
    }
}

/// Returns the numbers of passed, failed and skipped cases.
fn counts<'a>(cases: impl Iterator<Item = &'a CaseReport>) -> [usize; 3] {
    cases.fold([0; 3], |mut counts, case| {
        counts[match &case.verdict {
            Verdict::Passed => 0,
            Verdict::Failed(_) => 1,
            _ => 2,
        }] += 1;
        counts
    })
}

fn is_skipped(verdict: &Verdict) -> bool {
    !matches!(verdict, Verdict::Passed | Verdict::Failed(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_with_their_messages_and_skips_with_their_reasons() {
        let case =
            |number, verdict| CaseReport::new("abacus", Group::Device, number, &format!("abacus::A0{number}"), verdict);
        let cases = [
            case(1, Verdict::Passed),
            case(2, Verdict::Failed("two beads".to_owned())),
            case(3, Verdict::Skipped("no beads".to_owned())),
            case(4, Verdict::Skipped("no beads".to_owned())),
        ];
        let Ok(Outcome::Failed(text, wrong)) = check(cases.into_iter(), &Progress::new()) else {
            panic!("a case failed");
        };
        assert_eq!(wrong, ["`abacus::A02`: two beads"]);
        assert!(text.contains("|      1 |      1 |       2 |"), "{text}");
        assert!(text.ends_with("\n\n* `abacus::A03`, `abacus::A04`: skipped: no beads\n"), "{text}");
    }
}
