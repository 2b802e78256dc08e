use accelerator_core::{Accelerator, Backend, Result, Stream};

use super::report::{Checked, Outcome};
use crate::backends::Launch;
use crate::markdown::Table;

/// One float, sizes that are not multiples of a thread block, and one that occupies every multiprocessor.
const ELEMENTS: [usize; 4] = [1, 1000, (1 << 20) + 1, 1 << 24];
const A: f32 = 3.0;

/// Launches the kernel on our buffers and streams, and compares the result with the host's.
pub(super) fn check<B: Backend>(accelerator: &'static Accelerator<B>, saxpy: Option<&Launch<B>>) -> Checked {
    let Some(saxpy) = saxpy else {
        return Ok(Outcome::NotRun("this backend has no kernels".to_owned()));
    };
    let streams = [("the default stream", accelerator.default_stream()), ("a second stream", accelerator.stream(0)?)];
    let mut table = Table::new(["saxpy, floats", "wrong on the default stream", "wrong on a second stream"]);
    let mut wrong = Vec::new();
    for elements in ELEMENTS {
        let mut row = vec![elements.to_string()];
        for (name, stream) in streams {
            let counted = differing(accelerator, saxpy, elements, stream);
            row.push(counted.as_ref().map_or_else(|_| "error".to_owned(), usize::to_string));
            match counted {
                Ok(0) => {}
                Ok(count) => wrong.push(format!("{count} of {elements} elements are wrong on {name}")),
                Err(error) => wrong.push(format!("{elements} elements on {name}: {error}")),
            }
        }
        table.add(row);
    }
    wrong.extend(accelerator.allocator().empty_cache().err().map(|error| error.to_string()));
    Ok(Outcome::of(table.to_string(), wrong))
}

fn differing<B: Backend>(
    accelerator: &'static Accelerator<B>,
    saxpy: &Launch<B>,
    elements: usize,
    stream: Stream<B>,
) -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
    // Integers below 2²⁴ are exact, whether or not a device fuses multiplication and addition.
    let x: Vec<f32> = (0..elements).map(|i| (i % 1000) as f32).collect();
    let y: Vec<f32> = (0..elements).map(|i| (i % 777 + 1) as f32).collect();
    let size = size_of_val(x.as_slice()) as u64;
    let default = accelerator.default_stream();
    let (mut of_x, mut of_y) = (accelerator.allocate(size, default)?, accelerator.allocate(size, default)?);
    of_x.slice_mut()?.write(&x, stream)?;
    of_y.slice_mut()?.write(&y, stream)?;
    saxpy(A, &of_x, &mut of_y, stream)?;
    drop(of_x); // its memory is not reused before the kernel is done
    let found: Vec<f32> = of_y.slice()?.to_vec(stream)?;
    let expected = x.iter().zip(&y).map(|(x, y)| A * x + y);
    Ok(found.iter().zip(expected).filter(|(found, expected)| **found != *expected).count())
}

#[cfg(test)]
mod tests {
    use accelerator_conformance::{AnyBackend, Faulty};
    use accelerator_core::{AllocatorConfig, Buffer, GIB};
    use accelerator_host::Host;

    use super::*;

    fn on_the_host(
        a: f32,
        x: &Buffer<AnyBackend>,
        y: &mut Buffer<AnyBackend>,
        stream: Stream<AnyBackend>,
    ) -> crate::Launched {
        let x: Vec<f32> = x.slice()?.to_vec(stream)?;
        let mut sum: Vec<f32> = y.slice()?.to_vec(stream)?;
        sum.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
        Ok(y.slice_mut()?.write(&sum, stream)?)
    }

    fn check_with(saxpy: &Launch<AnyBackend>) -> Outcome {
        let host = Accelerator::new(AnyBackend::new(Host::new(0, GIB)), 0, AllocatorConfig::default()).unwrap();
        check(host, Some(saxpy)).unwrap()
    }

    #[test]
    fn a_kernel_that_does_nothing_or_refuses_is_found() {
        assert!(matches!(check_with(&on_the_host), Outcome::Passed(_)));
        let Outcome::Failed(_, wrong) = check_with(&|_, _, _, _| Ok(())) else { panic!("it did nothing") };
        assert_eq!(wrong.len(), 6, "x is 0 where there is one element: {wrong:?}");
        assert_eq!(wrong[0], "999 of 1000 elements are wrong on the default stream");
        let Outcome::Failed(_, wrong) = check_with(&|_, _, _, _| Err("no".into())) else { panic!("it refused") };
        assert_eq!((wrong.len(), wrong[0].as_str()), (8, "1 elements on the default stream: no"));
    }

    #[test]
    fn a_device_that_is_lost_on_the_way_is_reported_beside_other_failures() {
        let device = Accelerator::new(Faulty::new(Host::new(0, GIB)), 0, AllocatorConfig::default()).unwrap();
        let lose: &Launch<Faulty<Host>> = &|_, _, _, stream| {
            stream.backend().set_lost(true);
            Ok(())
        };
        let Outcome::Failed(_, wrong) = check(device, Some(lose)).unwrap() else { panic!("it is lost") };
        assert!(wrong.len() >= 8 && wrong[0].starts_with("1 elements on the default stream: "), "{wrong:?}");
    }
}
