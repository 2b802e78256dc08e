use std::time::{Duration, Instant};

/// The shortest duration of a batch, so that reading the clock does not matter.
const BATCH: Duration = Duration::from_micros(50);
const MOST_IN_BATCH: u32 = 4096;

/// How often to measure: until there are enough samples, or until the time is up.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    pub(super) samples: usize,
    pub(super) time: Duration,
}

impl Effort {
    pub(super) fn new(quick: bool) -> Self {
        match quick {
            true => Self { samples: 31, time: Duration::from_millis(100) },
            false => Self { samples: 201, time: Duration::from_secs(1) },
        }
    }

    /// Returns the median time of an operation in nanoseconds. A first run is not counted.
    ///
    /// # Errors
    /// Errors of the operation.
    pub(super) fn median_ns<E>(self, mut operation: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
        operation()?;
        let mut batch = 1;
        while batch < MOST_IN_BATCH && batch_of(batch, &mut operation)? < BATCH {
            batch *= 2;
        }
        self.median(|| Ok(batch_of(batch, &mut operation)?.as_nanos() as f64 / f64::from(batch)))
    }

    /// Returns the median of the samples.
    ///
    /// # Errors
    /// Errors of a sample.
    pub(super) fn median<E>(self, mut sample: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
        let started = Instant::now();
        let mut samples = vec![sample()?];
        while samples.len() < self.samples && started.elapsed() < self.time {
            samples.push(sample()?);
        }
        samples.sort_by(f64::total_cmp);
        Ok(samples[samples.len() / 2])
    }

    /// Returns the shortest time of an operation. A first run is not counted.
    ///
    /// # Errors
    /// Errors of the operation.
    pub(super) fn least<E>(self, mut operation: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
        operation()?;
        let (started, mut least) = (Instant::now(), Duration::MAX);
        for sample in 0..self.samples {
            if sample > 0 && started.elapsed() > self.time {
                break;
            }
            let start = Instant::now();
            operation()?;
            least = least.min(start.elapsed());
        }
        Ok(least)
    }
}

fn batch_of<E>(count: u32, operation: &mut impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    (0..count).try_for_each(|_| operation())?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn times_are_those_of_one_operation() {
        let effort = Effort { samples: 5, time: Duration::from_secs(1) };
        let sleep = || -> Result<(), Infallible> {
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        };
        let Ok(median) = effort.median_ns(sleep);
        let Ok(least) = effort.least(sleep);
        assert!((2e6..1e8).contains(&median), "{median}");
        assert!((2..100).contains(&least.as_millis()), "{least:?}");
        assert_eq!(effort.median_ns(|| Err::<(), _>("no")), Err("no"));
    }
}
