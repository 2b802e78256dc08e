//! Environment variables.

use std::time::{Duration, Instant};

use accelerator::core::StreamKind;
use accelerator::host::Host;
use accelerator::memory::{self, memory_stats};
use accelerator::{
    Backend, Buffer, DeviceIndexGuard, Error, Event, MIB, Stream, current_accelerator, current_device_index,
    current_stream, device_count, get_device_capability, is_available, set_accelerator, set_device_index, synchronize,
};

use crate::process::{HOST, OPENCL, XPU, processes};

processes! { on_host:
    fn backend_variable_names_the_accelerator(ACCELERATOR_BACKEND = "host") {
        assert_eq!(current_accelerator(), Some(HOST));
        set_accelerator("host")?;
        assert_eq!(device_count(), 3);
        let backends = accelerator::backends();
        assert_eq!(backends.last().map(|backend| (backend.kind, backend.devices.clone())), Some((HOST, Ok(3))));
    }

    fn backends_stand_in_their_order_and_only_the_host_has_devices() {
        let backends = accelerator::backends();
        let found: Vec<_> =
            backends.iter().map(|backend| (backend.kind.name(), backend.devices.clone().unwrap_or(0))).collect();
        assert_eq!(found, [("cuda", 0), ("xpu", 0), ("opencl", 0), ("vulkan", 0), ("host", 3)]);
    }

    fn empty_backend_variable_is_none(ACCELERATOR_BACKEND = "") {
        assert_eq!(current_accelerator(), Some(HOST));
    }

    fn wrong_backend_variable_is_an_error(ACCELERATOR_BACKEND = "banana") {
        assert!(!is_available());
        assert_eq!(device_count(), 0);
        assert_eq!(current_accelerator(), None);
        let known: Vec<_> = accelerator::backends().iter().map(|backend| backend.kind.to_string()).collect();
        for error in [
            current_device_index().unwrap_err(),
            memory_stats(None).unwrap_err(),
            memory::empty_cache().unwrap_err(),
            Buffer::allocate(1, 0).unwrap_err(),
        ] {
            let text = "ACCELERATOR_BACKEND: unknown backend `banana`; this build has";
            assert_eq!(error.to_string(), format!("{text} {}", known.join(", ")));
        }
        let error = set_accelerator("mango").unwrap_err();
        assert!(matches!(&error, Error::UnknownBackend { name, .. } if name == "mango"), "{error:?}");
        assert!(!is_available(), "a failing call changes nothing");
        set_accelerator("host")?;
        assert!(is_available());
        drop(Buffer::allocate(1, 0)?);
    }

    fn host_devices_variable_says_how_many(ACCELERATOR_HOST_DEVICES = "1") {
        assert_eq!(device_count(), 1);
        let error = set_device_index(1).unwrap_err();
        assert_eq!(error.to_string(), "host device 1 does not exist: the only one has number 0");
    }

    fn as_many_host_devices_as_pytorch_can_number(ACCELERATOR_HOST_DEVICES = "128") {
        assert_eq!(device_count(), 128);
        drop(Buffer::allocate(1, 127)?);
    }

    fn too_many_host_devices_are_refused_and_neither_abort_nor_take_long(
        ACCELERATOR_HOST_DEVICES = "4294967295", ACCELERATOR_BACKEND = "host"
    ) {
        let started = Instant::now();
        assert_eq!((device_count(), is_available()), (0, false));
        let error = Buffer::allocate(1, None).unwrap_err().to_string();
        let expected = "ACCELERATOR_HOST_DEVICES must be a number of devices up to 128, but is \"4294967295\"";
        assert!(error.contains(expected), "{error}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }

    fn one_host_device_too_many_is_refused(ACCELERATOR_HOST_DEVICES = "129", ACCELERATOR_BACKEND = "host") {
        assert!(!is_available());
        assert!(Buffer::allocate(1, None).unwrap_err().to_string().contains("up to 128"));
    }

    fn too_many_streams_are_an_error_and_do_not_abort() {
        let device = accelerator::typed::<Host>(0)?;
        let refused = (0..20_000).find_map(|_| device.dedicated_stream(0).err()).unwrap().to_string();
        assert!(refused.contains("already has 4,096 host streams"), "{refused}");
        device.synchronize()?;
    }

    fn streams_of_devices_that_are_gone_count_no_more() {
        let started = Instant::now();
        for _ in 0..3 {
            let (host, mut streams) = (Host::new(0, MIB), 0);
            while streams < 3000 {
                match host.stream(StreamKind::Default) {
                    Ok(_) => streams += 1,
                    // Threads of the previous device are still exiting.
                    Err(_) => assert!(started.elapsed() < Duration::from_secs(60)),
                }
            }
        }
    }

    fn without_a_device_nothing_panics(ACCELERATOR_HOST_DEVICES = "0", ACCELERATOR_BACKEND = "host") {
        assert_eq!((device_count(), is_available()), (0, false));
        assert_eq!(current_accelerator(), Some(HOST), "the backend is in the build");
        assert_eq!(current_accelerator().filter(|_| is_available()), None);
        set_device_index(-1)?;
        assert!(memory_stats(None)?.is_empty());
        memory::empty_cache()?;
        synchronize(None)?;
        drop(DeviceIndexGuard::new(None)?);
        for error in [
            current_device_index().err(),
            set_device_index(0).err(),
            memory_stats("host:0").err(),
            current_stream(None).err(),
            Buffer::allocate(1, None).err(),
            Stream::new(None).err(),
            Event::new().record(None).err(),
            get_device_capability(None).err(),
            memory::get_memory_info(None).err(),
            set_accelerator("host").err(),
            DeviceIndexGuard::new(Some(0)).err(),
        ] {
            assert!(matches!(error, Some(Error::NoAccelerator { .. })), "{error:?}");
            assert!(error.unwrap().to_string().contains("ACCELERATOR_HOST_DEVICES is 0"));
        }
    }

    fn without_any_device_the_first_backend_is_current(ACCELERATOR_HOST_DEVICES = "0") {
        let first = accelerator::backends().swap_remove(0);
        assert_eq!(current_accelerator(), Some(first.kind));
        assert_eq!((is_available(), device_count()), (false, 0));
        let (error, reason) = (Buffer::allocate(1, None).unwrap_err(), first.devices.unwrap_err().reason);
        assert!(error.to_string().contains(&reason), "expected `{reason}` in `{error}`");
    }

    fn opencl_without_a_driver_says_so_at_once(ACCELERATOR_BACKEND = "opencl") {
        let started = Instant::now();
        assert!(!is_available());
        assert_eq!(current_accelerator(), Some(OPENCL));
        assert!(memory_stats(None)?.is_empty());
        let error = Buffer::allocate(1, None).unwrap_err();
        assert!(matches!(error, Error::NoAccelerator { .. }), "{error:?}");
        assert!(error.to_string().contains("OpenCL loader"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());

        set_accelerator("host")?;
        assert_eq!(device_count(), 3);
        assert!(set_accelerator("opencl").is_err());
        assert_eq!(device_count(), 3, "a failing call changes nothing");
    }

    fn xpu_without_a_driver_says_so_at_once(ACCELERATOR_BACKEND = "xpu") {
        let started = Instant::now();
        assert!(!is_available());
        assert_eq!(current_accelerator(), Some(XPU));
        assert!(memory_stats(None)?.is_empty());
        let error = Buffer::allocate(1, None).unwrap_err();
        assert!(matches!(error, Error::NoAccelerator { .. }), "{error:?}");
        // This applies whether or not the machine has a loader.
        assert!(error.to_string().contains("install the loader"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());

        set_accelerator("host")?;
        assert!(set_accelerator("xpu").is_err());
        assert_eq!(device_count(), 3, "a failing call changes nothing");
    }
}
