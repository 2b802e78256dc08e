use accelerator::{Buffer, Result};
use accelerator_tracker::tracker::scope;

use crate::operators::{Operators, buffer, floats};
use crate::spirals::{Noise, SPIRALS, Spirals};

/// Layers one behind the other, with a rectifier between two.
pub(crate) struct Network {
    layers: Vec<Layer>,
    step: i32,
}

struct Layer {
    inputs: usize,
    outputs: usize,
    weights: Parameter,
    bias: Parameter,
}

/// A parameter, and what Adam remembers of its gradients.
struct Parameter {
    value: Buffer,
    mean: Buffer,
    square: Buffer,
}

/// Of one layer.
pub(crate) struct Gradients {
    weights: Buffer,
    bias: Buffer,
}

impl Network {
    /// With so many values between layers.
    pub(crate) fn new(widths: &[usize]) -> Result<Self> {
        let mut noise = Noise(1);
        let layers = widths.windows(2).map(|pair| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let scale = (2.0 / inputs as f32).sqrt();
            let weights: Vec<f32> = (0..inputs * outputs).map(|_| scale * noise.next()).collect();
            let (weights, bias) = (Parameter::new(&weights)?, Parameter::new(&vec![0.0; outputs])?);
            Ok(Layer { inputs, outputs, weights, bias })
        });
        Ok(Self { layers: layers.collect::<Result<_>>()?, step: 0 })
    }

    /// The scores of all points, and what the layers before the last gave, for the way back.
    pub(crate) fn forward(
        &self,
        operators: &Operators<'_>,
        points: &Buffer,
    ) -> Result<(Buffer, Vec<Buffer>)> {
        let mut hidden: Vec<Buffer> = Vec::new();
        loop {
            let number = hidden.len();
            let (layer, x) = (&self.layers[number], hidden.last().unwrap_or(points));
            let _module = scope(&format!("layers.{number}.forward"));
            let y = operators.addmm(x, &layer.weights.value, &layer.bias.value, layer.inputs)?;
            if number + 1 == self.layers.len() {
                return Ok((y, hidden));
            }
            hidden.push(operators.relu(&y)?);
        }
    }

    /// The gradients of all layers, the last layer's first. What the way back is past is freed.
    pub(crate) fn backward(
        &self,
        operators: &Operators<'_>,
        mut gradient: Buffer,
        mut hidden: Vec<Buffer>,
        points: &Buffer,
    ) -> Result<Vec<Gradients>> {
        let mut gradients = Vec::new();
        for (number, layer) in self.layers.iter().enumerate().rev() {
            let _module = scope(&format!("layers.{number}.backward"));
            let x = hidden.last().unwrap_or(points);
            let weights = operators.weight_gradient(x, &gradient, layer.inputs, layer.outputs)?;
            let bias = operators.bias_gradient(&gradient, layer.outputs)?;
            gradients.push(Gradients { weights, bias });
            if let Some(x) = hidden.pop() {
                let after = operators.input_gradient(&gradient, &layer.weights.value, layer.inputs)?;
                gradient = operators.relu_backward(&after, &x)?;
            }
        }
        Ok(gradients)
    }

    pub(crate) fn update(&mut self, operators: &Operators<'_>, gradients: &[Gradients]) -> Result<()> {
        let _module = scope("optimizer");
        self.step += 1;
        for (layer, gradients) in self.layers.iter_mut().rev().zip(gradients) {
            layer.weights.update(operators, &gradients.weights, self.step)?;
            layer.bias.update(operators, &gradients.bias, self.step)?;
        }
        Ok(())
    }

    /// The share of points for which the spiral that they are on has the highest score.
    pub(crate) fn accuracy(&self, operators: &Operators<'_>, spirals: &Spirals) -> Result<f32> {
        let scores = self.forward(operators, &spirals.points)?.0.to_vec::<f32>()?;
        let labels = spirals.labels.to_vec::<u32>()?;
        let right = scores.chunks_exact(SPIRALS).zip(&labels).filter(|(scores, label)| {
            let highest = scores.iter().copied().fold(f32::MIN, f32::max);
            scores[**label as usize] == highest
        });
        Ok(right.count() as f32 / spirals.count as f32)
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
