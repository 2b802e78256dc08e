//! A second implementation of the settings and the rounding, by search instead of formulas.

use accelerator_core::MIB;

/// The content of one settings string. Fields that are `None` are omitted from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) max_split_mb: Option<u64>,
    pub(crate) max_non_split_rounding_mb: Option<u64>,
    pub(crate) garbage_collection_percent: Option<u8>,
    pub(crate) roundup: Option<Roundup>,
    pub(crate) large_segment_mb: Option<u64>,
    pub(crate) memory_percent: Option<u8>,
    pub(crate) throw_on_oom: Option<bool>,
    pub(crate) device_side_reuse: Option<bool>,
    pub(crate) caching: Option<bool>,
    pub(crate) expandable: Option<bool>,
    /// `policy`. This model covers only the default policy.
    pub(crate) compact: Option<bool>,
}

/// One number for all sizes, or a table of entries by MiB with one for everything above.
#[derive(Clone, Debug)]
pub(crate) enum Roundup {
    Number(u64),
    Table { entries: Vec<(u64, u64)>, above: Option<u64> },
}

/// The current settings.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    /// The largest block that may be split, or `None` for no limit.
    pub(crate) max_split: Option<u64>,
    pub(crate) max_non_split_rounding: u64,
    pub(crate) roundup: Roundup,
    pub(crate) large_segment: u64,
    /// The initial fraction of an allocator. In a running one it affects only `throw_on_oom`.
    pub(crate) memory_fraction: f64,
    pub(crate) throw_on_oom: bool,
    pub(crate) device_side_reuse: bool,
    pub(crate) caching: bool,
    /// Whether expandable segments are requested.
    pub(crate) expandable: bool,
}

/// How a request is rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) rounded: u64,
    pub(crate) small: bool,
    pub(crate) segment: u64,
}

impl Settings {
    pub(crate) fn text(&self) -> String {
        let boolean = |value: bool| if value { "True" } else { "False" }.to_owned();
        let pairs = [
            // `large_segment_size_mb` limits the keys before and after it. The order must not matter.
            ("max_split_size_mb", self.max_split_mb.map(|mb| mb.to_string())),
            ("large_segment_size_mb", self.large_segment_mb.map(|mb| mb.to_string())),
            ("max_non_split_rounding_mb", self.max_non_split_rounding_mb.map(|mb| mb.to_string())),
            ("garbage_collection_threshold", self.garbage_collection_percent.map(|percent| format!("0.{percent:02}"))),
            ("roundup_power2_divisions", self.roundup.as_ref().map(Roundup::text)),
            ("per_process_memory_fraction", self.memory_percent.map(|percent| format!("0.{percent:02}"))),
            ("throw_on_cudamalloc_oom", self.throw_on_oom.map(boolean)),
            ("device_side_reuse", self.device_side_reuse.map(boolean)),
            ("caching", self.caching.map(boolean)),
            ("expandable_segments", self.expandable.map(boolean)),
            ("policy", self.compact.map(|on| if on { "compact" } else { "pytorch" }.to_owned())),
        ];
        let given = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}:{}", value?)));
        given.collect::<Vec<_>>().join(",")
    }
}

impl Roundup {
    fn text(&self) -> String {
        match self {
            Self::Number(divisions) => divisions.to_string(),
            Self::Table { entries, above } => {
                let entries = entries.iter().map(|(from, divisions)| format!("{from}:{divisions}"));
                let above = above.iter().map(|divisions| format!(">:{divisions}"));
                format!("[{}]", entries.chain(above).collect::<Vec<_>>().join(","))
            }
        }
    }

    fn divisions(&self, bytes: u64) -> u64 {
        match self {
            Self::Number(divisions) => *divisions,
            Self::Table { entries, above } => {
                let interval = (0..15).map(|n| 1 << n).find(|mb| bytes < 2 * mb * MIB).unwrap_or(1 << 15);
                let entry = entries.iter().find(|(from, _)| *from == interval);
                match (entry, entries.first(), entries.last()) {
                    (Some((_, divisions)), ..) => *divisions,
                    (None, Some((first, divisions)), _) if interval < *first => *divisions,
                    (None, _, Some((last, _))) if interval > *last => above.unwrap_or(0),
                    _ => 0,
                }
            }
        }
    }
}

