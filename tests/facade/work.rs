//! Buffers, streams and events.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use accelerator::host::{self, Host};
use accelerator::{
    Accelerator, Buffer, DriverErrorKind, Error, Event, EventFlags, Stream, StreamGuard, StreamId, current_stream,
    get_device_capability, synchronize,
};
use accelerator_conformance::Sim;

use crate::process::{host, processes};

processes! { on_host:
    fn an_allocation_goes_to_the_current_stream_or_the_one_given() {
        let (side, other) = (Stream::new(0)?, Stream::new(1)?);
        assert_eq!(Buffer::allocate(1, None)?.stream_id(), StreamId::DEFAULT);
        let _guard = StreamGuard::new(&side)?;
        assert_eq!(Buffer::allocate(1, None)?.stream_id(), side.id());
        let buffer = Buffer::allocate_on(1, &other)?;
        assert_eq!((buffer.device(), buffer.stream_id()), (host(1), other.id()));
        assert!(matches!(buffer.record_stream(&side), Err(Error::DeviceMismatch { .. })));
        buffer.record_stream(&current_stream(1)?)?;
    }

    fn bytes_go_there_and_come_back() {
        let mut buffer = Buffer::allocate(12, None)?;
        buffer.fill(7)?;
        buffer.write(4, &[1, 2, 3, 4])?;
        let mut bytes = [0; 12];
        buffer.read(0, &mut bytes)?;
        assert_eq!(bytes, [7, 7, 7, 7, 1, 2, 3, 4, 7, 7, 7, 7]);
        assert_eq!(buffer.to_vec::<u32>()?, [0x0707_0707, 0x0403_0201, 0x0707_0707]);

        let mut view = buffer.slice_mut::<f32>()?;
        view.write(1, &[1.5, 2.5])?;
        assert_eq!(view.to_vec()?[1..], [1.5, 2.5]);
        let mut last = [0.0];
        buffer.slice::<f32>()?.read(2, &mut last)?;
        assert_eq!(last, [2.5]);

        assert!(matches!(buffer.write(9, &[0; 4]), Err(Error::OutOfBounds { offset: 9, len: 4, size: 12 })));
        assert!(matches!(buffer.read(u64::MAX, &mut [0; 4]), Err(Error::OutOfBounds { .. })));
        assert!(matches!(
            buffer.slice_mut::<u16>()?.write(usize::MAX, &[1]),
            Err(Error::OutOfBounds { .. })
        ));
        assert!(matches!(buffer.slice::<u64>(), Err(Error::ElementSize { size: 12, element: 8 })));
        assert!(matches!(buffer.slice::<()>(), Err(Error::ElementSize { size: 12, element: 0 })));
        assert!(Buffer::allocate(0, None)?.to_vec::<u64>()?.is_empty());
    }

    fn a_copy_between_devices_goes_through_the_host() {
        let numbers: Vec<u64> = (0..5_000_000).collect(); // more than one 16 MiB staging chunk
        let source = Buffer::from_slice(&numbers, 1)?;
        let mut same = Buffer::allocate(source.len(), 1)?;
        same.copy_from(&source)?;
        let mut other = Buffer::allocate(source.len() + 8, 2)?;
        other.fill(0xff)?;
        other.copy_from(&same)?;
        let copied = other.to_vec::<u64>()?;
        assert_eq!(copied[..numbers.len()], numbers);
        assert_eq!(copied[numbers.len()], u64::MAX);

        let mut short = Buffer::allocate(8, 0)?;
        short.fill(3)?;
        assert!(matches!(short.copy_from(&source), Err(Error::OutOfBounds { size: 8, .. })));
        assert_eq!(short.to_vec::<u8>()?, [3; 8]);
    }

    fn wait_stream_orders_two_streams() {
        let (side, current) = (Stream::new(None)?, current_stream(None)?);
        let mut buffer = Buffer::from_slice(&[0_u32], None)?;
        let (release, held) = mpsc::channel::<()>();
        host::launch(side.typed()?, buffer.typed_mut::<Host>()?.slice_mut::<u32>()?, move |elements| {
            held.recv().unwrap();
            elements[0] = 5;
        })?;
        let event = side.record_event()?;
        assert!(!side.query()? && !event.query()?);
        assert!(current.query()?);
        current.wait_stream(&side)?;
        assert!(!current.query()?);
        release.send(()).unwrap();
        assert_eq!(buffer.to_vec::<u32>()?, [5]);
        event.synchronize()?;
        side.synchronize()?;
        synchronize(None)?;
        assert!(side.query()? && event.query()? && current.query()?);
    }

    fn an_event_reaches_across_devices() {
        let event = Event::with_flags(EventFlags::TIMING);
        assert_eq!(event.device(), None);
        assert!(event.query()?);
        event.synchronize()?;
        event.wait(None)?;

        let away = Stream::new(1)?;
        let mut buffer = Buffer::allocate(1, 1)?;
        let slow = |_: &mut [u8]| thread::sleep(Duration::from_millis(50));
        host::launch(away.typed()?, buffer.typed_mut::<Host>()?.slice_mut::<u8>()?, slow)?;
        event.record(Some(&away))?;
        assert_eq!(event.device(), Some(host(1)));
        event.wait(None)?; // on the current stream of device 0
        assert!(event.query()?, "for a stream of another device the host waits");
        let error = event.record(None).unwrap_err();
        assert!(matches!(error, Error::DeviceMismatch { .. }), "{error:?}");
        assert!(error.to_string().contains("host:0") && error.to_string().contains("host:1"), "{error}");

        current_stream(None)?.wait_stream(&away)?;
        current_stream(None)?.wait_event(&event)?;

        let here = Event::with_flags(EventFlags::TIMING);
        here.record(None)?;
        synchronize(None)?;
        assert!(matches!(event.elapsed_time(&here), Err(Error::DeviceMismatch { .. })));
    }

    fn elapsed_time_and_its_errors() {
        let why = |start: &Event, end: &Event| start.elapsed_time(end).unwrap_err().to_string();
        let (start, end, untimed) = (Event::with_flags(EventFlags::TIMING), Event::with_flags(EventFlags::TIMING), Event::new());
        assert!(why(&start, &untimed).contains("timing enabled"));
        assert!(why(&start, &end).contains("recorded first"));
        start.record(None)?;
        untimed.record(None)?;
        assert!(why(&start, &end).contains("recorded first"));
        assert!(why(&start, &untimed).contains("timing enabled"));

        let mut buffer = Buffer::allocate(1, None)?;
        let (release, held) = mpsc::channel::<()>();
        let kernel = move |_: &mut [u8]| {
            held.recv().unwrap();
            thread::sleep(Duration::from_millis(20));
        };
        host::launch(current_stream(None)?.typed()?, buffer.typed_mut::<Host>()?.slice_mut::<u8>()?, kernel)?;
        end.record(None)?;
        assert!(why(&start, &end).contains("complete first"));
        release.send(()).unwrap();
        end.synchronize()?;
        assert!(start.elapsed_time(&end)? >= 20.0, "milliseconds");
        assert!(end.elapsed_time(&start)? <= -20.0);
    }

    fn a_plain_event_has_no_flags() {
        assert_eq!(Event::new().flags(), EventFlags::default());
        assert_eq!(Event::default().flags(), EventFlags::default());
        let EventFlags { enable_timing, blocking, interprocess } = Event::with_flags(EventFlags::TIMING).flags();
        assert_eq!((enable_timing, blocking, interprocess), (true, false, false));
    }

    fn events_do_what_their_flags_say_or_say_that_they_cannot() {
        let blocking = Event::with_flags(EventFlags { blocking: true, ..EventFlags::default() });
        blocking.record(None)?;
        blocking.synchronize()?;
        assert!(blocking.query()?);

        for flags in [EventFlags::default(), EventFlags::TIMING] {
            let interprocess = Event::with_flags(EventFlags { interprocess: true, ..flags });
            let error = interprocess.record(None).unwrap_err();
            let Error::Driver { source, .. } = &error else { panic!("{error:?}") };
            assert_eq!(source.kind, DriverErrorKind::Unsupported);
            assert!(error.to_string().contains("no interprocess events"), "{error}");
            assert!(interprocess.query()? && interprocess.event_id() == 0, "it was never recorded");
            assert_eq!(interprocess.device(), None);
        }
    }

    fn an_event_has_an_id_and_a_native_handle_once_it_is_recorded() {
        let (event, other) = (Event::new(), Event::new());
        assert_eq!(event.event_id(), 0);
        assert!(event.typed::<Host>()?.is_none());
        event.record(None)?;
        other.record(None)?;
        assert_ne!(event.event_id(), 0);
        assert_ne!(event.event_id(), other.event_id());
        let typed = event.typed::<Host>()?.unwrap();
        assert_eq!((typed.id(), typed.device()), (event.event_id(), host(0)));
        assert!(typed.native().is_some());
        assert!(matches!(event.typed::<Sim>(), Err(Error::DeviceMismatch { .. })));
    }

    fn a_stream_records_an_event_that_is_given() {
        let (side, event) = (Stream::new(1)?, Event::with_flags(EventFlags::TIMING));
        side.record(&event)?;
        assert_eq!(event.device(), Some(host(1)));
        event.synchronize()?;
        assert!(event.elapsed_time(&event)?.abs() < 1e-9);
        assert!(matches!(current_stream(0)?.record(&event), Err(Error::DeviceMismatch { .. })));
    }

    fn a_stream_is_found_by_its_number() {
        let stream = Stream::new(1)?;
        assert_eq!(Stream::from_id(1, stream.id())?, stream);
        assert_eq!(Stream::from_id(1, StreamId::new(stream.id().get()))?, stream);
        assert_eq!(Stream::from_id("host:2", StreamId::DEFAULT)?, current_stream(2)?);
        for number in [stream.id().get() + 1, u32::MAX] {
            let error = Stream::from_id(1, StreamId::new(number)).unwrap_err();
            assert!(matches!(error, Error::UnknownStream { stream, .. } if stream.get() == number), "{error:?}");
            assert!(error.to_string().starts_with(&format!("host:1 has no stream {number}: ")), "{error}");
        }
        assert!(matches!(Stream::from_id(9, StreamId::DEFAULT), Err(Error::InvalidDevice { .. })));
    }

    fn no_stream_of_the_host_captures() {
        assert!(!Stream::new(None)?.is_capturing()?);
    }

    fn a_stream_knows_itself() {
        let stream = Stream::with_priority("host:1", -5)?;
        assert_eq!(stream.device(), host(1));
        assert_eq!(stream.priority(), 0, "the host has one priority");
        assert_ne!(stream, Stream::new(1)?);
        assert_ne!(stream, Stream::new(2)?);
        assert!(matches!(stream.typed::<Sim>(), Err(Error::DeviceMismatch { .. })));
        assert_eq!(stream.typed::<Host>()?.id(), stream.id());
        assert!(std::ptr::eq(accelerator::typed::<Host>(1)?, Accelerator::<Host>::open(1)?));
        assert!(get_device_capability(1)?.supported_dtypes.contains(&"float32"));
    }
}
