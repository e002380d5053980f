//! How exact CUDA's functions are on this GPU, beside what is documented of them: CUDA C++ Programming Guide,
//! "Mathematical functions", maximum errors in single precision. Others do not appear in `f32` kernels.

use std::f32::consts::FRAC_1_SQRT_2;

use pipewright::stages::layers::{Gelu, GeluForm, Sigmoid};
use pipewright::stages::{DType, Device, Layer, Place, Sequential, Stage, Tensor};

use crate::erfc::erfc;
use crate::sizes::Result;
use crate::table::{Guess, Table, Unit};
use crate::timer::EVALUATE;

/// How many numbers are tried.
const COUNT: i32 = 100_000;

/// Finds the largest errors of `erfcf` and `expf`, by layers that do little else.
pub(crate) fn measure(table: &mut Table<'_>, device: Device) -> Result<()> {
    // -12 to 12, beyond which nothing but 0 and 1 is left.
    let xs = evenly(-12.0, 12.0);
    // The kernel's own argument, rounded as it rounds it.
    let gelu = |x: f32| f64::from(x) * 0.5 * both_ways(f64::from(-FRAC_1_SQRT_2 * x));
    let worst = worst(device, Box::new(Gelu::new("gelu", GeluForm::Exact)), &xs, gelu)?;
    let guess = |what, documented| Guess { what, unit: Unit::LastPlaces, predicted: Some(documented) };
    let note = "documented; here with the rounding after it, which may double it";
    table.row(&guess("erfcf, in GELU", 4.0), worst, note)?;
    let xs = evenly(-80.0, -20.0);
    let sigmoid = |x: f32| 1.0 / (1.0 + f64::from(-x).exp());
    let worst = self::worst(device, Box::new(Sigmoid::new("sigmoid")), &xs, sigmoid)?;
    table.row(&guess("expf, in a sigmoid", 2.0), worst, note)
}

fn evenly(from: f32, to: f32) -> Vec<f32> {
    let step = (to - from) / COUNT as f32;
    (0..=COUNT).map(|index| from + index as f32 * step).collect()
}

fn both_ways(z: f64) -> f64 {
    if z < 0.0 { 2.0 - erfc(-z) } else { erfc(z) }
}

/// The largest error of a layer's outputs, in units of the last place of the exact result.
fn worst(device: Device, layer: Box<dyn Layer>, xs: &[f32], exact: impl Fn(f32) -> f64) -> Result<f64> {
    let mut stage = Sequential::new(vec![layer]);
    let dtype = DType::F32;
    stage.move_to(Place { device, dtype })?;
    let input = stage.load(Tensor::from_vec(&[xs.len()], xs.to_vec())?)?;
    let output = stage.forward(EVALUATE, input)?.0.to(Place::default())?;
    let errors = xs.iter().zip(output.f32()).map(|(&x, &got)| {
        let exact = exact(x);
        let place = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor() - 23.0;
        (f64::from(got) - exact).abs() / place.exp2()
    });
    Ok(errors.fold(0.0, f64::max))
}
