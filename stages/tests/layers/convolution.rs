//! Convolutions and pools: compared with their formulas in double precision, over a grid of sizes.

use std::thread;

use pipewright_stages::layers::{Conv2d, GlobalAverage, MaxPool};
use pipewright_stages::{rng, threads};

use super::*;

const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

fn random(name: &str, dims: &[usize]) -> Tensor {
    let mut tensor = Tensor::scratch(dims);
    rng::fill_uniform(rng::key(3, name), 1.0, tensor.f32_mut());
    tensor
}

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    count: usize,
    sides: [usize; 2],
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Sizes {
    fn layer(self) -> Conv2d {
        Conv2d::new("conv", self.channels, self.kernel, Init::Uniform(0.5), 1)
            .with_stride(self.stride)
            .with_padding(self.padding)
            .with_bias(Init::Uniform(0.5))
    }

    fn input(self) -> Tensor {
        let [height, width] = self.sides;
        random("input", &[self.count, height, width, self.channels[0]])
    }

    fn places(self) -> [usize; 2] {
        self.sides.map(|side| (side + 2 * self.padding - self.kernel) / self.stride + 1)
    }

    /// Calls `visit` with the place of a number of the input, of the weights and of the output, for each
    /// product.
    fn products(self, mut visit: impl FnMut(usize, usize, usize)) {
        let ([height, width], [lines, columns]) = (self.sides, self.places());
        let [inputs, outputs] = self.channels;
        for image in 0..self.count {
            for place in 0..lines * columns {
                for tap in 0..self.kernel * self.kernel {
                    let line = (place / columns * self.stride + tap / self.kernel).checked_sub(self.padding);
                    let column =
                        (place % columns * self.stride + tap % self.kernel).checked_sub(self.padding);
                    let (Some(line), Some(column)) = (line, column) else {
                        continue;
                    };
                    if line >= height || column >= width {
                        continue;
                    }
                    for input in 0..inputs {
                        for output in 0..outputs {
                            visit(
                                ((image * height + line) * width + column) * inputs + input,
                                (input * self.kernel * self.kernel + tap) * outputs + output,
                                (image * lines * columns + place) * outputs + output,
                            );
                        }
                    }
                }
            }
        }
    }
}

fn assert_near(what: &str, sizes: Sizes, got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what} of {sizes:?}");
    let most = expected.iter().fold(1.0, |most: f64, number| most.max(number.abs()));
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let apart = (f64::from(*got) - expected).abs();
        assert!(apart < 3e-6 * most, "{what} of {sizes:?}: {got} for {expected} at {index}");
    }
}

/// The output, the input gradient, and the gradients of weights and bias after two equal micro-batches.
fn passes(sizes: Sizes) -> [Vec<f32>; 4] {
    let mut layer = sizes.layer();
    let input = sizes.input();
    let shape = layer.output_shape(input.shape()).unwrap();
    let grad = random("grad", shape.dims());
    let mut results = Vec::new();
    for _ in 0..2 {
        let (output, saved) = layer.forward(AT, input.clone()).unwrap();
        assert_eq!(output.shape(), &shape);
        let (input_grad, pending) = layer.backward_input(saved, grad.clone()).unwrap();
        layer.backward_weight(pending).unwrap();
        results = vec![output.f32().to_vec(), input_grad.unwrap().f32().to_vec()];
    }
    results.extend(layer.parameters().iter().map(|parameter| parameter.grad.to_vec()));
    results.try_into().unwrap()
}

fn check(sizes: Sizes) {
    let [output, input_grad, weight_grad, bias_grad] = passes(sizes);
    let mut layer = sizes.layer();
    let (input, grad) = (sizes.input(), random("grad", &[output.len()]));
    let (input, grad) = (input.f32(), grad.f32());
    let parameters = layer.parameters();
    let [weight, bias] = [0, 1].map(|index| parameters[index].value.to_vec());
    let biases = bias.iter().copied().map(f64::from).cycle();
    let mut outputs: Vec<f64> = biases.take(output.len()).collect();
    let mut input_grads = vec![0.0; input.len()];
    let mut weight_grads = vec![0.0; weight.len()];
    sizes.products(|i, w, o| {
        outputs[o] += f64::from(input[i]) * f64::from(weight[w]);
        input_grads[i] += f64::from(grad[o]) * f64::from(weight[w]);
        weight_grads[w] += 2.0 * f64::from(grad[o]) * f64::from(input[i]);
    });
    let mut bias_grads = vec![0.0; bias.len()];
    for (index, grad) in grad.iter().enumerate() {
        bias_grads[index % bias.len()] += 2.0 * f64::from(*grad);
    }
    assert_near("the output", sizes, &output, &outputs);
    assert_near("the input gradient", sizes, &input_grad, &input_grads);
    assert_near("the weight gradient", sizes, &weight_grad, &weight_grads);
    assert_near("the bias gradient", sizes, &bias_grad, &bias_grads);
}

