//! The current accelerator, and its devices.

use accelerator::{
    Device, DeviceArg, DeviceIndexGuard, DeviceKind, Error, Result, backends, current_accelerator,
    current_device_index, current_stream, device_count, device_index, exchange_device_index, get_device_capability,
    get_device_properties, is_available, set_accelerator, set_device_index, set_stream, synchronize,
};

pub(crate) fn run() -> Result<()> {
    accelerators()?;
    ways_to_name_a_device()?;
    current_devices()?;

    assert!(get_device_capability(None)?.supported_dtypes.contains(&"float32"));
    assert!(get_device_properties(0)?.total_memory > 0);
    let stream = current_stream(None)?;
    set_stream(&stream)?;
    assert_eq!(current_stream(0)?, stream);
    synchronize(None)
}

fn accelerators() -> Result<()> {
    assert!(matches!(set_accelerator("abacus"), Err(Error::UnknownBackend { .. })));
    assert_eq!(current_accelerator(), Some(DeviceKind::new("host")));
    assert_eq!(current_accelerator().filter(|_| is_available()), current_accelerator());
    assert!(is_available() && device_count() > 0);
    let host = backends().into_iter().find(|backend| Some(backend.kind) == current_accelerator());
    assert_eq!(host.map(|host| host.devices), Some(Ok(device_count())));
    Ok(())
}

fn ways_to_name_a_device() -> Result<()> {
    let kind: DeviceKind = "host".parse()?;
    let device: Device = "host:0".parse()?;
    assert_eq!((device.kind, device.index, device.to_string()), (kind, 0, "host:0".to_owned()));
    let (index, name): (Option<u32>, Option<&str>) = (None, Some("host"));
    for stream in [
        current_stream(None)?,
        current_stream(0)?,
        current_stream(index)?,
        current_stream("host:0")?,
        current_stream(String::from("host"))?,
        current_stream(kind)?,
        current_stream(device)?,
        current_stream(DeviceArg::or_current(name))?,
    ] {
        assert_eq!(stream.device(), device);
    }
    assert!(matches!(current_stream("cuda:0"), Err(Error::DeviceKindMismatch { .. })));
    Ok(())
}

fn current_devices() -> Result<()> {
    set_device_index(0)?;
    set_device_index(-1)?; // does nothing
    assert!(matches!(set_device_index(None), Err(Error::DeviceIndexRequired { .. })));
    assert_eq!(current_device_index()?, 0);
    #[expect(deprecated, reason = "PyTorch also has the old names")]
    let index = accelerator::set_device_idx(0).and_then(|()| accelerator::current_device_idx())?;
    assert_eq!(index, 0);
    let last = device_count() - 1;
    assert_eq!(exchange_device_index(last)?, 0);
    {
        let _guard: DeviceIndexGuard = device_index(0)?;
        assert_eq!(current_device_index()?, 0);
    }
    assert_eq!(exchange_device_index(0)?, last);
    Ok(())
}