impl Default for InForce {
    fn default() -> Self {
        Self {
            max_split: None,
            max_non_split_rounding: 20 * MIB,
            roundup: Roundup::Number(0),
            large_segment: 20 * MIB,
            memory_fraction: 1.0,
            throw_on_oom: false,
            device_side_reuse: false,
            caching: true,
            expandable: false,
        }
    }
}

impl InForce {
    /// Returns the settings after a string, or `None` if the string must be refused.
    pub(crate) fn after(&self, new: &Settings) -> Option<Self> {
        let large_segment = new.large_segment_mb.map_or(self.large_segment, |mb| mb * MIB);
        let too_small = |mb: Option<u64>| mb.is_some_and(|mb| mb * MIB < large_segment);
        if large_segment <= 10 * MIB
            || too_small(new.max_split_mb)
            || too_small(new.max_non_split_rounding_mb)
            || new.garbage_collection_percent == Some(0)
        {
            return None;
        }
        Some(Self {
            max_split: new.max_split_mb.map(|mb| mb * MIB),
            max_non_split_rounding: new.max_non_split_rounding_mb.map_or(large_segment, |mb| mb * MIB),
            roundup: new.roundup.clone().unwrap_or(Roundup::Number(0)),
            large_segment,
            memory_fraction: new.memory_percent.map_or(self.memory_fraction, |percent| f64::from(percent) / 100.0),
            throw_on_oom: new.throw_on_oom.unwrap_or(self.throw_on_oom),
            device_side_reuse: new.device_side_reuse.unwrap_or(self.device_side_reuse),
            caching: new.caching.unwrap_or(self.caching),
            expandable: new.expandable.unwrap_or(self.expandable),
        })
    }

    /// Whether new memory comes from expandable segments. They require caching.
    pub(crate) fn expands(&self) -> bool {
        self.expandable && self.caching
    }

    pub(crate) fn expected(&self, bytes: u64) -> Expected {
        let rounded = self.round(bytes);
        let small = rounded <= MIB;
        let segment = match rounded {
            _ if !self.caching => rounded,
            _ if small => 2 * MIB,
            _ if rounded < 10 * MIB => self.large_segment,
            _ => next_multiple(rounded, 512, 2 * MIB),
        };
        Expected { rounded, small, segment }
    }

    fn round(&self, bytes: u64) -> u64 {
        let divisions = self.roundup.divisions(bytes);
        if divisions > 1 && bytes > 512 * divisions {
            let power = (0..63).map(|n| 1 << n).take_while(|power| *power <= bytes).last().unwrap();
            return (0..).map(|n| power + n * (power / divisions)).find(|size| *size >= bytes).unwrap();
        }
        next_multiple(bytes, 1, 512)
    }

    pub(crate) fn is_oversize(&self, bytes: u64) -> bool {
        self.max_split.is_some_and(|limit| bytes >= limit)
    }

    /// Whether a request of `rounded` bytes may use a cached block of `block` bytes.
    pub(crate) fn may_take(&self, rounded: u64, block: u64) -> bool {
        match self.is_oversize(rounded) {
            true => block - rounded < self.max_non_split_rounding,
            false => !self.is_oversize(block),
        }
    }

    /// Returns how much of a block of `whole` bytes a request gets.
    pub(crate) fn cut(&self, expected: Expected, whole: u64) -> u64 {
        let rest = whole - expected.rounded;
        let keeps_rest = match expected.small || self.expands() {
            true => rest < 512,
            false => self.is_oversize(expected.rounded) || rest <= MIB,
        };
        if keeps_rest { whole } else { expected.rounded }
    }
}

fn next_multiple(from: u64, step: usize, of: u64) -> u64 {
    (from..).step_by(step).find(|size| size.is_multiple_of(of)).unwrap()
}
