//! Fixed bugs, one file each.
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "regression/captured_frees.rs"]
mod captured_frees;
#[path = "regression/captured_host_copies.rs"]
mod captured_host_copies;
#[path = "regression/careless_hooks.rs"]
mod careless_hooks;
#[path = "regression/compact.rs"]
mod compact;
#[path = "regression/device_limits.rs"]
mod device_limits;
#[path = "regression/driver_without_fields.rs"]
mod driver_without_fields;
#[path = "regression/expandable_segments.rs"]
mod expandable_segments;
#[path = "regression/extreme_sizes.rs"]
mod extreme_sizes;
#[path = "regression/failed_calls.rs"]
mod failed_calls;
#[path = "regression/foreign_buffers.rs"]
mod foreign_buffers;
#[path = "regression/frees_that_record.rs"]
mod frees_that_record;
#[path = "regression/paused_pools.rs"]
mod paused_pools;
#[path = "regression/pool_handles.rs"]
mod pool_handles;
#[path = "regression/pool_holders.rs"]
mod pool_holders;
#[path = "regression/pool_sources.rs"]
mod pool_sources;
#[path = "regression/pools_that_help.rs"]
mod pools_that_help;
#[path = "regression/unfinished_copies.rs"]
mod unfinished_copies;
#[path = "regression/waiting.rs"]
mod waiting;
