//! The cases, by group. Their numbers are permanent.

mod aliases;
mod allocation;
mod cache_control;
mod capture_defects;
mod captures;
mod checkpoints;
mod compact;
mod consistency;
mod context;
mod devices;
mod events;
mod expandable;
mod injection;
mod injection_pools;
mod interleavings;
#[cfg(target_os = "linux")]
mod interprocess;
mod layout;
mod live_pools;
mod mem_pool_memory;
mod mem_pool_routes;
mod mem_pools;
mod out_of_memory;
mod pauses;
mod pinned;
mod pinned_copies;
mod pinned_threads;
mod pool_defects;
mod random;
mod recovered;
mod recovery;
mod reuse;
mod statistics;
mod streams;
mod threads;

use accelerator_core::Policy;

pub(crate) use self::context::Context;
use crate::outcome::Outcome;
use crate::raw;
use crate::suite::{Capability, Group};

/// One case.
pub(crate) struct Case {
    pub(crate) number: u32,
    /// Its subject, as words joined by `_`.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Capability],
    pub(crate) run: Run,
    /// Runs instead on a backend that lacks something that the case needs.
    pub(crate) instead: Option<fn(&Context) -> Outcome>,
    /// The policy of the case's devices, unless it asks for another.
    pub(crate) policy: Policy,
    /// Whether the case holds under every policy, so that it also runs under the other one.
    of_any_policy: bool,
}

/// What memory between processes needs, and what it needs if it may come from virtual memory.
const INTERPROCESS: &[Capability] = &[Capability::Bytes, Capability::Execution, Capability::Interprocess];
const INTERPROCESS_PAGES: &[Capability] =
    &[Capability::Bytes, Capability::Execution, Capability::Interprocess, Capability::InterprocessPages];

/// Where a case is run.
pub(crate) enum Run {
    Here(fn(&Context) -> Outcome),
    /// On the backend itself: the case of group M with this number.
    Raw,
    /// Not by this suite, for the given reason.
    Elsewhere(&'static str),
}

impl Case {
    fn new(number: u32, name: &'static str, run: fn(&Context) -> Outcome) -> Self {
        Self::run(number, name, Run::Here(run))
    }

    fn elsewhere(number: u32, name: &'static str, reason: &'static str) -> Self {
        Self::run(number, name, Run::Elsewhere(reason))
    }

    fn run(number: u32, name: &'static str, run: Run) -> Self {
        Self { number, name, needs: &[], run, instead: None, policy: Policy::Pytorch, of_any_policy: false }
    }

    fn needs(self, needs: &'static [Capability]) -> Self {
        Self { needs, ..self }
    }

    fn or_else(self, instead: fn(&Context) -> Outcome) -> Self {
        Self { instead: Some(instead), ..self }
    }

    fn of_any_policy(self) -> Self {
        Self { of_any_policy: true, ..self }
    }

    /// Returns the needs of the case under `compact`. Case 94, at its limit of memory, relies on whole segments
    /// becoming free. Where segments are shared, that needs memory that can be remapped.
    fn needs_under_compact(&self) -> &'static [Capability] {
        match self.group() {
            Group::Interprocess => INTERPROCESS_PAGES,
            _ if self.number == 94 => &[Capability::VirtualMemory],
            _ => self.needs,
        }
    }

    pub(crate) fn group(&self) -> Group {
        match self.number {
            ..=15 => Group::Device,
            16..=30 => Group::Allocation,
            31..=42 => Group::Streams,
            43..=54 => Group::OutOfMemory,
            55..=60 => Group::CacheControl,
            61..=66 => Group::ExpandableSegments,
            67..=76 | 98..=108 => Group::MemPools,
            77..=81 => Group::PinnedMemory,
            82..=87 => Group::Statistics,
            88..=97 => Group::Threads,
            109..=114 => Group::Compact,
            156..=159 => Group::Interprocess,
            _ => Group::Backend,
        }
    }

    pub(crate) fn trial_name(&self) -> String {
        let policy = if self.of_any_policy && self.policy == Policy::Compact { " (compact)" } else { "" };
        format!("{}{:02}_{}{policy}", self.group().letter(), self.number, self.name)
    }
}

/// Returns all cases; those that hold under every policy appear once per policy. Cases on the backend itself come
/// first, so that the failures of others can refer to them. Apart from that, they are in the order of their numbers.
pub(crate) fn all() -> Vec<Case> {
    let again = numbered().into_iter().filter(|case| case.of_any_policy);
    let again = again.map(|case| Case { policy: Policy::Compact, needs: case.needs_under_compact(), ..case });
    let mut cases: Vec<_> = numbered().into_iter().chain(again).collect();
    cases.sort_by_key(|case| (case.group() != Group::Backend, case.number));
    cases
}

/// The cases of group M.
fn on_the_backend() -> Vec<Case> {
    raw::names()
        .map(|(number, name)| {
            let case = Case::run(number, name, Run::Raw);
            match number {
                132 | 133 => case.needs(&[Capability::Bytes, Capability::Execution, Capability::Clock]),
                138 | 144 => case,
                146 => case.needs(&[Capability::Bytes, Capability::Execution, Capability::VirtualMemory]),
                150..=155 => case.needs(&[Capability::Bytes, Capability::Execution, Capability::Graphs]),
                148 => case.needs(&[Capability::Bytes, Capability::Execution, Capability::SerializedConflicts]),
                _ => case.needs(&[Capability::Bytes, Capability::Execution]),
            }
        })
        .collect()
}

#[cfg(target_os = "linux")]
fn between_processes() -> Vec<Case> {
    interprocess::cases()
}

/// Memory between processes needs Linux.
#[cfg(not(target_os = "linux"))]
fn between_processes() -> Vec<Case> {
    Vec::new()
}

fn numbered() -> Vec<Case> {
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
        injection_pools::cases(),
        pauses::cases(),
        cache_control::cases(),
        expandable::cases(),
        mem_pools::cases(),
        mem_pool_routes::cases(),
        mem_pool_memory::cases(),
        live_pools::cases(),
        capture_defects::cases(),
        pool_defects::cases(),
        checkpoints::cases(),
        captures::cases(),
        pinned::cases(),
        pinned_copies::cases(),
        pinned_threads::cases(),
        statistics::cases(),
        threads::cases(),
        compact::cases(),
        aliases::cases(),
        between_processes(),
        on_the_backend(),
    ];
    groups.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_groups_has_one_case() {
        let mut numbers: Vec<_> = numbered().iter().map(|case| case.number).collect();
        numbers.sort_unstable();
        let expected: Vec<_> = (1..=87).chain(93..=107).chain(109..=159).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn names_are_of_one_trial_each() {
        let mut names: Vec<_> = all().iter().map(Case::trial_name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
