//! The current accelerator, device and stream.

use std::sync::mpsc;
use std::thread;

use accelerator::memory::memory_allocated;
use accelerator::{
    Error, Result, Stream, StreamId, current_accelerator, current_device_index, current_stream, device_count,
    exchange_device_index, is_available, set_device_index, set_stream, synchronize,
};

use crate::process::{HOST, host, processes};

processes! { on_host:
    fn a1_count_current_set_exchange() {
        assert!(is_available());
        assert_eq!(device_count(), 3);
        assert_eq!(current_accelerator(), Some(HOST));
        assert_eq!(current_device_index()?, 0);
        set_device_index(2)?;
        assert_eq!(current_device_index()?, 2);
        assert_eq!(exchange_device_index("host:1")?, 2);
        assert_eq!(exchange_device_index(host(0))?, 1);
        assert_eq!(current_device_index()?, 0);
    }

    fn a3_set_stream_switches_the_device() {
        let stream = Stream::new(1)?;
        assert_eq!(current_device_index()?, 0, "creating a stream switches nothing");
        set_stream(&stream)?;
        assert_eq!(current_device_index()?, 1);
        assert_eq!(current_stream(None)?, stream);
        assert_eq!(current_stream(0)?.id(), StreamId::DEFAULT);
        set_device_index(0)?;
        assert_eq!(current_stream(1)?, stream, "each device keeps its own current stream");
        assert_eq!(current_stream(None)?.device(), host(0));
    }

    fn a5_current_device_and_stream_are_per_thread() {
        set_stream(&Stream::new(2)?)?;
        let other = thread::spawn(|| {
            let seen = (current_device_index().unwrap(), current_stream(2).unwrap().id());
            set_device_index(1).unwrap();
            seen
        });
        assert_eq!(other.join().unwrap(), (0, StreamId::DEFAULT));
        assert_eq!(current_device_index()?, 2);
        assert_ne!(current_stream(None)?.id(), StreamId::DEFAULT);
    }

    fn a_thread_that_is_ending_may_still_ask() {
        struct AtTheEnd(mpsc::Sender<Result<u32>>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                let stream = current_stream(1).and_then(|stream| set_stream(&stream));
                self.0.send(stream.and_then(|()| current_device_index())).unwrap();
            }
        }
        thread_local!(static AT_THE_END: std::cell::OnceCell<AtTheEnd> = const { std::cell::OnceCell::new() });

        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            AT_THE_END.with(|cell| cell.set(AtTheEnd(sender)).ok().unwrap());
            set_device_index(2).unwrap();
        });
        thread.join().unwrap();
        receiver.recv().unwrap()?;
    }

    fn a_negative_index_is_set_to_no_effect() {
        set_device_index(2)?;
        set_device_index(-1)?;
        set_device_index(i64::MIN)?;
        assert_eq!(current_device_index()?, 2);
        for refused in [exchange_device_index(-1).err(), memory_allocated(-1).err(), synchronize(-1).err()] {
            assert!(matches!(refused, Some(Error::InvalidDevice { index: -1, count: 3, .. })), "{refused:?}");
        }
    }

    fn the_deprecated_pair_works() {
        #[expect(deprecated, reason = "this test is about the deprecated functions")]
        let index = accelerator::set_device_idx(1).and_then(|()| accelerator::current_device_idx())?;
        assert_eq!(index, 1);
    }
}
