//! A buffer of a device instance that the program opened itself, used in place of one of the facade's.

use accelerator::host::Host;
use accelerator::{Buffer, current_stream, memory};
use accelerator_core::{Accelerator, AllocatorConfig, GIB};

#[test]
fn a_foreign_device_does_not_become_current_on_a_thread() {
    accelerator::set_accelerator("host").unwrap();
    let own = Accelerator::new(Host::new(0, GIB), 0, AllocatorConfig::default()).unwrap();
    let mut inner = own.allocate(4096, own.default_stream()).unwrap();
    let mut buffer = Buffer::allocate(4096, None).unwrap();
    std::mem::swap(buffer.typed_mut::<Host>().unwrap(), &mut inner);
    // A thread without a current device.
    let worker = std::thread::spawn(move || {
        buffer.fill(1).unwrap();
        let (before, facades) = (memory::memory_allocated(None).unwrap(), Buffer::allocate(8192, None).unwrap());
        assert_eq!(memory::memory_allocated(None).unwrap(), before + facades.block_size());
        assert_eq!(current_stream(None).unwrap().device(), facades.device());
    });
    worker.join().unwrap();
}
