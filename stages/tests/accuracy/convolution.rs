//! Convolutions and pools.

use pipewright_stages::layers::{Conv2d, GlobalAverage, MaxPool};
use pipewright_stages::{Init, Layer};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within};
use super::inputs::{Kind, draw, exact, kind, pass, set, tensor};

/// Sums of products over what a window sees. Largest measured: 3.5.
const OUTPUT: f64 = 6.0;
/// Sums of products over outputs and places. Largest measured: 2.4.
const INPUT_GRADIENT: f64 = 6.0;
/// Sums of products over pixels. Largest measured: 2.1.
const WEIGHT_GRADIENT: f64 = 6.0;
/// Sums over pixels. Largest measured: 1.5.
const POOL: f64 = 4.0;

/// Images, and a window over them.
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
    fn places(self) -> [usize; 2] {
        self.sides.map(|side| (side + 2 * self.padding - self.kernel) / self.stride + 1)
    }

    fn input(self) -> [usize; 4] {
        [self.count, self.sides[0], self.sides[1], self.channels[0]]
    }

    fn output(self) -> [usize; 4] {
        let [height, width] = self.places();
        [self.count, height, width, self.channels[1]]
    }

    /// The pixel of all images that the window sees at a place of all images, at this line and column of the
    /// window.
    fn pixel(self, place: usize, tap: usize) -> Option<usize> {
        let [lines, columns] = self.places();
        let (left, top) = (place % columns * self.stride, place / columns % lines * self.stride);
        let line = (top + tap / self.kernel).checked_sub(self.padding)?;
        let column = (left + tap % self.kernel).checked_sub(self.padding)?;
        let [height, width] = self.sides;
        let is_inside = line < height && column < width;
        is_inside.then_some((place / (lines * columns) * height + line) * width + column)
    }

    /// Calls `visit` with the place of a number of the input, of the weights and of the output, for each
    /// product.
    fn products(self, mut visit: impl FnMut(usize, usize, usize)) {
        let ([inputs, outputs], taps) = (self.channels, self.kernel * self.kernel);
        let places = self.output()[..3].iter().product();
        for (place, tap) in (0..places).flat_map(|place| (0..taps).map(move |tap| (place, tap))) {
            let Some(pixel) = self.pixel(place, tap) else {
                continue;
            };
            for input in 0..inputs {
                for output in 0..outputs {
                    let weight = (input * taps + tap) * outputs + output;
                    visit(pixel * inputs + input, weight, place * outputs + output);
                }
            }
        }
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (
        (1_usize..4, 1_usize..8, 1_usize..8),
        (select(vec![1, 2, 3, 8, 17]), select(vec![1, 2, 5, 8, 33])),
        (1_usize..4, 1_usize..4, 0_usize..3),
    )
        .prop_filter_map("the window fits", |(images, (inputs, outputs), window)| {
            let ((count, height, width), (kernel, stride, padding)) = (images, window);
            let fits = height.min(width) + 2 * padding >= kernel && padding < kernel;
            fits.then_some(Sizes {
                count,
                sides: [height, width],
                channels: [inputs, outputs],
                kernel,
                stride,
                padding,
            })
        })
}

fn check(sizes: Sizes, kind: Kind) {
    let Sizes { channels: [inputs, outputs], kernel, .. } = sizes;
    let count = |dims: &[usize]| dims.iter().product::<usize>();
    let x = draw(kind, "x", count(&sizes.input()));
    let dy = draw(Kind::Signed, "dy", count(&sizes.output()));
    let weight = draw(Kind::Signed, "weight", inputs * kernel * kernel * outputs);
    let bias = draw(Kind::Signed, "bias", outputs);
    let mut layer = Conv2d::new("conv", sizes.channels, kernel, Init::Zeros, 1)
        .with_stride(sizes.stride)
        .with_padding(sizes.padding);
    set(&mut layer, 0, weight.clone());
    set(&mut layer, 1, bias.clone());
    let [output, input_grad] =
        pass(&mut layer, &tensor(&sizes.input(), x.clone()), &tensor(&sizes.output(), dy.clone()));
    let [x, dy, weight, bias] = [&x, &dy, &weight, &bias].map(|numbers| exact(numbers));
    let mut sums = vec![Approx::exact(0.0); dy.len()];
    let mut input_grads = vec![Approx::exact(0.0); x.len()];
    let mut weight_grads = vec![Approx::exact(0.0); weight.len()];
    sizes.products(|input, tap, output| {
        sums[output] = x[input].times_plus(weight[tap], sums[output]);
        input_grads[input] = dy[output].times_plus(weight[tap], input_grads[input]);
        weight_grads[tap] = dy[output].times_plus(x[input], weight_grads[tap]);
    });
    let stored = |numbers: Vec<Approx>| -> Vec<Approx> {
        numbers.into_iter().map(|number| number.by_library().stored()).collect()
    };
    let outputs_of = sums.into_iter().enumerate();
    let expected = outputs_of.map(|(at, sum)| sum.by_library() + bias[at % outputs]).collect();
    assert_within(OUTPUT, "convolution: output", &output, &stored(expected));
    let expected = stored(input_grads);
    assert_within(INPUT_GRADIENT, "convolution: input gradient", &input_grad, &expected);
    let parameters = layer.parameters();
    let weight_grads: Vec<Approx> = weight_grads.into_iter().map(Approx::by_library).collect();
    let what = "convolution: weights' gradient";
    assert_within(WEIGHT_GRADIENT, what, &parameters[0].grad, &weight_grads);
    let columns = (0..outputs).map(|column| Approx::sum(dy[column..].iter().step_by(outputs).copied()));
    let expected: Vec<Approx> = columns.collect();
    assert_within(WEIGHT_GRADIENT, "convolution: bias's gradient", &parameters[1].grad, &expected);
}

