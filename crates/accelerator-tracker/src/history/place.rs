use std::cell::RefCell;
use std::sync::Arc;

use accelerator_core::HistoryContext;

use super::stack::Stack;
use crate::tracker::current_scope;

/// The place where a thread caused an entry of a history.
pub(super) struct Place {
    pub(super) stack: Option<Stack>,
    pub(super) scope: Option<Arc<str>>,
    pub(super) metadata: Option<Arc<str>>,
}

thread_local!(static METADATA: RefCell<Option<Arc<str>>> = const { RefCell::new(None) });

/// Sets the text that is stored in the history entries of this thread. An empty text means none. PyTorch:
/// `torch.cuda.memory._set_memory_metadata`.
pub fn set_memory_metadata(metadata: &str) {
    let metadata = (!metadata.is_empty()).then(|| metadata.into());
    // A thread that is ending no longer has metadata.
    let _ = METADATA.try_with(|own| own.replace(metadata));
}

// The last place without a stack in this thread. Usually the next entry has the same place.
thread_local!(static LAST: RefCell<Option<Arc<Place>>> = const { RefCell::new(None) });

pub(super) fn without_stack() -> Option<HistoryContext> {
    let (scope, metadata) = (current_scope(), metadata());
    if scope.is_none() && metadata.is_none() {
        return None;
    }
    let same = |a: &Option<Arc<str>>, b: &Option<Arc<str>>| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    let place = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        match &*last {
            Some(place) if same(&place.scope, &scope) && same(&place.metadata, &metadata) => Arc::clone(place),
            _ => Arc::clone(last.insert(Arc::new(Place { stack: None, scope, metadata }))),
        }
    });
    place.ok().map(|place| -> HistoryContext { place })
}

pub(super) fn with_stack() -> Option<HistoryContext> {
    Some(Arc::new(Place { stack: Some(Stack::here()), scope: current_scope(), metadata: metadata() }))
}

fn metadata() -> Option<Arc<str>> {
    METADATA.try_with(|own| own.borrow().clone()).ok().flatten()
}
