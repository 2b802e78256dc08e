//! Streams.

use std::collections::HashSet;

use accelerator::host::Host;
use accelerator::{Error, Event, Result, Stream, StreamGuard, StreamId, current_stream};

pub(crate) fn run() -> Result<()> {
    let (default, side) = (current_stream(None)?, Stream::new(None)?);
    assert_eq!(default.id(), StreamId::DEFAULT);
    assert_eq!(side.device(), default.device());
    assert_eq!(Stream::with_priority("host", -1)?.priority(), 0, "the host has one priority");
    assert_eq!(Stream::from_id(0, side.id())?, side);
    assert!(matches!(Stream::from_id(0, StreamId::new(1_000_000)), Err(Error::UnknownStream { .. })));
    assert_eq!(HashSet::from([default, side, side]).len(), 2);

    {
        let _guard = StreamGuard::new(&side)?;
        assert_eq!(current_stream(None)?, side);
    }
    assert_eq!(current_stream(None)?, default);

    let event: Event = side.record_event()?;
    default.wait_event(&event)?;
    default.wait_stream(&side)?;
    side.record(&event)?;
    default.synchronize()?;
    side.synchronize()?;
    assert!(default.query()? && side.query()? && event.query()?);
    assert!(!side.is_capturing()?);
    assert!(!format!("{:?}", side.typed::<Host>()?.native()).is_empty());
    Ok(())
}
