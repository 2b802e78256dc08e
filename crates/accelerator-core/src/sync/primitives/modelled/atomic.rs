//! Loom's atomics, with sequential consistency.

pub(crate) use loom::sync::atomic::fence;
pub(crate) use std::sync::atomic::Ordering;

/// Loom takes a sequentially consistent load for an acquiring one, and would report what cannot happen. So each such
/// load has a sequentially consistent fence before it. That is what compilers for processors with weak memory do, too.
macro_rules! atomic {
    ($name:ident, $value:ty $(, $($method:ident),+)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        #[allow(dead_code)] // not every type needs all of them
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                if order == Ordering::SeqCst {
                    fence(Ordering::SeqCst);
                }
                self.0.load(order)
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            $($(
                #[track_caller]
                pub(crate) fn $method(&self, value: $value, order: Ordering) -> $value {
                    self.0.$method(value, order)
                }
            )+)?
        }
    };
}

atomic!(AtomicBool, bool, swap);
atomic!(AtomicU32, u32, fetch_add);
atomic!(AtomicU64, u64, fetch_add);
atomic!(AtomicUsize, usize, fetch_add, fetch_sub);
