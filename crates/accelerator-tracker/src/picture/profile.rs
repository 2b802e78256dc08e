use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use accelerator_core::MemPoolId;

use super::segments::Moment;
use crate::snapshot::BlockState;
use crate::tracker::MemoryUse;

/// The memory of one device over a period of time.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The name of the observed file or model.
    pub title: String,
    /// Facts about it as names and values, such as the device and the settings.
    pub facts: Vec<(String, String)>,
    /// The total memory of the device in bytes, if known.
    pub capacity: Option<u64>,
    /// Bytes that were allocated before the first operator. If unknown, so is the amount that the first operator added.
    pub allocated_before: Option<u64>,
    /// When the first operator began, on the clock of the samples, if known.
    pub started_us: Option<i64>,
    /// Whether a dot separates the module of an operator from its name, as in names from trackers:
    /// `layers.3.forward.addmm_1`.
    pub has_modules: bool,
    /// The memory after each operator, in the order of the calls.
    pub samples: Vec<Sample>,
    /// Named positions between the operators.
    pub markers: Vec<Marker>,
    /// The segments at selected moments, the earliest first.
    pub moments: Vec<Moment>,
    /// The names of the private pools that have one.
    pub pool_names: BTreeMap<MemPoolId, Arc<str>>,
    /// All allocations, the earliest first.
    pub spans: Vec<Span>,
    /// Statistics at the end, by name.
    pub statistics: Vec<(String, i64)>,
}

/// The memory after one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The operator.
    pub name: Arc<str>,
    /// When it ended, in microseconds from an arbitrary start. If times are unknown, this is 0 in all samples.
    pub time_us: i64,
    /// The memory in use at that time.
    pub memory: MemoryUse,
}

/// A named position before an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its name.
    pub name: Arc<str>,
    /// The index of the operator that follows.
    pub call: usize,
}

/// The lifetime of an allocation, by the indices of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The requested bytes.
    pub bytes: u64,
    /// The operator that allocated it, or `None` if it is older than the profile.
    pub start: Option<usize>,
    /// The operator that freed it, or `None` if it is alive at the end.
    pub end: Option<usize>,
}

/// The amount that an operator added to the allocated memory, over all its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    /// The operator.
    pub name: Arc<str>,
    /// The largest amount that a call added.
    pub bytes: u64,
    /// The first call that added that much.
    pub call: usize,
    /// The number of calls that added anything.
    pub calls: u64,
    /// The total bytes that they added.
    pub total: u64,
}

/// One of the three curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in MemoryUse")]
pub enum Series {
    Allocated,
    Active,
    Reserved,
}

impl Series {
    /// All series, in the order of legends.
    pub const ALL: [Self; 3] = [Self::Allocated, Self::Active, Self::Reserved];

    /// Returns its name in legends and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Active => "active",
            Self::Reserved => "reserved",
        }
    }

    /// Returns its value in a sample.
    pub const fn of(self, sample: &Sample) -> u64 {
        match self {
            Self::Allocated => sample.memory.allocated,
            Self::Active => sample.memory.active,
            Self::Reserved => sample.memory.reserved,
        }
    }
}

impl Profile {
    /// Returns the first call at which a series is highest, and the value.
    pub fn peak(&self, series: Series) -> Option<(usize, u64)> {
        let values = self.samples.iter().map(|sample| series.of(sample)).enumerate();
        values.reduce(|peak, next| if next.1 > peak.1 { next } else { peak })
    }

    pub(crate) fn allocated_before(&self) -> u64 {
        let first = self.samples.first().map_or(0, |sample| sample.memory.allocated);
        self.allocated_before.unwrap_or(first)
    }

    /// Returns whether active always equals allocated: no block ever waited for a stream after its free.
    pub(crate) fn is_active_allocated(&self) -> bool {
        self.samples.iter().all(|sample| sample.memory.active == sample.memory.allocated)
    }

    /// Returns what a private pool is called: its name, if it has one, and its number.
    pub(crate) fn pool(&self, id: MemPoolId) -> String {
        id.with_name(self.pool_names.get(&id).map(|name| &**name))
    }

    /// Returns the index of the moment with the most allocated memory.
    pub fn moment_of_the_peak(&self) -> usize {
        let allocated = |moment: &Moment| {
            let segments = moment.segments.iter().map(|segment| segment.bytes(BlockState::Allocated));
            segments.fold(0, u64::saturating_add)
        };
        let moments = self.moments.iter().map(allocated).enumerate();
        moments.reduce(|most, next| if next.1 > most.1 { next } else { most }).map_or(0, |(moment, _)| moment)
    }

    /// The number of moments at regular intervals that pictures and reports show.
    pub const EVEN_MOMENTS: usize = 6;

    /// Returns calls after which the segments are interesting, and why: the peaks, and `even` calls at regular
    /// intervals.
    pub fn moments_of_interest(&self, even: usize) -> Vec<(usize, String)> {
        let peaks = [Series::Allocated, Series::Reserved];
        let peaks = peaks.into_iter().filter_map(|series| {
            let (call, _) = self.peak(series)?;
            Some((call, format!("peak {}", series.name())))
        });
        let mut moments: Vec<_> = peaks.collect();
        let count = self.samples.len();
        let even = (1..=even).map(|number| number * count / (even + 1)).filter(|call| *call < count);
        moments.extend(even.map(|call| (call, format!("call {call}"))));
        moments.sort_by_key(|(call, _)| *call); // stable: a peak precedes a regular call
        moments.dedup_by_key(|(call, _)| *call);
        moments
    }

