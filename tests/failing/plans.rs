//! Which calls fail, and how many runs there are.

use std::env;

use accelerator_conformance::Failing;
use fastrand::Rng;

/// How often each case and each program runs with one call failing, with two, and with all from one on. If it makes
/// fewer calls, each of them fails once.
const RUNS: &str = "ACCELERATOR_FAILING_RUNS";

/// Returns the number of runs of each kind.
pub(crate) fn runs(default: u64) -> u64 {
    env::var(RUNS).map_or(default, |runs| runs.parse().unwrap())
}

/// Whether the environment sets the number of runs.
pub(crate) fn is_set() -> bool {
    env::var_os(RUNS).is_some()
}

/// Returns what fails in the runs of something that makes so many calls. The seed chooses where not every call has its
/// turn.
pub(crate) fn plans(calls: u64, runs: u64, seed: u64) -> Vec<Failing> {
    let mut random = Rng::with_seed(seed);
    let chosen = |random: &mut Rng| match calls <= runs {
        true => (1..=calls).collect(),
        false => random.choose_multiple(1..=calls, runs as usize),
    };
    let mut plans: Vec<_> = chosen(&mut random).into_iter().map(Failing::One).collect();
    for first in chosen(&mut random) {
        // What follows the first failure is what reacts to it, so the second one is near.
        let reach = if random.bool() { 10 } else { calls };
        plans.push(Failing::Two(first, first + random.u64(1..=reach.max(1))));
    }
    plans.extend(chosen(&mut random).into_iter().map(Failing::From));
    plans
}

/// Returns a seed for a name.
pub(crate) fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
}
