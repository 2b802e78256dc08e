//! Guards of the current device and stream, dropped in any order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use accelerator::{
    DeviceIndexGuard, Error, Result, Stream, StreamGuard, StreamId, current_device_index, current_stream, device_index,
    set_device_index,
};

use crate::process::processes;

processes! { on_host:
    fn nested_guards() {
        let outer = DeviceIndexGuard::new(Some(1))?;
        {
            let _inner = device_index(2)?;
            let _nothing = DeviceIndexGuard::new(None)?;
            assert_eq!(current_device_index()?, 2);
            assert!(matches!(DeviceIndexGuard::new(3), Err(Error::InvalidDevice { index: 3, .. })));
            assert_eq!(current_device_index()?, 2, "a guard that fails switches nothing");
        }
        assert_eq!(current_device_index()?, 1);
        drop(outer);
        assert_eq!(current_device_index()?, 0);

        let nothing = DeviceIndexGuard::new(None)?;
        set_device_index(2)?;
        drop(nothing);
        assert_eq!(current_device_index()?, 2, "a guard without a device restores nothing");
    }

    fn nested_stream_guards() {
        let (first, second) = (Stream::new(1)?, Stream::new(1)?);
        let outer = StreamGuard::new(&first)?;
        {
            let _inner = StreamGuard::new(&second)?;
            assert_eq!(current_stream(None)?, second);
        }
        assert_eq!(current_stream(None)?, first);
        drop(outer);
        assert_eq!(current_stream(None)?, current_stream(0)?);
        assert_eq!(current_stream(1)?.id(), StreamId::DEFAULT);
    }

    fn the_outer_of_two_device_guards_is_dropped_first() {
        let (outer, inner) = (device_index(1)?, device_index(2)?);
        drop(outer);
        assert_eq!(current_device_index()?, 2, "the later guard is still in effect");
        drop(inner);
        assert_eq!(current_device_index()?, 0);
    }

    fn the_outer_of_two_stream_guards_is_dropped_first() {
        let (first, second) = (Stream::new(0)?, Stream::new(0)?);
        let (outer, inner) = (StreamGuard::new(&first)?, StreamGuard::new(&second)?);
        drop(outer);
        assert_eq!(current_stream(None)?, second, "the later guard is still in effect");
        drop(inner);
        assert_eq!(current_stream(None)?.id(), StreamId::DEFAULT);
    }

    // Drops four guards in every order. Some of them share a device or a stream.
    fn device_and_stream_guards_are_dropped_in_every_order() {
        let (on_1, also_on_1, on_2) = (Stream::new(1)?, Stream::new(1)?, Stream::new(2)?);
        let before_1 = Stream::new(1)?;
        let _before = StreamGuard::new(&before_1)?;
        set_device_index(2)?;
        for order in permutations(4) {
            let mut guards: Vec<Option<Box<dyn std::any::Any>>> = vec![
                Some(Box::new(StreamGuard::new(&on_1)?)),
                Some(Box::new(device_index(0)?)),
                Some(Box::new(StreamGuard::new(&also_on_1)?)),
                Some(Box::new(StreamGuard::new(&on_2)?)),
            ];
            for (dropped, guard) in order.iter().enumerate() {
                guards[*guard] = None;
                // The latest remaining guard that changed it determines the current one.
                let alive = |guard: usize| guards[guard].is_some();
                let device = [(3, 2), (2, 1), (1, 0), (0, 1)].into_iter().find(|(guard, _)| alive(*guard));
                let stream = [(2, also_on_1), (0, on_1)].into_iter().find(|(guard, _)| alive(*guard));
                let expected = (device.map_or(2, |found| found.1), stream.map_or(before_1, |found| found.1));
                let what = format!("{order:?} after {dropped}");
                assert_eq!((current_device_index()?, current_stream(1)?), expected, "{what}");
                let on_2_id = if alive(3) { on_2.id() } else { StreamId::DEFAULT };
                assert_eq!(current_stream(2)?.id(), on_2_id, "{what}");
            }
        }
    }

    fn guards_restore_during_a_panic() {
        set_device_index(1)?;
        let side = Stream::new(0)?;
        let before = current_stream(0)?;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let device = device_index(2).unwrap();
            let _stream = StreamGuard::new(&side).unwrap();
            let _moved_behind = device; // dropped before the stream guard, which was created later
            assert_eq!(current_device_index().unwrap(), 0);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(current_device_index()?, 1);
        assert_eq!(current_stream(0)?, before);
    }

    fn guards_of_other_threads_do_not_count() {
        let here = device_index(1)?;
        let elsewhere = thread::spawn(|| {
            let (outer, inner) = (device_index(2).unwrap(), device_index(1).unwrap());
            drop(outer);
            drop(inner);
            current_device_index().unwrap()
        });
        assert_eq!(elsewhere.join().unwrap(), 0);
        assert_eq!(current_device_index()?, 1);
        drop(here);
        assert_eq!(current_device_index()?, 0);
    }

    fn a_thread_that_is_ending_may_drop_and_make_guards() {
        struct AtTheEnd(mpsc::Sender<Result<u32>>, Vec<DeviceIndexGuard>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                let made = device_index(1);
                self.1.clear();
                drop(made);
                self.0.send(current_device_index()).unwrap();
            }
        }
        thread_local!(static AT_THE_END: std::cell::OnceCell<AtTheEnd> = const { std::cell::OnceCell::new() });

        // Destructors of thread locals run in the order of first use, on some systems in reverse.
        for selected_first in [false, true] {
            let (sender, receiver) = mpsc::channel();
            let thread = thread::spawn(move || {
                if selected_first {
                    set_device_index(2).unwrap();
                }
                AT_THE_END.with(|cell| {
                    let guards = vec![device_index(1).unwrap(), device_index(2).unwrap()];
                    cell.set(AtTheEnd(sender, guards)).ok().unwrap();
                });
            });
            thread.join().unwrap();
            receiver.recv().unwrap()?;
        }
    }
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let inserted = |shorter: Vec<usize>| {
        (0..count).map(move |place| {
            let mut longer = shorter.clone();
            longer.insert(place, last);
            longer
        })
    };
    permutations(last).into_iter().flat_map(inserted).collect()
}