#[test]
fn every_kernel_stride_and_padding_computes_its_formula() {
    for kernel in [1, 2, 3, 5] {
        for stride in [1, 2, 3] {
            for padding in [0, 1, 2, 3] {
                for sides in [[5, 5], [6, 9], [7, 5]] {
                    check(Sizes { count: 2, sides, channels: [3, 5], kernel, stride, padding });
                }
            }
        }
    }
}

#[test]
fn every_number_of_channels_does() {
    for channels in [[1, 1], [8, 16], [9, 17], [7, 33], [33, 48], [2, 300], [210, 3], [600, 2]] {
        check(Sizes { count: 3, sides: [4, 3], channels, kernel: 3, stride: 1, padding: 1 });
    }
}

#[test]
fn images_of_every_size_do() {
    for (count, sides) in [(1, [1, 1]), (1, [40, 30]), (5, [16, 17]), (130, [2, 3]), (2, [3, 600])] {
        for stride in [1, 2] {
            check(Sizes { count, sides, channels: [2, 3], kernel: 3, stride, padding: 1 });
        }
    }
}

#[test]
fn neither_threads_nor_the_images_beside_change_a_bit() {
    let sizes = Sizes { count: 6, sides: [12, 12], channels: [16, 24], kernel: 3, stride: 1, padding: 1 };
    let alone = passes(sizes);
    for count in [2, 3] {
        // A thread gets helpers only once.
        let run = || {
            let _helpers = threads::start(count, |_| {}).unwrap();
            passes(sizes)
        };
        let shared = thread::scope(|scope| scope.spawn(run).join().unwrap());
        assert_eq!(shared, alone, "{count} threads");
    }
    let [first, ..] = passes(Sizes { count: 1, ..sizes });
    assert_eq!(alone[0][..first.len()], first);
}

#[test]
fn gradients_are_slopes() {
    let input = random("slopes", &[2, 5, 4, 3]);
    for (kernel, stride, padding) in [(3, 1, 1), (3, 2, 1), (1, 2, 0), (2, 1, 0)] {
        let layer = Conv2d::new("conv", [3, 4], kernel, Init::Uniform(0.5), 1)
            .with_stride(stride)
            .with_padding(padding);
        check_gradients(layer, &input).unwrap();
    }
    check_gradients(GlobalAverage::new("average"), &input).unwrap();
    // Far apart, so that no step changes which number is the largest.
    let numbers = (0..120).map(|index| (index * 37 % 120) as f32 / 10.0).collect();
    let input = Tensor::from_vec(&[2, 5, 4, 3], numbers).unwrap();
    check_gradients(MaxPool::new("pool", 2), &input).unwrap();
    check_gradients(MaxPool::new("pool", 3).with_stride(2).with_padding(1), &input).unwrap();
}

#[test]
fn a_pool_takes_the_first_of_the_largest() {
    let mut pool = MaxPool::new("pool", 2);
    let input =
        Tensor::from_vec(&[1, 2, 4, 1], vec![1.0, 5.0, -3.0, -2.0, 5.0, 0.0, -2.0, f32::NAN]).unwrap();
    let (output, saved) = pool.forward(AT, input).unwrap();
    assert_eq!(output.f32()[0], 5.0);
    assert!(output.f32()[1].is_nan());
    let grad = Tensor::from_vec(&[1, 1, 2, 1], vec![2.0, 3.0]).unwrap();
    let (input_grad, _) = pool.backward_input(saved, grad).unwrap();
    assert_eq!(input_grad.unwrap().f32(), [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0]);
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let refusal = |layer: &dyn Layer, dims: &[usize]| {
        let input = Tensor::zeros(dims);
        layer.output_shape(input.shape()).unwrap_err().to_string()
    };
    let conv = Conv2d::new("conv", [3, 4], 5, Init::Zeros, 1).with_padding(1);
    assert_eq!(
        refusal(&conv, &[2, 8, 8, 4]),
        "expected an input of f32[batch, height, width, 3], got f32[2, 8, 8, 4]"
    );
    assert_eq!(
        refusal(&conv, &[2, 2, 8, 3]),
        "a window of 5 x 5 does not fit into images of 2 x 8 with a border of 1: choose a smaller kernel, \
         more padding or larger images"
    );
    assert_eq!(
        refusal(&MaxPool::new("pool", 2).with_padding(2), &[1, 4, 4, 1]),
        "padding 2 is not smaller than the kernel 2: a window would see no pixel"
    );
    assert_eq!(
        refusal(&MaxPool::new("pool", 2).with_stride(0), &[1, 4, 4, 1]),
        "stride is 0: it must be at least 1"
    );
    assert_eq!(
        refusal(&GlobalAverage::new("average"), &[4, 4]),
        "expected an input of f32[batch, height, width, channels], got f32[4, 4]"
    );
}
