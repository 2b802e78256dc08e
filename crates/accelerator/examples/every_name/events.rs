//! Events.

use accelerator::host::Host;
use accelerator::{Error, Event, EventFlags, Result, current_stream};

pub(crate) fn run() -> Result<()> {
    let [start, end] = [(); 2].map(|()| Event::with_flags(EventFlags::TIMING));
    assert_eq!((start.device(), start.event_id()), (None, 0));
    let stream = current_stream(None)?;
    start.record(None)?;
    end.record(Some(&stream))?;
    end.wait(None)?;
    end.synchronize()?;
    assert!(start.query()? && end.query()?);
    assert!(start.elapsed_time(&end)? >= 0.0);
    assert_eq!(start.device(), Some(stream.device()));
    assert_ne!(start.event_id(), 0);
    let native = start.typed::<Host>()?.and_then(|event| event.native());
    assert!(native.is_some());

    let plain = Event::new();
    plain.record(None)?;
    assert!(matches!(plain.elapsed_time(&end), Err(Error::ElapsedTime(_))));
    let interprocess = Event::with_flags(EventFlags { interprocess: true, ..EventFlags::default() });
    assert!(matches!(interprocess.record(None), Err(Error::Driver { .. })), "the host has no such events");
    let blocking = Event::with_flags(EventFlags { blocking: true, ..EventFlags::default() });
    blocking.record(None)?;
    blocking.synchronize()
}
