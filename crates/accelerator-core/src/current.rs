//! The current stream of each thread, which decides whether a free is part of a capture.

use std::cell::{Cell, RefCell};
use std::mem;

use crate::stream::Instance;
use crate::types::StreamId;

thread_local! {
    /// The current streams of this thread, by the number of the device instance, where they are not the default stream.
    static CURRENT: RefCell<Vec<(u64, StreamId)>> = const { RefCell::new(Vec::new()) };
    /// The number of them. Mostly there are none, and an allocation need not search.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Returns the current stream of this thread; the default stream while the thread ends.
#[inline]
pub(crate) fn current_stream(of: &Instance) -> StreamId {
    if COUNT.get() == 0 { StreamId::DEFAULT } else { search(of) }
}

fn search(of: &Instance) -> StreamId {
    let current = CURRENT.try_with(|all| all.borrow().iter().find(|(number, _)| *number == of.number).copied());
    current.ok().flatten().map_or(StreamId::DEFAULT, |(_, stream)| stream)
}

/// Sets the current stream of this thread, and returns the previous one.
pub(crate) fn exchange_current_stream(of: &Instance, stream: StreamId) -> StreamId {
    let exchange = |all: &RefCell<Vec<(u64, StreamId)>>| {
        let mut all = all.borrow_mut();
        let before = match all.iter().position(|(number, _)| *number == of.number) {
            Some(place) if stream == StreamId::DEFAULT => all.swap_remove(place).1,
            Some(place) => mem::replace(&mut all[place].1, stream),
            None => {
                if stream != StreamId::DEFAULT {
                    all.push((of.number, stream));
                }
                StreamId::DEFAULT
            }
        };
        COUNT.set(all.len());
        before
    };
    CURRENT.try_with(exchange).unwrap_or(StreamId::DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Device, DeviceKind};

    #[test]
    fn each_device_instance_has_its_own_current_stream() {
        let device = Device { kind: DeviceKind::new("test"), index: 0 };
        let (one, other) = (Instance::new(device), Instance::new(device));
        let [first, second] = [1, 2].map(StreamId::new);
        assert_eq!(exchange_current_stream(&one, first), StreamId::DEFAULT);
        assert_eq!(exchange_current_stream(&other, second), StreamId::DEFAULT);
        assert_eq!(exchange_current_stream(&one, second), first);
        assert_eq!(exchange_current_stream(&one, StreamId::DEFAULT), second);
        assert_eq!((current_stream(&one), current_stream(&other)), (StreamId::DEFAULT, second));
        assert_eq!(exchange_current_stream(&other, StreamId::DEFAULT), second);
        assert!(CURRENT.with_borrow(Vec::is_empty));
    }
}
