//! Device arguments, good and bad.

use accelerator::memory::memory_stats;
use accelerator::{
    Buffer, Device, DeviceArg, DeviceKind, Error, Stream, current_device_index, current_stream,
    set_device_index, synchronize,
};
use accelerator_conformance::Sim;

use crate::process::{host, processes};

processes! { on_host:
    fn a_device_is_named_in_many_ways() {
        set_device_index(1)?;
        let name = String::from("host:1");
        let device = DeviceArg::from(host(1));
        for stream in [
            current_stream(None)?,
            current_stream(1)?,
            current_stream(1_u8)?,
            current_stream(1_usize)?,
            current_stream("1")?,
            current_stream("host")?,
            current_stream(&name)?,
            current_stream(device)?,
            current_stream(Some(device))?,
        ] {
            assert_eq!(stream.device(), host(1));
        }
    }

    fn a_device_of_another_type_is_an_error_that_names_both() {
        for error in [
            set_device_index("cuda:1").unwrap_err(),
            memory_stats("cuda:1").unwrap_err(),
            synchronize("cuda:1").unwrap_err(),
            Stream::new("cuda:1", 0).unwrap_err(),
            Buffer::allocate(1, Device { kind: DeviceKind::new("cuda"), index: 1 }).unwrap_err(),
        ] {
            assert!(matches!(error, Error::DeviceKindMismatch { expected: "host", .. }), "{error:?}");
            let text = "the current accelerator is host, but the device given is cuda:1";
            assert_eq!(error.to_string(), text);
        }
        let error = accelerator::typed::<Sim>(0).unwrap_err();
        assert!(error.to_string().contains("host") && error.to_string().contains("sim"), "{error}");
        assert_eq!(current_device_index()?, 0);
    }

    fn bad_device_arguments_are_typed_errors() {
        let error = memory_stats("host:3").unwrap_err();
        assert!(matches!(error, Error::InvalidDevice { kind: "host", index: 3, count: 3 }), "{error:?}");
        assert_eq!(error.to_string(), "host device 3 does not exist: there are 3, numbered from 0");
        assert!(matches!(set_device_index(u64::MAX), Err(Error::InvalidDevice { .. })));
        for text in ["", "host:", "host:-1", "host 1", "HOST", "host:1:1", "host:99999999999999999999"] {
            let error = current_stream(text).unwrap_err();
            assert!(matches!(&error, Error::InvalidDeviceName { text: told } if told == text), "{error:?}");
        }
    }
}
