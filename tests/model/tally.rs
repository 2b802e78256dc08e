//! What the statistics must say.

use std::collections::BTreeMap;

/// One quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    pub(crate) current: i64,
    pub(crate) peak: i64,
    pub(crate) allocated: i64,
    pub(crate) freed: i64,
}

/// All quantities under the keys of the statistics, without the metric: `active.small_pool`.
#[derive(Debug)]
pub(crate) struct Tally(BTreeMap<String, Count>);

impl Tally {
    pub(crate) fn new() -> Self {
        let pooled = [
            "allocation",
            "allocated_bytes",
            "active",
            "active_bytes",
            "requested_bytes",
            "segment",
            "reserved_bytes",
        ];
        let pooled = pooled
            .iter()
            .flat_map(|name| ["all", "small_pool", "large_pool"].map(|pool| format!("{name}.{pool}")));
        let single = ["oversize_allocations", "oversize_segments"].map(str::to_owned);
        Self(pooled.chain(single).map(|key| (key, Count::default())).collect())
    }

    pub(crate) fn change(&mut self, name: &str, small: bool, amount: i64) {
        self.change_key(&format!("{name}.all"), amount);
        self.change_key(&format!("{name}.{}", if small { "small_pool" } else { "large_pool" }), amount);
    }

    pub(crate) fn change_key(&mut self, key: &str, amount: i64) {
        let count = self.0.get_mut(key).unwrap();
        count.current += amount;
        count.peak = count.peak.max(count.current);
        count.allocated += amount.max(0);
        count.freed += (-amount).max(0);
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.0.values_mut().for_each(|count| count.peak = count.current);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.0.values_mut().for_each(|count| (count.allocated, count.freed) = (0, 0));
    }

    pub(crate) fn of(&self, key: &str) -> Count {
        self.0[key]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Count)> {
        self.0.iter()
    }
}
