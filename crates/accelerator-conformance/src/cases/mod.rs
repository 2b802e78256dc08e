//! The cases, by group; their numbers are for good.

mod allocation;
mod books;
mod cache_control;
mod context;
mod devices;
mod events;
mod injection;
mod interleavings;
mod layout;
mod out_of_memory;
mod pinned;
mod pinned_copies;
mod pinned_threads;
mod random;
mod recovery;
mod reuse;
mod statistics;
mod streams;
mod threads;

use accelerator_core::Backend;
use libtest_mimic::Failed;

pub(crate) use self::context::Context;
use crate::suite::{Capability, Group};

/// What a case ends with. It may panic as well.
pub(crate) type Outcome = Result<(), Failed>;

/// One case.
pub(crate) struct Case<B: Backend> {
    pub(crate) number: u32,
    /// What it is about, as words joined by `_`.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Capability],
    pub(crate) run: Run<B>,
}

/// Where a case is run.
pub(crate) enum Run<B: Backend> {
    Here(fn(&Context<B>) -> Outcome),
    /// Not by this suite, for this reason.
    Elsewhere(&'static str),
}

impl<B: Backend> Case<B> {
    fn new(number: u32, name: &'static str, run: fn(&Context<B>) -> Outcome) -> Self {
        Self { number, name, needs: &[], run: Run::Here(run) }
    }

    fn elsewhere(number: u32, name: &'static str, reason: &'static str) -> Self {
        Self { number, name, needs: &[], run: Run::Elsewhere(reason) }
    }

    fn needs(self, needs: &'static [Capability]) -> Self {
        Self { needs, ..self }
    }

    pub(crate) fn group(&self) -> Group {
        match self.number {
            ..=15 => Group::Device,
            16..=30 => Group::Allocation,
            31..=42 => Group::Streams,
            43..=54 => Group::OutOfMemory,
            55..=60 => Group::CacheControl,
            61..=81 => Group::PinnedMemory,
            82..=87 => Group::Statistics,
            88.. => Group::Threads,
        }
    }

    pub(crate) fn trial_name(&self) -> String {
        format!("{}{:02}_{}", self.group().letter(), self.number, self.name)
    }
}

/// All cases by number.
pub(crate) fn all<B: Backend>() -> Vec<Case<B>> {
    let groups = [
        devices::cases(),
        events::cases(),
        allocation::cases(),
        layout::cases(),
        streams::cases(),
        reuse::cases(),
        out_of_memory::cases(),
        recovery::cases(),
        injection::cases(),
        cache_control::cases(),
        pinned::cases(),
        pinned_copies::cases(),
        pinned_threads::cases(),
        statistics::cases(),
        threads::cases(),
    ];
    let mut cases: Vec<_> = groups.into_iter().flatten().collect();
    cases.sort_by_key(|case| case.number);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_groups_has_one_case() {
        let numbers: Vec<_> = all::<crate::Sim>().iter().map(|case| case.number).collect();
        let expected: Vec<_> = (1..=60).chain(77..=87).chain(93..=97).collect();
        assert_eq!(numbers, expected);
    }
}
