//! What belongs to one process, and not to the children that it forks: they have neither the threads nor the
//! connections of their parent. They must not even take its locks, which a thread that they do not have may hold.

use std::process;
use std::sync::{Mutex, OnceLock};

use super::client::Link;
use super::server::Server;
use super::socket::Secret;
use crate::sync::InUse;

#[derive(Debug)]
pub(super) struct OfProcess {
    process: u32,
    /// Started by the first registration.
    pub(super) server: Mutex<Option<Server>>,
    /// The connections to servers of other processes, by name.
    pub(super) links: Mutex<InUse<Secret, Link>>,
    /// What belongs to a child, after a fork.
    child: OnceLock<Box<Self>>,
}

impl OfProcess {
    fn new() -> Self {
        Self { process: process::id(), server: Mutex::default(), links: Mutex::default(), child: OnceLock::new() }
    }

    /// Returns what belongs to this process.
    pub(super) fn this() -> &'static Self {
        static FIRST: OnceLock<OfProcess> = OnceLock::new();
        let mut of = FIRST.get_or_init(Self::new);
        while !is_this(of.process) {
            of = of.child.get_or_init(|| Box::new(Self::new()));
        }
        of
    }
}

/// Returns whether a process is this one.
pub(super) fn is_this(process: u32) -> bool {
    process == process::id()
}
