//! Valid and invalid device arguments.

use accelerator::host::Host;
use accelerator::{
    Accelerator, Buffer, Device, DeviceArg, DeviceIndexGuard, DeviceKind, Error, Stream, current_accelerator,
    current_device_index, current_stream, device_index, exchange_device_index, memory_allocated, memory_stats,
    set_accelerator, set_device_index, synchronize,
};
use accelerator_conformance::Sim;

use crate::process::{HOST, host, processes};

processes! { on_host:
    fn a_device_is_named_in_many_ways() {
        set_device_index(1)?;
        let (name, variable, device) = (String::from("host:1"), Some(1_u32), host(1));
        for stream in [
            current_stream(None)?,
            current_stream(1)?,
            current_stream(1_u8)?,
            current_stream(1_usize)?,
            current_stream(Some(1))?,
            current_stream(variable)?,
            current_stream("host")?,
            current_stream("host:1")?,
            current_stream(&name)?,
            current_stream(name)?,
            current_stream(device)?,
            current_stream(DeviceArg::from(&device))?,
            current_stream(current_accelerator().unwrap())?,
            current_stream(DeviceArg::or_current(Some("host:1")))?,
            current_stream(DeviceArg::or_current(None::<Device>))?,
        ] {
            assert_eq!(stream.device(), host(1));
        }
        assert_eq!(Buffer::allocate(4, current_accelerator().unwrap())?.device(), host(1));
    }

    fn a_device_of_another_type_is_an_error_that_names_both() {
        for error in [
            set_device_index("cuda:1").unwrap_err(),
            memory_stats("cuda:1").unwrap_err(),
            synchronize("cuda:1").unwrap_err(),
            Stream::new("cuda:1").unwrap_err(),
            device_index("cuda:1").unwrap_err(),
            Buffer::allocate(1, Device { kind: DeviceKind::new("cuda"), index: 1 }).unwrap_err(),
        ] {
            assert!(matches!(error, Error::DeviceKindMismatch { expected: HOST, .. }), "{error:?}");
            let text = "the current accelerator is host, but the device given is cuda:1";
            assert_eq!(error.to_string(), text);
        }
        for error in [memory_stats("cuda").unwrap_err(), memory_stats(DeviceKind::new("cuda")).unwrap_err()] {
            assert_eq!(error.to_string(), "the current accelerator is host, but the device given is cuda");
        }
        let error = accelerator::typed::<Sim>(0).unwrap_err();
        assert!(error.to_string().contains("host") && error.to_string().contains("sim"), "{error}");
        assert_eq!(current_device_index()?, 0);
    }

    fn bad_device_arguments_are_typed_errors() {
        let error = memory_stats("host:3").unwrap_err();
        assert!(matches!(error, Error::InvalidDevice { kind: HOST, index: 3, count: 3 }), "{error:?}");
        assert_eq!(error.to_string(), "host device 3 does not exist: there are 3, numbered from 0");
        assert!(matches!(set_device_index(u64::MAX), Err(Error::InvalidDevice { .. })));
        assert!(matches!(memory_stats(Some(3)), Err(Error::InvalidDevice { index: 3, .. })));
        for text in ["", "1", "host:", "host:-1", "host 1", "HOST", "host:1:1", "host:99999999999999999999"] {
            let error = current_stream(text).unwrap_err();
            assert!(matches!(&error, Error::InvalidDeviceName { text: told } if told == text), "{error:?}");
            let advice = "expected a kind such as `host`, or a kind and an index such as `host:1`";
            assert!(error.to_string().contains(advice), "{error}");
        }
    }

    fn setting_a_device_requires_an_index() {
        set_device_index(2)?;
        let kind = DeviceArg::from(HOST);
        for (given, device) in [("None", DeviceArg::Current), ("host", "host".into()), ("host", kind)] {
            let errors = [
                set_device_index(device.clone()).unwrap_err(),
                exchange_device_index(device.clone()).unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(error, Error::DeviceIndexRequired { kind: HOST, .. }), "{error:?}");
                let text = "a device index is required, such as 1 or `host:1`, but";
                assert_eq!(error.to_string(), format!("{text} `{given}` was given"));
            }
        }
        assert!(matches!(DeviceIndexGuard::new("host"), Err(Error::DeviceIndexRequired { .. })));
        assert!(matches!(set_device_index("cuda"), Err(Error::DeviceKindMismatch { .. })));
        assert_eq!(current_device_index()?, 2);
    }

    fn a_wrong_index_is_an_error_also_before_the_first_allocation() {
        assert!(matches!(memory_stats(99), Err(Error::InvalidDevice { index: 99, count: 3, .. })));
        assert!(matches!(memory_allocated(99), Err(Error::InvalidDevice { .. })));
        assert!((0..3).all(|index| Accelerator::<Host>::opened(index).is_none()), "none of this opens a device");
    }

    fn the_current_accelerator_names_its_devices() {
        set_accelerator("host")?;
        let kind: DeviceKind = "host".parse()?;
        assert_eq!(current_accelerator(), Some(kind));
        let device: Device = format!("{kind}:2").parse()?;
        let _guard = device_index(device)?;
        assert_eq!(current_stream(kind)?.device(), host(2));
    }
}
