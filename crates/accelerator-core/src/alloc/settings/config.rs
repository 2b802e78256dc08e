//! The allocator's settings, and how they are read from strings.

use std::fmt;

use super::ignored::IgnoredKey;
use super::text::{self, Value};
use crate::types::{Error, MIB, Result};

/// The environment variables for settings; the first one that is set wins. PyTorch 2.15 reads the other three in this
/// order.
const VARIABLES: [&str; 4] =
    ["ACCELERATOR_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// The settings of an allocator. PyTorch: `PYTORCH_ALLOC_CONF`.
///
/// [`updated`](Self::updated) reads PyTorch's strings. As in PyTorch 2.15, a new string resets `max_split_size_mb`,
/// `roundup_power2_divisions` and `garbage_collection_threshold` to their defaults if it omits them, and resets
/// `max_non_split_rounding_mb` to `large_segment_size_mb`. It leaves all other keys unchanged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocatorConfig {
    /// Blocks of this size or more are not split; with `u64::MAX`, all may be split. `max_split_size_mb`, in bytes.
    pub max_split_size: u64,
    /// A request of `max_split_size` or more only uses blocks that exceed it by less than this.
    /// `max_non_split_rounding_mb`, in bytes.
    pub max_non_split_rounding: u64,
    /// Before a driver allocation, old unsplit blocks are released if the reserved memory exceeds this share of the
    /// memory that the memory fraction allows; 0 means never. Has no effect without a memory fraction below 1.
    /// `garbage_collection_threshold`.
    pub garbage_collection_threshold: f64,
    /// How requests are rounded up. `roundup_power2_divisions`.
    pub roundup_power2_divisions: RoundupDivisions,
    /// The segment size for requests over 1 MiB and under 10 MiB, and the page size of expandable segments in the large
    /// pool. `large_segment_size_mb`, in bytes.
    pub large_segment_size: u64,
    /// Whether new memory is mapped into expandable segments, where the backend has virtual memory.
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// How the allocator places requests and obtains memory. Our own key: `policy`.
    pub policy: Policy,
    /// The memory fraction that an allocator starts with;
    /// [`set_memory_fraction`](crate::CachingAllocator::set_memory_fraction) changes it later.
    /// `per_process_memory_fraction`.
    pub memory_fraction: f64,
    /// Whether a request fails at once, with the cache kept, if it would bring the reserved memory above the memory
    /// fraction in force at that time. `throw_on_cudamalloc_oom`.
    pub reject_ahead_of_driver: bool,
    /// Whether a miss may reuse a block that other streams still use, by making its stream wait for them on the device.
    /// If off, as in PyTorch, the block becomes free once the host sees that their events are complete. Our own key:
    /// `device_side_reuse`.
    pub device_side_reuse: bool,
    /// Whether a request in a capture may reuse a block that other streams of the capture used, once the graph orders
    /// all of these uses before it. If off, the block becomes free after the capture.
    /// `graph_capture_record_stream_reuse`.
    pub graph_capture_record_stream_reuse: bool,
    /// Whether a request that would otherwise run out of memory first takes back the free memory of live private pools,
    /// except those that graphs hold. [`Policy::Compact`] always does. Our own key: `reclaim_live_pools`.
    pub reclaim_live_pools: bool,
    /// Whether freed memory is cached. If off, every request gets its own segment, which goes back to the driver when
    /// it is freed. Our own key: `caching`; PyTorch uses the environment variable `PYTORCH_NO_CUDA_MEMORY_CACHING`.
    pub caching: bool,
    /// Requests for pinned host memory above this size are not rounded up to a power of two; with `u64::MAX`, all are.
    /// `pinned_max_round_threshold_mb`, in bytes.
    pub pinned_max_round_threshold: u64,
    /// Blocks of pinned host memory above this size are not cached, and requests for them are not rounded up. With
    /// `u64::MAX`, all are cached. `pinned_max_cached_size_mb`, in bytes.
    pub pinned_max_cached_size: u64,
    /// Whether a background thread, rather than each allocation of pinned host memory, looks for blocks that streams
    /// have finished with. `pinned_use_background_threads`.
    pub pinned_use_background_threads: bool,
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        Self {
            max_split_size: u64::MAX,
            max_non_split_rounding: 20 * MIB,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: RoundupDivisions::default(),
            large_segment_size: 20 * MIB,
            expandable_segments: false,
            policy: Policy::Pytorch,
            memory_fraction: 1.0,
            reject_ahead_of_driver: false,
            device_side_reuse: false,
            graph_capture_record_stream_reuse: false,
            reclaim_live_pools: false,
            caching: true,
            pinned_max_round_threshold: u64::MAX,
            pinned_max_cached_size: u64::MAX,
            pinned_use_background_threads: false,
        }
    }
}