fn check_max_pool(sizes: Sizes) {
    let channels = sizes.channels[0];
    let sizes = Sizes { channels: [channels; 2], ..sizes };
    // Few different numbers, so that several are the largest.
    let mut x = draw(Kind::Signed, "x", sizes.input().iter().product());
    x.iter_mut().for_each(|x| *x = (3.0 * *x).round());
    let dy = draw(Kind::Signed, "dy", sizes.output().iter().product());
    let mut layer = MaxPool::new("pool", sizes.kernel).with_stride(sizes.stride).with_padding(sizes.padding);
    let [output, input_grad] =
        pass(&mut layer, &tensor(&sizes.input(), x.clone()), &tensor(&sizes.output(), dy.clone()));
    let mut grads = vec![Approx::exact(0.0); x.len()];
    for (at, dy) in dy.iter().enumerate() {
        let (place, channel) = (at / channels, at % channels);
        let taps = (0..sizes.kernel * sizes.kernel).filter_map(|tap| sizes.pixel(place, tap));
        let seen: Vec<usize> = taps.map(|pixel| pixel * channels + channel).collect();
        let largest = seen.iter().map(|&at| x[at]).fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(output[at], largest, "{sizes:?}, output {at}");
        let first = seen.into_iter().find(|&at| x[at] == largest);
        let first = first.expect("a window sees a pixel");
        grads[first] = grads[first] + Approx::exact(*dy);
    }
    let grads: Vec<Approx> = grads.into_iter().map(Approx::stored).collect();
    assert_within(POOL, "max pool: input gradient", &input_grad, &grads);
}

fn check_average(sizes: Sizes, kind: Kind) {
    let [count, height, width, channels] = sizes.input();
    let x = draw(kind, "x", count * height * width * channels);
    let dy = draw(Kind::Signed, "dy", count * channels);
    let [output, input_grad] = pass(
        &mut GlobalAverage::new("average"),
        &tensor(&sizes.input(), x.clone()),
        &tensor(&[count, channels], dy.clone()),
    );
    let pixels = height * width;
    let mean = |at: usize| {
        let image = &x[at / channels * pixels * channels..][..pixels * channels];
        let numbers = image[at % channels..].iter().step_by(channels);
        let sum = Approx::sum(numbers.map(|&x| Approx::exact(x)));
        (sum / Approx::exact(pixels as f64)).stored()
    };
    let expected: Vec<Approx> = (0..count * channels).map(mean).collect();
    assert_within(POOL, "average: output", &output, &expected);
    let grad = |at: usize| {
        let dy = dy[at / (pixels * channels) * channels + at % channels];
        (Approx::exact(dy) / Approx::exact(pixels as f64)).stored()
    };
    let expected: Vec<Approx> = (0..x.len()).map(grad).collect();
    assert_within(POOL, "average: input gradient", &input_grad, &expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn convolutions_of_any_sizes(sizes in sizes(), kind in kind()) {
        check(sizes, kind);
    }

    #[test]
    fn pools_of_any_sizes(sizes in sizes(), kind in kind()) {
        check_max_pool(sizes);
        check_average(sizes, kind);
    }
}

#[test]
fn many_pixels() {
    let sizes = Sizes { count: 3, sides: [33, 40], channels: [9, 16], kernel: 3, stride: 2, padding: 1 };
    check(sizes, Kind::Positive);
    check_max_pool(sizes);
    check_average(sizes, Kind::Positive);
}
