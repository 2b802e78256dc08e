//! Programs that end, or unwind, in the middle of their work.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::sleep;
use std::time::Duration;

use accelerator::MIB;
use accelerator::core::{MemPool, MemPoolOptions};
use accelerator::host::launch;

use crate::process::{SETTINGS, device, processes};

processes! { on_host:
    fn buffers_and_pools_dropped_while_a_thread_unwinds_are_freed() {
        for settings in SETTINGS {
            let device = device(settings);
            let (stream, other) = (device.default_stream(), device.stream(0).unwrap());
            launch(other, (), |()| sleep(Duration::from_millis(50))).unwrap();
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let pool = MemPool::new(device, MemPoolOptions::default()).unwrap();
                let _guard = pool.use_pool();
                let mut buffers = [512, 3 * MIB, 30 * MIB].map(|len| device.allocate(len, stream).unwrap());
                buffers.iter_mut().for_each(|buffer| buffer.fill(1, other).unwrap()); // still to come
                let _pinned = device.allocate_host(MIB).unwrap();
                resume_unwind(Box::new(()));
            }));
            assert!(unwound.is_err());
            device.synchronize().unwrap();
            device.allocator().empty_cache().unwrap();
            device.host_allocator().empty_cache().unwrap();
            let statistics = device.allocator().statistics();
            assert_eq!((statistics.allocated_bytes.all.current, statistics.reserved_bytes.all.current), (0, 0));
            assert_eq!(device.host_allocator().statistics().allocated_bytes.current, 0);
        }
    }

    fn a_process_may_end_while_work_is_queued_and_buffers_are_alive() {
        for settings in SETTINGS {
            let device = device(settings);
            for _ in 0..3 {
                let stream = device.stream(0).unwrap();
                let mut buffer = device.allocate(MIB, stream).unwrap();
                let mut pinned = device.allocate_host(MIB).unwrap();
                launch(stream, buffer.slice_mut::<u8>().unwrap(), |bytes| {
                    sleep(Duration::from_millis(300));
                    bytes.fill(1);
                }).unwrap();
                buffer.copy_to_pinned(0..MIB, &mut pinned, 0, stream).unwrap();
                std::mem::forget((buffer, pinned));
            }
        }
    }
}