impl AllocatorConfig {
    /// Returns these settings with a string such as `key:value,key:[a:b,c:d]` applied. White space is ignored.
    ///
    /// Keys that only PyTorch's CUDA allocator uses have no effect. The first use of each in a process logs a warning
    /// through the crate `tracing`.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] for an unknown key, a value out of range or a malformed string.
    pub fn updated(&self, settings: &str) -> Result<Self> {
        self.read(settings, None)
    }

    /// Returns the settings from the environment: from the first variable that is set among `ACCELERATOR_ALLOC_CONF`
    /// and PyTorch's `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` and `PYTORCH_ALLOC_CONF`, in this order. If
    /// none is set, returns the defaults. An empty variable counts as set, as in PyTorch.
    ///
    /// # Errors
    /// As for [`updated`](Self::updated); the error names the variable.
    pub fn from_environment() -> Result<Self> {
        let is_set = |variable| std::env::var_os(variable).map(|settings| (variable, settings));
        match VARIABLES.into_iter().find_map(is_set) {
            Some((variable, settings)) => Self::default().read(&settings.to_string_lossy(), Some(variable)),
            None => Ok(Self::default()),
        }
    }

    fn read(&self, settings: &str, variable: Option<&'static str>) -> Result<Self> {
        let invalid = |reason| Error::InvalidSetting { variable, settings: settings.to_owned(), reason };
        let pairs = text::parse(settings).map_err(invalid)?;
        let config = self.with(&pairs).map_err(invalid)?;
        pairs.iter().filter_map(|(key, _)| IgnoredKey::named(key)).for_each(IgnoredKey::warn_once);
        Ok(config)
    }

    fn with(&self, pairs: &[(String, Value)]) -> Result<Self, String> {
        let defaults = Self::default();
        let mut config = Self {
            max_split_size: defaults.max_split_size,
            garbage_collection_threshold: defaults.garbage_collection_threshold,
            roundup_power2_divisions: defaults.roundup_power2_divisions,
            ..*self
        };
        for (key, value) in pairs {
            match IgnoredKey::named(key) {
                Some(ignored) => ignored.check(value)?,
                None => config.set(key, value)?,
            }
        }
        let is_given = |key| pairs.iter().any(|(given, _)| given == key);
        let segment = config.large_segment_size;
        if !is_given("max_non_split_rounding_mb") {
            config.max_non_split_rounding = segment;
        }
        for (key, size) in
            [("max_split_size_mb", config.max_split_size), ("max_non_split_rounding_mb", config.max_non_split_rounding)]
        {
            if is_given(key) && size < segment {
                let least = segment / MIB;
                return Err(format!("`{key}` must be at least large_segment_size_mb, which is {least}"));
            }
        }
        Ok(config)
    }

    /// Returns whether best fit splits blocks as it does by default: no segment is expandable, no block is kept whole
    /// or counts as oversize, requests are rounded to whole blocks only, and no searches are counted.
    pub(crate) fn is_plain(&self) -> bool {
        !self.expandable_segments && self.policy == Policy::Pytorch && self.splits_plainly()
    }

