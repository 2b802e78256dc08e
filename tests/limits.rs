//! What the allocator may cost the host: no memory on the warm path, and little for a block that lives. Counted by the
//! allocator of this program.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "limits/counting.rs"]
mod counting;
#[path = "limits/memory.rs"]
mod memory;
#[path = "limits/sizes.rs"]
mod sizes;
#[path = "limits/warm.rs"]
mod warm;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
