//! Batch and group norm.

use pipewright_stages::Layer;
use pipewright_stages::layers::{BatchNorm, GroupNorm};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within, stored};
use super::inputs::{Kind, draw, exact, pass, set, tensor};

/// Mean, deviation, and numbers minus their mean. The expected error includes the cancellation. Largest
/// measured: 2.1.
const OUTPUT: f64 = 4.0;
/// Subtracts two means over many numbers. Largest measured: 2.8.
const INPUT_GRADIENT: f64 = 5.0;
/// Sums over rows, in which the mean's error is the same everywhere. Largest measured: 10.1.
const WEIGHT_GRADIENT: f64 = 16.0;
/// The running means themselves. Largest measured: 3.8.
const MOMENTS: f64 = 6.0;

const EPSILON: f32 = 1e-5;

/// Of the numbers that are normalised together.
struct Formula {
    outputs: Vec<Approx>,
    input_grads: Vec<Approx>,
    /// What each adds to the gradient of its gain.
    gain_grads: Vec<Approx>,
    mean: Approx,
    variance: Approx,
}

/// The mean and the variance of a channel, from sums of distances from its first number. If that is far from
/// the mean, most distances have the same sign, and their sum and its errors grow steadily, however near to
/// zero the mean is. Sums are in single precision over 32 numbers, and in double precision over these.
fn of_channel(x: Vec<Approx>) -> [Approx; 2] {
    let count = Approx::exact(x.len() as f64);
    let apart: Vec<Approx> = x.iter().map(|&number| number - x[0]).collect();
    let sums = apart.chunks(32).map(|few| Approx::sum(few.iter().copied()));
    let squares = apart.chunks(32).map(|few| Approx::dot(few.iter().map(|&x| (x, x))));
    let [apart, square] =
        [Approx::sum_in_double(sums), Approx::sum_in_double(squares)].map(|sum| sum / count);
    [x[0] + apart, square - apart * apart]
}

/// The same of `width` channels together.
fn moments(width: usize, x: &[Approx]) -> [Approx; 2] {
    let channel = |first: usize| of_channel(x[first..].iter().step_by(width).copied().collect());
    let channels: Vec<_> = (0..width).map(channel).collect();
    let count = Approx::exact(width as f64);
    let mean = Approx::sum_in_double(channels.iter().map(|[mean, _]| *mean)) / count;
    let squares = channels.iter().map(|&[of, variance]| {
        let apart = of - mean;
        apart.times_plus(apart, variance)
    });
    [mean, Approx::sum_in_double(squares) / count]
}

/// Numbers of `width` channels that are normalised together, each with its gradient, gain and shift.
fn formula(width: usize, x: &[Approx], dy: &[Approx], gain: &[Approx], shift: &[Approx]) -> Formula {
    let count = Approx::exact(x.len() as f64);
    let mean_of = |numbers: &[Approx]| Approx::sum(numbers.iter().copied()) / count;
    let [mean, variance] = moments(width, x);
    let centred: Vec<Approx> = x.iter().map(|&x| x - mean).collect();
    let scale = Approx::exact(1.0) / (variance + Approx::exact(EPSILON)).sqrt();
    let normal: Vec<Approx> = centred.into_iter().map(|x| x * scale).collect();
    let each = |f: &dyn Fn(usize) -> Approx| -> Vec<Approx> { (0..x.len()).map(f).collect() };
    let normal_grad = each(&|i| dy[i] * gain[i]);
    let along = Approx::dot(normal_grad.iter().copied().zip(normal.iter().copied())) / count;
    let total = mean_of(&normal_grad);
    Formula {
        outputs: each(&|i| normal[i].times_plus(gain[i], shift[i]).stored()),
        input_grads: each(&|i| (scale * (normal_grad[i] - total - normal[i] * along)).stored()),
        gain_grads: each(&|i| dy[i] * normal[i]),
        mean,
        variance,
    }
}

/// Images, and how many groups of channels have one mean each; 0 for batch norm.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    count: usize,
    sides: [usize; 2],
    channels: usize,
    groups: usize,
}

impl Sizes {
    fn dims(self) -> [usize; 4] {
        [self.count, self.sides[0], self.sides[1], self.channels]
    }

    /// How many channels are normalised together.
    fn width(self) -> usize {
        self.channels.checked_div(self.groups).unwrap_or(1)
    }

    /// Which numbers are normalised together: the places of each such set.
    fn together(self) -> Vec<Vec<usize>> {
        let pixels = self.sides[0] * self.sides[1];
        let set = |at: usize| match self.groups {
            0 => at % self.channels,
            groups => at / (pixels * self.channels) * groups + at % self.channels / (self.channels / groups),
        };
        let mut sets = vec![Vec::new(); self.channels.max(self.count * self.groups)];
        (0..self.dims().iter().product()).for_each(|at| sets[set(at)].push(at));
        sets.retain(|set| !set.is_empty());
        sets
    }
}

