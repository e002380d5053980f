//! Residual networks of convolutions.

use super::model::{LayerSpec, Model};
use super::part::Part;
use crate::error::{Error, Result, check_positive};
use crate::layers::{self, BatchNorm, Conv2d, GlobalAverage, Layout, Linear, Relu, Reshape};
use crate::parameter::init::Init;
use crate::stage::layer::Layer;

/// What batch norm adds to variances, as in PyTorch.
const EPSILON: f32 = 1e-5;

/// A residual network of basic blocks for small images: `[batch, ..]` (height, width, channels) to `[batch,
/// classes]`. He et al., "Deep residual learning for image recognition" (2016), in the form for CIFAR: a stem
/// of one 3 x 3 convolution, without pooling. With `blocks` of `[2, 2, 2, 2]` and a width of 64 it is
/// ResNet-18.
///
/// A block is `relu(x + bn(conv(relu(bn(conv(x))))))`. The first block of each group but the first halves the
/// sides and doubles the channels; there, `x` goes through a 1 x 1 convolution and a norm.
///
/// Parameters have the names of torchvision: `conv1.weight`, `layer1.0.bn2.running_var`,
/// `layer2.0.downsample.0.weight`, `fc.bias`. Convolutions start normal with deviation `sqrt(2 / (9
/// outputs))` (of 3 x 3), the last layer uniform within `1 / sqrt(inputs)`. Units: `stem`, `layer1.0`, ...,
/// `head`.
///
/// ```
/// use pipewright_stages::models::ResNet;
///
/// let resnet18 = ResNet { image: [32, 32, 3], blocks: vec![2, 2, 2, 2], width: 64, classes: 10, seed: 1 };
/// assert_eq!(resnet18.model()?.names().len(), 10);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ResNet {
    /// Height, width and channels of the images.
    pub image: [usize; 3],
    /// How many blocks each group has.
    pub blocks: Vec<usize>,
    /// The channels of the first group.
    pub width: usize,
    /// The number of classes.
    pub classes: usize,
    /// The seed of the starting weights.
    pub seed: u64,
}

/// A block: what goes in and comes out.
#[derive(Clone, Debug)]
struct Block {
    name: String,
    channels: [usize; 2],
    stride: usize,
    /// Height and width of the input.
    sides: [usize; 2],
}

impl Block {
    /// Height and width of the output.
    fn sides_out(&self) -> [usize; 2] {
        self.sides.map(|side| side.div_ceil(self.stride))
    }

    /// Whether its input cannot be added to its output.
    fn is_projected(&self) -> bool {
        self.stride > 1 || self.channels[0] != self.channels[1]
    }

    fn parts(&self) -> Vec<Part> {
        let (sides, [inputs, outputs]) = (self.sides_out(), self.channels);
        let norm = Part::BatchNorm(outputs);
        let first = Part::Conv(sides, [inputs, outputs], 3, false);
        let second = Part::Conv(sides, [outputs; 2], 3, false);
        let projection = [Part::Shortcut, Part::Conv(sides, [inputs, outputs], 1, false), norm];
        let shortcut: &[Part] = if self.is_projected() { &projection } else { &[] };
        [&[first, norm, Part::Relu, second, norm], shortcut, &[Part::Sum, Part::Relu]].concat()
    }

    fn build(&self, seed: u64) -> Vec<Box<dyn Layer>> {
        let (name, [inputs, outputs]) = (self.name.as_str(), self.channels);
        let part = |which: &str| format!("{name}.{which}");
        let main: Vec<Box<dyn Layer>> = vec![
            conv(&part("conv1"), [inputs, outputs], 3, self.stride, seed),
            norm(&part("bn1"), outputs),
            Box::new(Relu::new(&part("relu1"))),
            conv(&part("conv2"), [outputs, outputs], 3, 1, seed),
            norm(&part("bn2"), outputs),
        ];
        let sum: Box<dyn Layer> = match self.is_projected() {
            false => Box::new(layers::Block::residual(name, main)),
            true => {
                let shortcut = vec![
                    conv(&part("downsample.0"), [inputs, outputs], 1, self.stride, seed),
                    norm(&part("downsample.1"), outputs),
                ];
                Box::new(layers::Block::sum(name, [main, shortcut]))
            }
        };
        vec![sum, Box::new(Relu::new(&part("relu2")))]
    }
}

impl ResNet {
    /// The most groups of blocks.
    pub const GROUPS: usize = 12;

    /// The model, not yet split.
    ///
    /// # Errors
    /// When a size is 0, or there are no groups or more than [`ResNet::GROUPS`].
    pub fn model(&self) -> Result<Model> {
        let image @ [height, width, channels] = self.image;
        check_positive(&[
            ("the images' height", height),
            ("the images' width", width),
            ("the images' channels", channels),
            ("width", self.width),
            ("classes", self.classes),
        ])?;
        if self.blocks.is_empty() || self.blocks.contains(&0) || self.blocks.len() > Self::GROUPS {
            return Err(Error::new(format!(
                "blocks {:?}: give 1 to {} groups at least one block each, such as 2,2,2,2",
                self.blocks,
                Self::GROUPS
            )));
        }
        let (wide, seed, classes) = (self.width, self.seed, self.classes);
        let stem = Part::Conv([height, width], [channels, wide], 3, false);
        let parts = vec![stem, Part::BatchNorm(wide), Part::Relu];
        let mut units = vec![LayerSpec::of_parts("stem", parts, move || {
            Ok(vec![
                Box::new(Reshape::new("images", &image)),
                conv("conv1", [channels, wide], 3, 1, seed),
                norm("bn1", wide),
                Box::new(Relu::new("relu")),
            ])
        })];
        let blocks = self.all_blocks();
        let last = self.width << (self.blocks.len() - 1);
        units.extend(blocks.into_iter().map(|block| {
            LayerSpec::of_parts(block.name.clone(), block.parts(), move || Ok(block.build(seed)))
        }));
        let parts = vec![Part::GlobalAverage(last), Part::Linear([last, classes], Layout::OutIn, true)];
        units.push(LayerSpec::of_parts("head", parts, move || {
            let init = Init::Uniform(1.0 / (last as f32).sqrt());
            Ok(vec![
                Box::new(GlobalAverage::new("avgpool")),
                Box::new(Linear::new("fc", [last, classes], init, seed).with_bias(init)),
            ])
        }));
        Ok(Model::new(units).with_settings(format!("{self:?}")))
    }

    /// The blocks of all groups.
    fn all_blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut sides = [self.image[0], self.image[1]];
        let mut before = self.width;
        for (group, &count) in self.blocks.iter().enumerate() {
            let outputs = self.width << group;
            for index in 0..count {
                let block = Block {
                    name: format!("layer{}.{index}", group + 1),
                    channels: [before, outputs],
                    stride: if group > 0 && index == 0 { 2 } else { 1 },
                    sides,
                };
                (sides, before) = (block.sides_out(), outputs);
                blocks.push(block);
            }
        }
        blocks
    }
}

/// A convolution without a bias, since a norm follows.
fn conv(name: &str, sizes: [usize; 2], kernel: usize, stride: usize, seed: u64) -> Box<dyn Layer> {
    let deviation = (2.0 / (kernel * kernel * sizes[1]) as f32).sqrt();
    let conv = Conv2d::new(name, sizes, kernel, Init::Normal(deviation), seed);
    Box::new(conv.with_stride(stride).with_padding(kernel / 2).without_bias())
}

fn norm(name: &str, channels: usize) -> Box<dyn Layer> {
    Box::new(BatchNorm::new(name, channels, EPSILON))
}
