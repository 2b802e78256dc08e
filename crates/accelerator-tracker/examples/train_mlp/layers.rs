use accelerator::{Buffer, Result};
use accelerator_tracker::tracker::scope_absolute;

use crate::operators::{Operators, buffer, floats};
use crate::spirals::Noise;

/// A linear layer, with its full name in the network, such as `blocks.0.fc1`.
pub(crate) struct Linear {
    name: String,
    inputs: usize,
    outputs: usize,
    weights: Parameter,
    bias: Parameter,
}

/// A parameter, and the moments of its gradients for Adam.
struct Parameter {
    value: Buffer,
    mean: Buffer,
    square: Buffer,
}

/// The gradients of the parameters of one layer.
pub(crate) struct Gradients {
    weights: Buffer,
    bias: Buffer,
}

impl Linear {
    pub(crate) fn new(name: String, inputs: usize, outputs: usize, noise: &mut Noise) -> Result<Self> {
        let scale = (1.0 / inputs as f32).sqrt();
        let weights: Vec<f32> = (0..inputs * outputs).map(|_| scale * noise.next()).collect();
        let (weights, bias) = (Parameter::new(&weights)?, Parameter::new(&vec![0.0; outputs])?);
        Ok(Self { name, inputs, outputs, weights, bias })
    }

    pub(crate) fn forward(&self, operators: &Operators<'_>, x: &Buffer) -> Result<Buffer> {
        let _module = scope_absolute(&format!("{}.forward", self.name));
        operators.addmm(x, &self.weights.value, &self.bias.value, self.inputs)
    }

    /// Returns the gradients of the parameters. `gradient` is the gradient of the result.
    pub(crate) fn backward(&self, operators: &Operators<'_>, x: &Buffer, gradient: &Buffer) -> Result<Gradients> {
        let _module = scope_absolute(&format!("{}.backward", self.name));
        let weights = operators.weight_gradient(x, gradient, self.inputs, self.outputs)?;
        let bias = operators.bias_gradient(gradient, self.outputs)?;
        Ok(Gradients { weights, bias })
    }

    /// Returns the gradient of the inputs. `gradient` is the gradient of the result.
    pub(crate) fn input_gradient(&self, operators: &Operators<'_>, gradient: &Buffer) -> Result<Buffer> {
        let _module = scope_absolute(&format!("{}.backward", self.name));
        operators.input_gradient(gradient, &self.weights.value, self.inputs)
    }

    pub(crate) fn update(&mut self, operators: &Operators<'_>, gradients: &Gradients, step: i32) -> Result<()> {
        self.weights.update(operators, &gradients.weights, step)?;
        self.bias.update(operators, &gradients.bias, step)
    }
}

impl Parameter {
    fn new(value: &[f32]) -> Result<Self> {
        let value = Buffer::from_slice(value, None)?;
        let (mut mean, mut square) = (buffer(floats(&value))?, buffer(floats(&value))?);
        mean.fill(0)?;
        square.fill(0)?;
        Ok(Self { value, mean, square })
    }

    fn update(&mut self, operators: &Operators<'_>, gradient: &Buffer, step: i32) -> Result<()> {
        operators.adam(&mut self.value, gradient, &mut self.mean, &mut self.square, step)
    }
}
