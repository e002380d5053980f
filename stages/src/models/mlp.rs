//! The multi-layer perceptron.

use super::model::{LayerSpec, Model};
use super::part::Part;
use crate::chain;
use crate::error::{Error, Result, check_positive};
use crate::layers::{Dropout, Flatten, Layout, Linear, OwnRows, Relu};
use crate::parameter::init::Init;
use crate::shards::Division;
use crate::stage::layer::Layer;

/// Linear layers with ReLU (and dropout) between them: `[batch, ..]` to `[batch, last size]`.
///
/// Parameters are as in PyTorch: `fc0.weight` `[out, in]` and `fc0.bias`, both uniform within `1 / sqrt(in)`.
/// Units: `flatten`, `fc0`, `relu0`, `fc1`, ... Shards have parts of the outputs of each linear layer.
/// Between these layers, each shard has its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// The widths, with input and output: `784, 128, 10`.
    pub sizes: Vec<usize>,
    /// The probability of dropout after each ReLU.
    pub dropout: f32,
    /// The seed of the starting weights and of dropout.
    pub seed: u64,
}

impl Mlp {
    /// The model, not yet split.
    ///
    /// # Errors
    /// When there are fewer than two sizes, a size is 0, or `dropout` is not in `0..1`.
    pub fn model(&self) -> Result<Model> {
        if self.sizes.len() < 2 {
            return Err(Error::new(format!(
                "sizes {:?} are too few: give the input's and the output's width at least",
                self.sizes
            )));
        }
        self.sizes.iter().try_for_each(|&size| check_positive(&[("a layer's size", size)]))?;
        Dropout::new("", self.dropout, self.seed)?;
        let width = self.sizes[0];
        let mut units = vec![LayerSpec::of_divided_parts("flatten", Vec::new(), move |sharding| {
            let mut layers: Vec<Box<dyn Layer>> = chain![Flatten::new("flatten")];
            if sharding.groups() > 1 {
                layers.push(Box::new(OwnRows::of_data("flatten.rows", width)));
            }
            Ok(layers)
        })];
        for (index, pair) in self.sizes.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let (name, seed) = (format!("fc{index}"), self.seed);
            let is_last = index + 2 == self.sizes.len();
            let mut parts = vec![Part::Linear([inputs, outputs], Layout::OutIn, true)];
            if !is_last {
                parts.push(Part::OwnRows);
            }
            units.push(LayerSpec::of_divided_parts(name.clone(), parts, move |sharding| {
                let division = Division::new(sharding, outputs, &[1])?;
                let linear = linear(&name, inputs, outputs, seed).with_divided_outputs(&division);
                let mut layers: Vec<Box<dyn Layer>> = chain![linear];
                if sharding.groups() > 1 && !is_last {
                    layers.push(Box::new(OwnRows::of_outputs(&format!("{name}.rows"), &division)));
                }
                Ok(layers)
            }));
            if !is_last {
                units.push(self.activation(index, outputs));
            }
        }
        Ok(Model::new(units).with_settings(format!("{self:?}")))
    }

    fn activation(&self, index: usize, width: usize) -> LayerSpec {
        let (name, dropout, seed) = (format!("relu{index}"), self.dropout, self.seed);
        let drops = (dropout > 0.0).then_some(Part::Dropout);
        let parts = [Part::Relu].into_iter().chain(drops).collect();
        let mut unit = LayerSpec::of_parts(name.clone(), parts, move || {
            let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(Relu::new(&name))];
            if dropout > 0.0 {
                layers.push(Box::new(Dropout::new(&format!("{name}.dropout"), dropout, seed)?));
            }
            Ok(layers)
        });
        unit.cost = width as f64;
        unit
    }
}

fn linear(name: &str, inputs: usize, outputs: usize, seed: u64) -> Linear {
    let init = Init::Uniform(1.0 / (inputs as f32).sqrt());
    Linear::new(name, [inputs, outputs], init, seed).with_bias(init)
}