    /// As [`is_plain`](Self::is_plain), apart from the policy and expandable segments.
    pub(crate) fn splits_plainly(&self) -> bool {
        let rounds = self.roundup_power2_divisions != RoundupDivisions::default();
        self.max_split_size == u64::MAX && !self.collects() && !rounds
    }

    /// Returns whether old free memory goes back before new memory is requested.
    pub(crate) fn collects(&self) -> bool {
        self.garbage_collection_threshold > 0.0
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let keys = self.fields().map(|(name, _)| name);
        let unknown = || format!("unknown key `{key}`: expected one of {}", keys.join(", "));
        let (_, field) = self.fields().into_iter().find(|(name, _)| *name == key).ok_or_else(unknown)?;
        field.read(key, value)?;
        let (threshold, fraction) = (self.garbage_collection_threshold, self.memory_fraction);
        let expected = match key {
            "large_segment_size_mb" if self.large_segment_size <= 10 * MIB => "more than 10",
            "garbage_collection_threshold" if !(threshold > 0.0 && threshold < 1.0) => "more than 0 and less than 1",
            "per_process_memory_fraction" if !(0.0..=1.0).contains(&fraction) => "between 0 and 1",
            _ => return Ok(()),
        };
        Err(format!("`{key}` must be {expected}"))
    }

    /// All settings, with their keys.
    fn fields(&mut self) -> [(&'static str, Field<'_>); 16] {
        [
            ("max_split_size_mb", Field::Mebibytes(&mut self.max_split_size)),
            ("max_non_split_rounding_mb", Field::Mebibytes(&mut self.max_non_split_rounding)),
            ("large_segment_size_mb", Field::Mebibytes(&mut self.large_segment_size)),
            ("garbage_collection_threshold", Field::Number(&mut self.garbage_collection_threshold)),
            ("roundup_power2_divisions", Field::Divisions(&mut self.roundup_power2_divisions)),
            ("expandable_segments", Field::Boolean(&mut self.expandable_segments)),
            ("policy", Field::Policy(&mut self.policy)),
            ("per_process_memory_fraction", Field::Number(&mut self.memory_fraction)),
            ("throw_on_cudamalloc_oom", Field::Boolean(&mut self.reject_ahead_of_driver)),
            ("device_side_reuse", Field::Boolean(&mut self.device_side_reuse)),
            ("graph_capture_record_stream_reuse", Field::Boolean(&mut self.graph_capture_record_stream_reuse)),
            ("reclaim_live_pools", Field::Boolean(&mut self.reclaim_live_pools)),
            ("caching", Field::Boolean(&mut self.caching)),
            ("pinned_max_round_threshold_mb", Field::Mebibytes(&mut self.pinned_max_round_threshold)),
            ("pinned_max_cached_size_mb", Field::Mebibytes(&mut self.pinned_max_cached_size)),
            ("pinned_use_background_threads", Field::Boolean(&mut self.pinned_use_background_threads)),
        ]
    }
}

/// The settings that differ from the defaults, in PyTorch's notation. Applying this text to the defaults with
/// [`updated`](AllocatorConfig::updated) gives the same settings if they came from a single string. Several strings
/// applied in turn can lead to settings that no single string gives.
impl fmt::Display for AllocatorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut own = *self;
        let mut omitted = Self { max_non_split_rounding: self.large_segment_size, ..Self::default() };
        let fields = own.fields().into_iter().zip(omitted.fields());
        // Values, not texts: the largest whole number of MiB has the same text as no limit.
        let changed = fields.filter(|((_, own), (_, omitted))| own != omitted);
        f.write_str(&changed.map(|((key, own), _)| format!("{key}:{own}")).collect::<Vec<_>>().join(","))
    }
}

