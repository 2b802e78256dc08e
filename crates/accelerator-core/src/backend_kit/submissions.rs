//! Work in the order of submission.

use std::collections::VecDeque;

use crate::types::{DriverError, DriverResult};

/// The submissions of a stream that may still run, oldest first.
///
/// `T` is what tells whether a submission has ended, with all that must live until then: an event of the driver, or the
/// value of a semaphore with the buffers of a copy. A stream has one list in a lock.
///
/// ```
/// use accelerator_core::backend_kit::Submissions;
/// use accelerator_core::{DriverError, DriverErrorKind};
///
/// let mut work = Submissions::new();
/// (1..=4).for_each(|number| work.push(number));
/// // The device has reached the third submission. The second one failed.
/// let fault = DriverError::new(DriverErrorKind::Other, "submit", 14, "EFAULT");
/// work.retire(|number| match number {
///     2 => Some(Err(fault)),
///     1 | 3 => Some(Ok(())),
///     _ => None,
/// });
/// assert!(work.iter().eq(&[4]));
/// // The failure is reported once, when the stream is synchronized.
/// assert_eq!(work.take_failure(), Err(fault));
/// assert_eq!(work.take_failure(), Ok(()));
/// ```
#[derive(Debug)]
pub struct Submissions<T> {
    running: VecDeque<T>,
    /// The first failure that has not been reported.
    failed: Option<DriverError>,
}

impl<T> Submissions<T> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self { running: VecDeque::new(), failed: None }
    }

    /// Adds a submission, after all others.
    pub fn push(&mut self, submission: T) {
        self.running.push_back(submission);
    }

    /// Drops submissions that have ended, up to the first one that has not. `outcome` returns how a submission ended,
    /// or `None` if it may still run. The first failure is kept for [`take_failure`](Self::take_failure).
    pub fn retire(&mut self, mut outcome: impl FnMut(&T) -> Option<DriverResult<()>>) {
        while self.pop_ended(&mut outcome).is_some() {}
    }

    /// Removes and returns the oldest submission if it has ended, to reuse its parts. Like [`retire`](Self::retire)
    /// otherwise.
    pub fn pop_ended(&mut self, outcome: impl FnOnce(&T) -> Option<DriverResult<()>>) -> Option<T> {
        let ended = self.running.front().and_then(outcome)?;
        self.failed = self.failed.or(ended.err());
        self.running.pop_front()
    }

    /// Returns the first failure since the last call, so that each is reported once.
    ///
    /// # Errors
    /// That failure.
    pub fn take_failure(&mut self) -> DriverResult<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Whether nothing has been submitted that was not retired.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the submissions that were not retired, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.running.iter()
    }
}

impl<T> Default for Submissions<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DriverErrorKind;

    fn error(code: i64) -> DriverError {
        DriverError::new(DriverErrorKind::Other, "submit", code, "failed")
    }

    #[test]
    fn submissions_are_retired_in_order_and_asked_no_further_than_the_first_that_runs() {
        let mut work = Submissions::new();
        (0..5).for_each(|number| work.push(number));
        let mut asked = Vec::new();
        work.retire(|number| {
            asked.push(*number);
            (*number != 2).then_some(Ok(()))
        });
        assert_eq!(asked, [0, 1, 2]);
        assert!(work.iter().eq(&[2, 3, 4]) && !work.is_empty());
        assert_eq!(work.pop_ended(|_| None), None);
        assert_eq!(work.pop_ended(|_| Some(Ok(()))), Some(2));
        work.retire(|_| Some(Ok(())));
        assert!(work.is_empty());
        assert_eq!(work.pop_ended(|_| Some(Ok(()))), None);
        assert_eq!(work.take_failure(), Ok(()));
    }

    #[test]
    fn the_first_failure_counts_until_it_is_taken() {
        let mut work = Submissions::new();
        [0, 7, 8, 0].into_iter().for_each(|code| work.push(code));
        work.retire(|code| Some(if *code == 0 { Ok(()) } else { Err(error(*code)) }));
        work.push(9);
        work.retire(|code| Some(Err(error(*code))));
        assert_eq!([work.take_failure(), work.take_failure()], [Err(error(7)), Ok(())]);
    }
}
