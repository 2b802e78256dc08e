//! No such barrier: nothing may rely on it.

pub(in crate::sync) fn is_supported() -> bool {
    false
}

pub(in crate::sync) fn of_process() -> bool {
    false
}

#[inline(always)]
pub(in crate::sync) fn of_this_thread() {}

pub(in crate::sync) fn wait_for_stores() {}