fn check(sizes: Sizes, x: &[f32]) {
    let mut layer: Box<dyn Layer> = match sizes.groups {
        0 => Box::new(BatchNorm::new("norm", sizes.channels, EPSILON)),
        groups => Box::new(GroupNorm::new("norm", groups, sizes.channels, EPSILON).unwrap()),
    };
    let dy = draw(Kind::Signed, "dy", x.len());
    let [gain, shift] = ["gain", "shift"].map(|name| draw(Kind::Signed, name, sizes.channels));
    set(&mut *layer, 0, gain.clone());
    set(&mut *layer, 1, shift.clone());
    let tensor = |numbers: &[f32]| tensor(&sizes.dims(), numbers.to_vec());
    let [output, input_grad] = pass(&mut *layer, &tensor(x), &tensor(&dy));
    let [x, dy, gain, shift] = [x, &dy, &gain, &shift].map(exact);
    let zeros = vec![Approx::exact(0.0); x.len()];
    let (mut outputs, mut input_grads, mut gain_grads) = (zeros.clone(), zeros.clone(), zeros);
    let mut moments = [Vec::new(), Vec::new()];
    for set in sizes.together() {
        let of = |numbers: &[Approx]| -> Vec<Approx> { set.iter().map(|&at| numbers[at]).collect() };
        let by_channel = |numbers: &[Approx]| -> Vec<Approx> {
            set.iter().map(|&at| numbers[at % sizes.channels]).collect()
        };
        let found = formula(sizes.width(), &of(&x), &of(&dy), &by_channel(&gain), &by_channel(&shift));
        let count = set.len() as f64;
        moments[0].push(found.mean);
        moments[1].push(found.variance * Approx::exact(count / (count - 1.0)));
        for (index, &at) in set.iter().enumerate() {
            outputs[at] = found.outputs[index];
            input_grads[at] = found.input_grads[index];
            gain_grads[at] = found.gain_grads[index];
        }
    }
    let what = if sizes.groups == 0 { "batch norm" } else { "group norm" };
    let named = |which: &str| format!("{what}: {which}");
    assert_within(OUTPUT, &named("output"), &output, &outputs);
    assert_within(INPUT_GRADIENT, &named("input gradient"), &input_grad, &input_grads);
    let columns = |numbers: &[Approx]| -> Vec<Approx> {
        (0..sizes.channels)
            .map(|column| Approx::sum(numbers[column..].iter().step_by(sizes.channels).copied()))
            .collect()
    };
    let parameters = layer.parameters();
    let gradient = |which: &str, got: usize, expected: &[Approx]| {
        assert_within(WEIGHT_GRADIENT, &named(which), &parameters[got].grad, expected);
    };
    gradient("gain's gradient", 0, &columns(&gain_grads));
    gradient("shift's gradient", 1, &columns(&dy));
    if sizes.groups == 0 {
        for (index, which) in ["running mean", "running variance"].into_iter().enumerate() {
            let got = &parameters[2 + index].grad;
            assert_within(MOMENTS, &named(which), got, &moments[index]);
        }
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let channels = select(vec![(1, 1), (3, 1), (8, 2), (12, 4), (33, 3), (40, 40), (70, 2)]);
    (1_usize..4, 1_usize..7, 2_usize..7, channels).prop_map(|(count, height, width, (channels, groups))| {
        Sizes { count, sides: [height, width], channels, groups }
    })
}

/// Not [`Kind::Wide`]: numbers are summed as distances from the first pixel's numbers, and lose what is far
/// smaller.
fn even() -> impl Strategy<Value = Kind> {
    select(vec![Kind::Signed, Kind::Positive, Kind::Tiny, Kind::Denormal])
}

/// The same sizes for both norms.
fn both(sizes: Sizes) -> [Sizes; 2] {
    [Sizes { groups: 0, ..sizes }, sizes]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn images_of_any_sizes(sizes in sizes(), kind in even()) {
        for sizes in both(sizes) {
            check(sizes, &draw(kind, "x", sizes.dims().iter().product()));
        }
    }

    /// The deviation is small compared with the mean, or very small itself.
    #[test]
    fn numbers_far_from_zero(sizes in sizes(), shift in -1e3_f32..1e3, deviation in 1e-3_f32..10.0) {
        let mut x = draw(Kind::Signed, "x", sizes.dims().iter().product());
        x.iter_mut().for_each(|x| *x = stored(*x * deviation + shift));
        both(sizes).into_iter().for_each(|sizes| check(sizes, &x));
    }
}

#[test]
fn many_rows() {
    let sizes = Sizes { count: 5, sides: [30, 31], channels: 6, groups: 2 };
    for sizes in both(sizes) {
        check(sizes, &draw(Kind::Positive, "x", sizes.dims().iter().product()));
    }
}
