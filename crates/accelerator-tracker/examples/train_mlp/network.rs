use accelerator::{Buffer, Result};
use accelerator_tracker::tracker::{scope, scope_absolute};

use crate::layers::{Gradients, Linear};
use crate::operators::Operators;
use crate::spirals::{Noise, SPIRALS, Spirals};

/// Nested modules: a linear layer `stem`, residual blocks `blocks.0` and so on, and a linear layer `head`.
pub(crate) struct Network {
    stem: Linear,
    blocks: Vec<Block>,
    head: Linear,
    step: i32,
}

/// Two linear layers with a rectifier between them: `x + fc2(relu(fc1(x)))`.
struct Block {
    name: String,
    fc1: Linear,
    fc2: Linear,
}

/// The activations that the forward pass keeps for the backward pass.
pub(crate) struct Activations {
    blocks: Vec<BlockActivations>,
    /// The input of the head.
    last: Buffer,
}

struct BlockActivations {
    x: Buffer,
    hidden: Buffer,
}

impl Network {
    /// Creates a network whose layers between `stem` and `head` have `width` values for each point.
    pub(crate) fn new(width: usize, blocks: usize) -> Result<Self> {
        let mut noise = Noise(1);
        let stem = Linear::new("stem".to_owned(), 2, width, &mut noise)?;
        let blocks = (0..blocks).map(|number| Block::new(format!("blocks.{number}"), width, &mut noise));
        let blocks = blocks.collect::<Result<_>>()?;
        let head = Linear::new("head".to_owned(), width, SPIRALS, &mut noise)?;
        Ok(Self { stem, blocks, head, step: 0 })
    }

    /// Returns the scores of all points, and the activations that the backward pass needs.
    pub(crate) fn forward(&self, operators: &Operators<'_>, points: &Buffer) -> Result<(Buffer, Activations)> {
        let mut x = self.stem.forward(operators, points)?;
        let mut blocks = Vec::new();
        for block in &self.blocks {
            let (y, activations) = block.forward(operators, x)?;
            blocks.push(activations);
            x = y;
        }
        let scores = self.head.forward(operators, &x)?;
        Ok((scores, Activations { blocks, last: x }))
    }

    /// Returns the gradients of all layers, the last layer's first. Activations are freed as soon as they are no longer
    /// needed.
    pub(crate) fn backward(
        &self,
        operators: &Operators<'_>,
        gradient: Buffer,
        activations: Activations,
        points: &Buffer,
    ) -> Result<Vec<Gradients>> {
        let Activations { blocks, last } = activations;
        let mut gradients = vec![self.head.backward(operators, &last, &gradient)?];
        drop(last);
        let mut gradient = self.head.input_gradient(operators, &gradient)?;
        for (block, activations) in self.blocks.iter().zip(blocks).rev() {
            gradient = block.backward(operators, gradient, activations, &mut gradients)?;
        }
        gradients.push(self.stem.backward(operators, points, &gradient)?);
        Ok(gradients)
    }

    /// Updates the parameters with the gradients of [`backward`](Self::backward).
    pub(crate) fn update(&mut self, operators: &Operators<'_>, gradients: &[Gradients]) -> Result<()> {
        let _module = scope("optimizer");
        self.step += 1;
        let blocks = self.blocks.iter_mut().flat_map(|block| [&mut block.fc1, &mut block.fc2]);
        let layers = [&mut self.stem].into_iter().chain(blocks).chain([&mut self.head]);
        for (layer, gradients) in layers.zip(gradients.iter().rev()) {
            layer.update(operators, gradients, self.step)?;
        }
        Ok(())
    }

    /// Returns the share of points for which the correct spiral has the highest score.
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

impl Block {
    fn new(name: String, width: usize, noise: &mut Noise) -> Result<Self> {
        let fc1 = Linear::new(format!("{name}.fc1"), width, width, noise)?;
        let fc2 = Linear::new(format!("{name}.fc2"), width, width, noise)?;
        Ok(Self { name, fc1, fc2 })
    }

    fn forward(&self, operators: &Operators<'_>, x: Buffer) -> Result<(Buffer, BlockActivations)> {
        // The layers have their own full names: `blocks.0.fc1.forward`, not `blocks.0.forward.fc1.forward`.
        let _module = scope_absolute(&format!("{}.forward", self.name));
        let hidden = operators.relu(&self.fc1.forward(operators, &x)?)?;
        let y = operators.add(&x, &self.fc2.forward(operators, &hidden)?)?;
        Ok((y, BlockActivations { x, hidden }))
    }

    /// Returns the gradient of the inputs. Adds the gradients of the parameters to `gradients`, the last layer's first.
    fn backward(
        &self,
        operators: &Operators<'_>,
        gradient: Buffer,
        BlockActivations { x, hidden }: BlockActivations,
        gradients: &mut Vec<Gradients>,
    ) -> Result<Buffer> {
        let _module = scope_absolute(&format!("{}.backward", self.name));
        gradients.push(self.fc2.backward(operators, &hidden, &gradient)?);
        let inner = operators.relu_backward(&self.fc2.input_gradient(operators, &gradient)?, &hidden)?;
        drop(hidden);
        gradients.push(self.fc1.backward(operators, &x, &inner)?);
        drop(x);
        operators.add(&gradient, &self.fc1.input_gradient(operators, &inner)?)
    }
}
