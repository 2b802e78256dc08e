use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Enters a module on this thread until the guard is dropped. Names of operators recorded in it contain its name.
///
/// The name is relative to the current module of the thread: `scope("layers.3")` and, inside it, `scope("forward")`
/// give `layers.3.forward`. [`scope_absolute`] accepts a full name instead. Modules belong to the thread and not to a
/// tracker: all trackers see them. PyTorch: the names of modules, and `.forward`.
///
/// ```
/// use accelerator_tracker::tracker::{current_scope, scope};
///
/// let layer = scope("layers.3");
/// let forward = scope("forward");
/// assert_eq!(current_scope().as_deref(), Some("layers.3.forward"));
/// drop(forward);
/// assert_eq!(current_scope().as_deref(), Some("layers.3"));
/// # drop(layer);
/// ```
pub fn scope(name: &str) -> Scope {
    Scope::enter(|modules| modules.path_of(name))
}

/// Enters a module by its full name, regardless of the current module of this thread, until the guard is dropped.
///
/// In a network whose modules call each other, this produces the names of PyTorch's tracker: the fully qualified name
/// of the innermost module, and `.forward`. When the guard is dropped, the thread returns to the enclosing module.
/// PyTorch's tracker keeps the name until another module is entered.
///
/// ```
/// use accelerator_tracker::tracker::{current_scope, scope_absolute};
///
/// let block = scope_absolute("blocks.0.forward");
/// let layer = scope_absolute("blocks.0.fc1.forward");
/// assert_eq!(current_scope().as_deref(), Some("blocks.0.fc1.forward"));
/// drop(layer);
/// assert_eq!(current_scope().as_deref(), Some("blocks.0.forward"));
/// # drop(block);
/// ```
pub fn scope_absolute(name: &str) -> Scope {
    Scope::enter(|_| name.into())
}

/// Returns the path of the current module of this thread, if there is one.
pub fn current_scope() -> Option<Arc<str>> {
    with(|modules| modules.current().map(Arc::clone)).flatten()
}

/// A guard that leaves the module when it is dropped.
#[must_use = "the module is left when this is dropped"]
pub struct Scope {
    /// The number of the module, or `None` if the thread is ending.
    number: Option<u64>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Scope {
    fn enter(path: impl FnOnce(&Modules) -> Arc<str>) -> Self {
        let number = with(|modules| {
            let number = modules.next;
            modules.next += 1;
            let path = path(modules);
            modules.open.push((Opener::Scope(number), path));
            number
        });
        Self { number, _of_this_thread: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            close(Opener::Scope(number));
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", current_scope().as_deref().unwrap_or_default())
    }
}

/// Identifies who entered a module, to leave the same module. The last module entered is not always left first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opener {
    Scope(u64),
    #[cfg(feature = "tracing")]
    Span(u64),
}

/// Enters a module whose path is known.
#[cfg(feature = "tracing")]
pub(crate) fn open(opener: Opener, path: Arc<str>) {
    with(|modules| modules.open.push((opener, path)));
}

pub(crate) fn close(opener: Opener) {
    with(|modules| {
        if let Some(place) = modules.open.iter().rposition(|(by, _)| *by == opener) {
            modules.open.remove(place);
        }
    });
}

/// The nested modules of a thread, the innermost last.
#[derive(Default)]
struct Modules {
    open: Vec<(Opener, Arc<str>)>,
    next: u64,
}

impl Modules {
    fn current(&self) -> Option<&Arc<str>> {
        self.open.last().map(|(_, path)| path)
    }

    fn path_of(&self, name: &str) -> Arc<str> {
        match self.current() {
            Some(current) => format!("{current}.{name}").into(),
            None => name.into(),
        }
    }
}

thread_local!(static MODULES: RefCell<Modules> = RefCell::default());

/// Calls `work` with the modules of this thread, unless the thread is ending.
fn with<T>(work: impl FnOnce(&mut Modules) -> T) -> Option<T> {
    MODULES.try_with(|modules| modules.try_borrow_mut().ok().map(|mut modules| work(&mut modules))).ok().flatten()
}
