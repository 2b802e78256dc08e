use accelerator::host::{self, Host, KernelArgs};
use accelerator::{Buffer, Result, current_stream};
use accelerator_tracker::MemoryTracker;
use accelerator_tracker::tracker::Feed;

use crate::spirals::SPIRALS;

/// The operators of the network. Each allocates its result, launches a kernel, and is recorded under its name.
pub(crate) struct Operators<'a> {
    stream: accelerator::core::Stream<Host>,
    tracker: &'a MemoryTracker,
    feed: Feed,
}

impl<'a> Operators<'a> {
    pub(crate) fn new(tracker: &'a MemoryTracker, feed: Feed) -> Result<Self> {
        Ok(Self { stream: current_stream(None)?.typed()?, tracker, feed })
    }

    /// Computes `x · weights + bias`, for each row of `x`.
    pub(crate) fn addmm(&self, x: &Buffer, weights: &Buffer, bias: &Buffer, inputs: usize) -> Result<Buffer> {
        let outputs = floats(bias);
        let mut y = buffer(floats(x) / inputs * outputs)?;
        let args = (slice(x)?, slice(weights)?, slice(bias)?, slice_mut(&mut y)?);
        self.launch("addmm", args, move |(x, weights, bias, y)| {
            for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
                y.copy_from_slice(bias);
                accumulate(y, x, weights);
            }
        })?;
        Ok(y)
    }

    pub(crate) fn relu(&self, x: &Buffer) -> Result<Buffer> {
        let mut y = buffer(floats(x))?;
        self.launch("relu", (slice(x)?, slice_mut(&mut y)?), |(x, y)| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x.max(0.0));
        })?;
        Ok(y)
    }

    pub(crate) fn add(&self, a: &Buffer, b: &Buffer) -> Result<Buffer> {
        let mut sum = buffer(floats(a))?;
        self.launch("add", (slice(a)?, slice(b)?, slice_mut(&mut sum)?), |(a, b, sum)| {
            sum.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum = a + b);
        })?;
        Ok(sum)
    }

    /// Computes the gradient of the mean cross entropy of all rows, for each score.
    pub(crate) fn cross_entropy_gradient(&self, scores: &Buffer, labels: &Buffer) -> Result<Buffer> {
        let mut gradient = buffer(floats(scores))?;
        let args = (slice(scores)?, labels.typed::<Host>()?.slice::<u32>()?, slice_mut(&mut gradient)?);
        self.launch("cross_entropy_backward", args, |(scores, labels, gradient)| {
            let rows = scores.chunks_exact(SPIRALS).zip(gradient.chunks_exact_mut(SPIRALS));
            for ((scores, gradient), label) in rows.zip(labels) {
                let largest = scores.iter().copied().fold(f32::MIN, f32::max);
                let sum: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
                for (place, (score, gradient)) in scores.iter().zip(gradient).enumerate() {
                    let right = if place == *label as usize { 1.0 } else { 0.0 };
                    *gradient = ((score - largest).exp() / sum - right) / labels.len() as f32;
                }
            }
        })?;
        Ok(gradient)
    }

    /// Computes the gradient of the inputs of a [`relu`](Self::relu) whose results were `y`.
    pub(crate) fn relu_backward(&self, gradient: &Buffer, y: &Buffer) -> Result<Buffer> {
        let mut before = buffer(floats(y))?;
        self.launch(
            "threshold_backward",
            (slice(gradient)?, slice(y)?, slice_mut(&mut before)?),
            |(after, y, before)| {
                for ((before, after), y) in before.iter_mut().zip(after).zip(y) {
                    *before = if *y > 0.0 { *after } else { 0.0 };
                }
            },
        )?;
        Ok(before)
    }

    /// Computes the gradient of the inputs of an [`addmm`](Self::addmm): `gradient · weightsᵀ`.
    pub(crate) fn input_gradient(&self, gradient: &Buffer, weights: &Buffer, inputs: usize) -> Result<Buffer> {
        let outputs = floats(weights) / inputs;
        let mut result = buffer(floats(gradient) / outputs * inputs)?;
        let args = (slice(gradient)?, slice(weights)?, slice_mut(&mut result)?);
        self.launch("mm", args, move |(gradient, weights, result)| {
            for (gradient, result) in gradient.chunks_exact(outputs).zip(result.chunks_exact_mut(inputs)) {
                for (result, weights) in result.iter_mut().zip(weights.chunks_exact(outputs)) {
                    *result = gradient.iter().zip(weights).map(|(gradient, weight)| gradient * weight).sum();
                }
            }
        })?;
        Ok(result)
    }

    /// Computes the gradient of the weights of an [`addmm`](Self::addmm): `xᵀ · gradient`.
    pub(crate) fn weight_gradient(
        &self,
        x: &Buffer,
        gradient: &Buffer,
        inputs: usize,
        outputs: usize,
    ) -> Result<Buffer> {
        let mut result = buffer(inputs * outputs)?;
        self.launch("mm", (slice(x)?, slice(gradient)?, slice_mut(&mut result)?), move |(x, gradient, result)| {
            result.fill(0.0);
            for (x, gradient) in x.chunks_exact(inputs).zip(gradient.chunks_exact(outputs)) {
                for (x, result) in x.iter().zip(result.chunks_exact_mut(outputs)) {
                    result.iter_mut().zip(gradient).for_each(|(result, gradient)| *result += x * gradient);
                }
            }
        })?;
        Ok(result)
    }

    /// Computes the gradient of the bias: the sum of all rows.
    pub(crate) fn bias_gradient(&self, gradient: &Buffer, outputs: usize) -> Result<Buffer> {
        let mut result = buffer(outputs)?;
        self.launch("sum", (slice(gradient)?, slice_mut(&mut result)?), move |(gradient, result)| {
            result.fill(0.0);
            for row in gradient.chunks_exact(outputs) {
                result.iter_mut().zip(row).for_each(|(result, gradient)| *result += gradient);
            }
        })?;
        Ok(result)
    }

    /// Does one step of Adam.
    pub(crate) fn adam(
        &self,
        parameter: &mut Buffer,
        gradient: &Buffer,
        mean: &mut Buffer,
        square: &mut Buffer,
        step: i32,
    ) -> Result<()> {
        let args = (slice_mut(parameter)?, slice(gradient)?, slice_mut(mean)?, slice_mut(square)?);
        self.launch("adam", args, move |(parameter, gradient, mean, square)| {
            let (keep_mean, keep_square, rate) = (0.9_f32, 0.999_f32, 0.01_f32);
            let (mean_so_far, square_so_far) = (1.0 - keep_mean.powi(step), 1.0 - keep_square.powi(step));
            let moments = mean.iter_mut().zip(square);
            for ((parameter, gradient), (mean, square)) in parameter.iter_mut().zip(gradient).zip(moments) {
                *mean = keep_mean * *mean + (1.0 - keep_mean) * gradient;
                *square = keep_square * *square + (1.0 - keep_square) * gradient * gradient;
                *parameter -= rate * (*mean / mean_so_far) / ((*square / square_so_far).sqrt() + 1e-8);
            }
        })
    }

    /// Launches a kernel and records it. With an automatic feed the tracker records the launch under its name,
    /// otherwise this function does.
    fn launch<A: KernelArgs>(
        &self,
        name: &'static str,
        args: A,
        kernel: impl for<'k> FnOnce(A::Views<'k>) + Send + 'static,
    ) -> Result<()> {
        host::launch_named(name, self.stream, args, kernel)?;
        if self.feed == Feed::Explicit {
            self.tracker.operator(name);
        }
        Ok(())
    }
}

/// Adds `x · weights` to `y`.
fn accumulate(y: &mut [f32], x: &[f32], weights: &[f32]) {
    for (x, weights) in x.iter().zip(weights.chunks_exact(y.len())) {
        y.iter_mut().zip(weights).for_each(|(y, weight)| *y += x * weight);
    }
}

pub(crate) fn floats(buffer: &Buffer) -> usize {
    buffer.len() as usize / size_of::<f32>()
}

pub(crate) fn buffer(floats: usize) -> Result<Buffer> {
    Buffer::allocate((floats * size_of::<f32>()) as u64, None)
}

fn slice(buffer: &Buffer) -> Result<accelerator::core::Slice<'_, Host, f32>> {
    buffer.typed::<Host>()?.slice()
}

fn slice_mut(buffer: &mut Buffer) -> Result<accelerator::core::SliceMut<'_, Host, f32>> {
    buffer.typed_mut::<Host>()?.slice_mut()
}
