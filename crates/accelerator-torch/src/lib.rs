//! The caching allocator inside PyTorch.
//!
//! A shared library of C functions, which the Python package `accelerator_alloc` puts behind PyTorch's allocator
//! interface. It contains no symbol of Python or PyTorch, so one build serves all of their versions.
//!
//! | module | contents |
//! |---|---|
//! | `boundary` | errors and panics become numbers and a text |
//! | `driver` | the backend: CUDA, or the host for tensors of the CPU |
//! | `devices` | the devices, their settings, and PyTorch's streams on them |
//! | `memory` | allocation, free, uses by other streams |
//! | `pluggable` | PyTorch's pluggable allocator |
//! | `pools` | private pools, and requests that go to them |
//! | `fork` | what forked children may do with memory of the CPU |
//! | `external` | memory for libraries that know neither devices nor streams |
//! | `own_source` | pools that get their segments from an allocator of PyTorch's |
//! | `share` | memory that several processes use |
//! | `sleep` | pools whose memory can be given back for a while |
//! | `statistics` | statistics, peaks and limits |
//! | `snapshot` | segments and blocks |
//! | `history` | the recorded history |
#![allow(unreachable_pub, reason = "exported functions go by their C names")]

mod boundary;
mod devices;
mod driver;
mod external;
#[cfg(feature = "host")] // children have no use for a GPU's memory
mod fork;
mod history;
mod memory;
#[cfg(not(feature = "host"))] // tensors of the CPU have no pools
mod own_source;
#[cfg(not(feature = "host"))] // tensors of the CPU have none
mod pluggable;
mod pools;
mod share;
mod sleep;
mod snapshot;
mod statistics;
