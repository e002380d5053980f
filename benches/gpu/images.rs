//! The layers of a ResNet-18, pass by pass, at 128 images of 32 x 32.

use pipewright::stages::layers::{BatchNorm, Conv2d, GlobalAverage, MaxPool};
use pipewright::stages::{Init, Layer, Result};

use crate::kernels::{Kernel, Make, Pass, Shapes, Work, numbers};
use crate::layers::{moving, passes};

/// Images of a micro-batch, as many as one is trained with by `benches/compare_torch/resnet.py`.
const IMAGES: usize = 128;

/// All layers, not yet made. Small ones for a model that is.
pub(crate) fn kernels(shapes: Shapes) -> Vec<(&'static str, Make)> {
    let is_small = shapes.gpt.dim < 128;
    let images = if is_small { 2 } else { IMAGES };
    let mut all: Vec<(&'static str, Make)> = Vec::new();
    for (side, channels) in [(32, 64), (16, 128), (8, 256), (4, 512)] {
        let channels = if is_small { 8 } else { channels };
        let dims = [images, side, side, channels];
        all.push(("convolution", Box::new(move || convolution(shapes, dims))));
        all.push((
            "batch norm",
            Box::new(move || {
                let norm = BatchNorm::new("batch norm", channels, 1e-5);
                each(shapes, Box::new(norm), dims, [3, 5, 0])
            }),
        ));
    }
    let dims = [images, 32, 32, if is_small { 8 } else { 64 }];
    let pool = move || each(shapes, Box::new(MaxPool::new("max pool", 2)), dims, [1, 1, 0]);
    all.push(("max pool", Box::new(pool)));
    let average = move || each(shapes, Box::new(GlobalAverage::new("average")), dims, [1, 1, 0]);
    all.push(("average", Box::new(average)));
    all
}

/// A convolution of 3 x 3 that keeps sides and channels.
fn convolution(shapes: Shapes, dims: [usize; 4]) -> Result<Kernel> {
    let [images, height, width, channels] = dims;
    let init = Init::Normal(0.02);
    let layer = Conv2d::new("convolution", [channels; 2], 3, init, 0).with_padding(1).without_bias();
    let flops = Work::Flops(2.0 * (images * height * width * 9 * channels * channels) as f64);
    let name = format!("convolution 3 x 3: {images} x {height} x {width} x {channels}");
    // How long its products and windows take is not modelled.
    let all = ["forward", "I", "W"].map(|name| Pass { name, work: flops, runs: Vec::new() });
    passes(shapes, name, Box::new(layer), numbers(&dims)?, all)
}

/// A layer that reads or writes each number of its input this often, by pass.
fn each(shapes: Shapes, layer: Box<dyn Layer>, dims: [usize; 4], accesses: [usize; 3]) -> Result<Kernel> {
    let all = moving(shapes, dims.iter().product(), accesses);
    let [images, height, width, channels] = dims;
    let name = format!("{}: {images} x {height} x {width} x {channels}", layer.name());
    passes(shapes, name, layer, numbers(&dims)?, all)
}
