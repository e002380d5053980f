//! Rotary position embedding.

use std::f64::consts::PI;

use pipewright_stages::layers::{Heads, Rope, RopeLayout, RopeScaling, Rotary};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within};
use super::inputs::{draw, exact, kind, pass, tensor};

/// Two products with rounded factors. Largest measured: 1.5.
const BOUND: f64 = 3.0;

/// The frequency of a pair, in the steps of Hugging Face's formula.
fn frequency(rope: Rope, pair: usize, width: usize) -> f64 {
    let plain = 1.0 / rope.theta.powf((2 * pair) as f64 / width as f64);
    match rope.scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Llama3 { factor, low, high, original } => {
            let (original, wavelength) = (original as f64, 2.0 * PI / plain);
            let smooth = (original / wavelength - low) / (high - low);
            if wavelength > original / low {
                plain / factor
            } else if wavelength < original / high {
                plain
            } else {
                (1.0 - smooth) * plain / factor + smooth * plain
            }
        }
        RopeScaling::Yarn { factor, original, fast, slow, .. } => {
            let find = |rotations: f64| {
                (width as f64 * (original as f64 / (rotations * 2.0 * PI)).ln()) / (2.0 * rope.theta.ln())
            };
            let (low, high) = (find(fast).floor().max(0.0), find(slow).ceil().min(width as f64 - 1.0));
            let high = if low == high { high + 0.001 } else { high };
            let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            plain / factor * ramp + plain * (1.0 - ramp)
        }
    }
}

/// The numbers of `[batch, time, heads.row()]`, turned by the angles times `sign`.
fn formula(numbers: &[f32], time: usize, heads: Heads, rope: Rope, sign: f64) -> Vec<Approx> {
    let mut out = exact(numbers);
    let width = heads.width;
    let scale = match rope.scaling {
        RopeScaling::Yarn { attention, .. } => attention,
        _ => 1.0,
    };
    for (row, numbers) in out.chunks_exact_mut(heads.row()).enumerate() {
        for head in numbers.chunks_exact_mut(width).take(heads.query + heads.key_value) {
            for pair in 0..width / 2 {
                let [first, second] = match rope.layout {
                    RopeLayout::Halves => [pair, pair + width / 2],
                    RopeLayout::Pairs => [2 * pair, 2 * pair + 1],
                };
                let angle = (row % time) as f64 * frequency(rope, pair, width);
                let (cos, sin) = (scale * angle.cos(), scale * sign * angle.sin());
                let (cos, sin) = (Approx::rounded(cos), Approx::rounded(sin));
                let (x, y) = (head[first], head[second]);
                head[first] = x.times_plus(cos, -(y * sin)).by_library().stored();
                head[second] = y.times_plus(cos, x * sin).by_library().stored();
            }
        }
    }
    out
}

fn scaling() -> impl Strategy<Value = RopeScaling> {
    let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64 };
    select(vec![
        RopeScaling::None,
        RopeScaling::Linear { factor: 2.5 },
        llama3,
        RopeScaling::Yarn { factor: 4.0, original: 4096, fast: 32.0, slow: 1.0, attention: 1.25 },
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn turns_by_the_angles_and_back(
        batch in 1_usize..3,
        time in prop_oneof![select(vec![1_usize, 2, 127, 128, 129]), 1_usize..80],
        (query, key_value) in select(vec![(1, 1), (2, 1), (3, 3), (8, 2)]),
        width in select(vec![2_usize, 6, 8, 34, 64, 80, 128]),
        (theta, scaling) in (select(vec![1e4, 1e5, 5e5]), scaling()),
        layout in select(vec![RopeLayout::Halves, RopeLayout::Pairs]),
        kind in kind(),
    ) {
        let heads = Heads { query, key_value, width };
        let rope = Rope { theta, scaling, layout };
        let dims = [batch, time, heads.row()];
        let [x, dy] = ["x", "dy"].map(|name| draw(kind, name, dims.iter().product()));
        let mut layer = Rotary::new("rope", heads, rope).unwrap();
        let [output, input_grad] = pass(&mut layer, &tensor(&dims, x.clone()), &tensor(&dims, dy.clone()));
        assert_within(BOUND, "rotary: output", &output, &formula(&x, time, heads, rope, 1.0));
        let expected = formula(&dy, time, heads, rope, -1.0);
        assert_within(BOUND, "rotary: input gradient", &input_grad, &expected);
    }
}

/// The table grows from one sequence to the next, and serves shorter ones.
#[test]
fn the_length_of_earlier_sequences_does_not_matter() {
    let heads = Heads { query: 1, key_value: 1, width: 8 };
    let rope = Rope { theta: 1e4, scaling: RopeScaling::None, layout: RopeLayout::Halves };
    let mut layer = Rotary::new("rope", heads, rope).unwrap();
    for time in [3, 70, 5, 71] {
        let dims = [2, time, heads.row()];
        let x = tensor(&dims, draw(super::inputs::Kind::Signed, "x", dims.iter().product()));
        let fresh = &mut Rotary::new("rope", heads, rope).unwrap();
        assert_eq!(pass(&mut layer, &x, &x), pass(fresh, &x, &x), "{time} positions");
    }
}