    /// Splits a sample's name into module and operator. A trace has names such as `layers.3 / aten::addmm`.
    pub(crate) fn module_and_operator<'a>(&self, name: &'a str) -> (&'a str, &'a str) {
        if let Some(divided) = name.split_once(" / ") {
            return divided;
        }
        // Names of PyTorch's operators also contain dots, as in `add.Tensor_0`. Names of its modules end like this, or
        // are empty.
        let ends = [".forward.", ".backward."];
        let after = ends.iter().filter_map(|end| Some(name.rfind(end)? + end.len() - 1)).max();
        let point = after.or_else(|| name.starts_with('.').then_some(0)).or_else(|| name.rfind('.'));
        match point.filter(|_| self.has_modules) {
            Some(point) => (&name[..point], &name[point + 1..]),
            None => ("", name),
        }
    }

    /// Returns whether the samples have times.
    pub fn has_times(&self) -> bool {
        self.samples.iter().any(|sample| sample.time_us != 0)
    }

    /// Returns when each sample was taken, in microseconds from the first. If the clock was set back, the time stays
    /// the same. Without times, a call takes a microsecond.
    pub(crate) fn times(&self) -> Vec<u64> {
        if !self.has_times() {
            return (0..self.samples.len() as u64).collect();
        }
        // If other samples have times, a sample without one gets the time of the previous sample.
        let known = |sample: &Sample| (sample.time_us != 0).then_some(sample.time_us);
        let Some(start) = self.samples.iter().find_map(known) else { return Vec::new() };
        let mut latest = start;
        let times = self.samples.iter().map(|sample| {
            latest = latest.max(known(sample).unwrap_or(latest));
            latest.abs_diff(start)
        });
        times.collect()
    }

    /// Returns the operators that added most to the allocated memory, the largest first.
    pub fn largest(&self, top: usize) -> Vec<Largest> {
        let mut by_name = HashMap::<&str, Largest>::new();
        let mut before = self.allocated_before();
        for (call, sample) in self.samples.iter().enumerate() {
            let added = sample.memory.allocated.saturating_sub(before);
            before = sample.memory.allocated;
            if added == 0 {
                continue;
            }
            let name = &sample.name;
            let new = || Largest { name: name.clone(), bytes: 0, call, calls: 0, total: 0 };
            let largest = by_name.entry(name).or_insert_with(new);
            if added > largest.bytes {
                (largest.bytes, largest.call) = (added, call);
            }
            largest.calls += 1;
            largest.total = largest.total.saturating_add(added);
        }
        let mut all: Vec<_> = by_name.into_values().collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.call.cmp(&b.call)));
        all.truncate(top);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(samples: &[(&str, i64, u64)]) -> Profile {
        let sample = |&(name, time_us, allocated): &(&str, i64, u64)| Sample {
            name: name.into(),
            time_us,
            memory: MemoryUse { allocated, active: allocated, reserved: allocated },
        };
        Profile { samples: samples.iter().map(sample).collect(), ..Profile::default() }
    }

    #[test]
    fn the_first_operator_and_repeated_names_count() {
        let mut profile = profile(&[("a", 0, 10), ("b", 0, 14), ("a", 0, 20), ("c", 0, 3), ("b", 0, 10)]);
        profile.allocated_before = Some(0);
        let largest = |name: &str, bytes, call, calls, total| Largest { name: name.into(), bytes, call, calls, total };
        assert_eq!(profile.largest(9), [largest("a", 10, 0, 2, 16), largest("b", 7, 4, 2, 11)]);
        assert_eq!(profile.largest(1).len(), 1);
        assert_eq!(profile.peak(Series::Allocated), Some((2, 20)));
    }

    #[test]
    fn the_first_operator_did_not_allocate_older_memory() {
        let mut profile = profile(&[("a", 0, 110), ("b", 0, 115)]);
        assert_eq!(profile.largest(9).iter().map(|largest| largest.bytes).collect::<Vec<_>>(), [5]);
        profile.allocated_before = Some(100);
        assert_eq!(profile.largest(9).iter().map(|largest| largest.bytes).collect::<Vec<_>>(), [10, 5]);
    }

    #[test]
    fn names_of_trackers_have_modules() {
        let plain = Profile::default();
        let tracked = Profile { has_modules: true, ..Profile::default() };
        let name = "layers.3.forward.addmm_1";
        assert_eq!(tracked.module_and_operator(name), ("layers.3.forward", "addmm_1"));
        assert_eq!(plain.module_and_operator(name), ("", name));
        assert_eq!(tracked.module_and_operator("copy"), ("", "copy"));
        let of_pytorch = "norm.forward.native_layer_norm_backward.default_0";
        let divided = ("norm.forward", "native_layer_norm_backward.default_0");
        assert_eq!(tracked.module_and_operator(of_pytorch), divided);
        assert_eq!(tracked.module_and_operator(".zeros.default_0"), ("", "zeros.default_0"));
        assert_eq!(plain.module_and_operator("h.0 / aten::gelu"), ("h.0", "aten::gelu"));
    }

    #[test]
    fn time_never_goes_back() {
        assert_eq!(profile(&[("", 50, 0), ("", 0, 0), ("", 90, 0), ("", 70, 0)]).times(), [0, 0, 40, 40]);
        assert_eq!(profile(&[("", 0, 0), ("", 0, 0)]).times(), [0, 1]);
        assert_eq!(profile(&[("", i64::MIN, 0), ("", i64::MAX, 0)]).times(), [0, u64::MAX]);
    }
}
