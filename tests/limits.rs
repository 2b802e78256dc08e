//! Limits on the allocator's use of host memory: none on the warm path, little per live block, and none left behind by
//! threads. This program's global allocator counts it.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "limits/counting.rs"]
mod counting;
#[path = "limits/memory.rs"]
mod memory;
#[path = "limits/sizes.rs"]
mod sizes;
#[path = "limits/threads.rs"]
mod threads;
#[path = "limits/warm.rs"]
mod warm;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