/// A setting, by the format of its text.
#[derive(PartialEq)]
enum Field<'a> {
    /// A size in bytes, written in MiB.
    Mebibytes(&'a mut u64),
    Number(&'a mut f64),
    Boolean(&'a mut bool),
    Divisions(&'a mut RoundupDivisions),
    Policy(&'a mut Policy),
}

impl Field<'_> {
    fn read(self, key: &str, value: &Value) -> Result<(), String> {
        match self {
            Self::Mebibytes(bytes) => *bytes = value.mebibytes(key)?,
            Self::Number(number) => *number = value.number(key)?,
            Self::Boolean(boolean) => *boolean = value.boolean(key)?,
            Self::Divisions(divisions) => *divisions = RoundupDivisions::read(key, value)?,
            Self::Policy(policy) => *policy = Policy::ALL[value.one_of(key, &Policy::ALL.map(Policy::name))?],
        }
        Ok(())
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mebibytes(bytes) => write!(f, "{}", **bytes / MIB),
            Self::Number(number) => number.fmt(f),
            Self::Boolean(true) => f.write_str("True"),
            Self::Boolean(false) => f.write_str("False"),
            Self::Divisions(divisions) => divisions.fmt(f),
            Self::Policy(policy) => f.write_str(policy.name()),
        }
    }
}

/// How an allocator places requests and obtains memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// PyTorch's policy, to the byte.
    #[default]
    Pytorch,
    /// Keeps the reserved memory close to the peak of requested memory. Where the backend has virtual memory, it
    /// combines chunks of memory for requests that no free block can serve, and it remembers the placements of a step
    /// that repeats. The settings for splitting, segments and garbage collection have no effect.
    Compact,
}

impl Policy {
    const ALL: [Self; 2] = [Self::Pytorch, Self::Compact];

    fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Compact => "compact",
        }
    }
}

/// The number of steps that each power of two is divided into when a request is rounded up, by the size of the request:
/// under 2 MiB, under 4 MiB, and so on up to 32 GiB and more. 0 and 1 turn such rounding off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundupDivisions([u64; Self::INTERVALS]);

impl RoundupDivisions {
    const INTERVALS: usize = 16;

    /// Returns the divisions for a request of this size in bytes.
    pub fn of(&self, size: u64) -> u64 {
        let above_mebibyte = (size / MIB).checked_ilog2().unwrap_or(0) as usize;
        self.0[above_mebibyte.min(Self::INTERVALS - 1)]
    }

    /// Reads `4`, or a table such as `[64:8,256:4,>:1]`: 8 from 64 MiB, 4 from 256 MiB, 1 above that. The first entry
    /// also applies to all smaller sizes. Intervals between entries are not rounded, as in PyTorch.
    fn read(key: &str, value: &Value) -> Result<Self, String> {
        let power_of_two = |steps: u64| match steps.is_power_of_two() {
            true => Ok(steps),
            false => Err(format!("the numbers of `{key}` must be powers of two, not {steps}")),
        };
        let mut divisions = [0; Self::INTERVALS];
        match value {
            Value::Text(_) => divisions.fill(power_of_two(value.integer(key)?)?),
            Value::Table(entries) => {
                let mut last = None;
                for (from, steps) in entries {
                    let steps = steps.integer(key)?;
                    let steps = if steps == 0 { 0 } else { power_of_two(steps)? };
                    if from == ">" {
                        divisions[last.unwrap_or(0) + 1..].fill(steps);
                        continue;
                    }
                    let from = Value::Text(from.clone()).integer(key)?;
                    let interval = (power_of_two(from)?.ilog2() as usize).min(Self::INTERVALS - 1);
                    if last.is_none() {
                        divisions[..interval].fill(steps);
                    }
                    divisions[interval] = steps;
                    last = Some(interval);
                }
            }
        }
        Ok(Self(divisions))
    }
}

/// A table of all intervals, keyed by the MiB at which each starts.
impl fmt::Display for RoundupDivisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().enumerate().map(|(interval, steps)| format!("{}:{steps}", 1u64 << interval));
        write!(f, "[{}]", entries.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests;
