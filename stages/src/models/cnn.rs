//! A small network of convolutions.

use super::model::{LayerSpec, Model};
use super::part::Part;
use crate::error::{Error, Result, check_positive};
use crate::layers::{Conv2d, Flatten, Layout, Linear, MaxPool, Relu, Reshape};
use crate::parameter::init::Init;
use crate::stage::layer::Layer;

/// The side of the windows.
const KERNEL: usize = 3;

/// Convolutions of 3 x 3 with ReLU, each followed by a pool that halves the sides; then a linear layer:
/// `[batch, ..]` to `[batch, classes]`.
///
/// Parameters start as PyTorch's, uniform within `1 / sqrt(numbers in a window)`: `conv1.weight`,
/// `conv1.bias`, ..., `fc.weight`, `fc.bias`. The inputs of `fc` are in the order (line, column, channel).
/// Units: `conv1`, ..., `head`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cnn {
    /// Height, width and channels of the images.
    pub image: [usize; 3],
    /// The outputs of each convolution: `[32, 64]`.
    pub channels: Vec<usize>,
    /// The number of classes.
    pub classes: usize,
    /// The seed of the starting weights.
    pub seed: u64,
}

impl Cnn {
    /// The model, not yet split.
    ///
    /// # Errors
    /// When a size is 0, there is no convolution, or the images are too small for the number of pools.
    pub fn model(&self) -> Result<Model> {
        let [height, width, channels] = self.image;
        check_positive(&[
            ("the images' height", height),
            ("the images' width", width),
            ("the images' channels", channels),
            ("classes", self.classes),
        ])?;
        if self.channels.is_empty() || self.channels.contains(&0) {
            return Err(Error::new(format!(
                "channels {:?} are too few: give each convolution one at least, such as 32,64",
                self.channels
            )));
        }
        let images = self.images();
        let last = images[self.channels.len()];
        if last[..2].contains(&0) {
            return Err(Error::new(format!(
                "images of {height} x {width} cannot be halved {} times: choose fewer convolutions or larger \
                 images",
                self.channels.len()
            )));
        }
        let pairs = images.windows(2).enumerate();
        let mut units: Vec<LayerSpec> =
            pairs.map(|(index, pair)| self.convolution(index, pair[0], pair[1])).collect();
        let (inputs, classes, seed) = (last.iter().product::<usize>(), self.classes, self.seed);
        units.push(LayerSpec::of_parts(
            "head",
            vec![Part::Linear([inputs, classes], Layout::OutIn, true)],
            move || {
                let init = Init::Uniform(1.0 / (inputs as f32).sqrt());
                Ok(vec![
                    Box::new(Flatten::new("flatten")),
                    Box::new(Linear::new("fc", [inputs, classes], init, seed).with_bias(init)),
                ])
            },
        ));
        Ok(Model::new(units).with_settings(format!("{self:?}")))
    }

    /// The sizes of the images before each convolution, and after the last pool.
    fn images(&self) -> Vec<[usize; 3]> {
        let mut image = self.image;
        let mut images = vec![image];
        for &outputs in &self.channels {
            image = [image[0] / 2, image[1] / 2, outputs];
            images.push(image);
        }
        images
    }

    fn convolution(&self, index: usize, image: [usize; 3], after: [usize; 3]) -> LayerSpec {
        let (seed, [height, width, inputs], outputs) = (self.seed, image, after[2]);
        let name = format!("conv{}", index + 1);
        let in_window = KERNEL * KERNEL * inputs;
        let parts = vec![
            Part::Conv([height, width], [inputs, outputs], KERNEL, true),
            Part::Relu,
            Part::MaxPool(after.iter().product()),
        ];
        LayerSpec::of_parts(name.clone(), parts, move || {
            let init = Init::Uniform(1.0 / (in_window as f32).sqrt());
            let conv = Conv2d::new(&name, [inputs, outputs], KERNEL, init, seed);
            let mut layers: Vec<Box<dyn Layer>> = Vec::new();
            if index == 0 {
                layers.push(Box::new(Reshape::new("images", &image)));
            }
            layers.push(Box::new(conv.with_padding(KERNEL / 2).with_bias(init)));
            layers.push(Box::new(Relu::new(&format!("{name}.relu"))));
            layers.push(Box::new(MaxPool::new(&format!("{name}.pool"), 2)));
            Ok(layers)
        })
    }
}
