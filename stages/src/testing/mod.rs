//! Checks for layers and stages of your own: does backward compute the gradients of forward?
//!
//! ```
//! use pipewright_stages::layers::{Gelu, GeluForm};
//! use pipewright_stages::testing::check_gradients;
//! use pipewright_stages::{Result, Tensor};
//!
//! let input = Tensor::from_vec(&[2, 3], vec![0.3, -0.7, 0.2, 1.1, -0.4, 0.9])?;
//! check_gradients(Gelu::new("gelu", GeluForm::Exact), &input)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod passes;

use crate::error::{Error, Result};
use crate::shape::Kind;
use crate::stage::Stage;
use crate::stage::layer::Layer;
use crate::stage::recompute::Recompute;
use crate::stage::sequential::Sequential;
use crate::tensor::Tensor;
use passes::{Numbers, Order, Passes, Record};

/// Checks a layer with the default [`GradientCheck`]. [`GradientCheck::stage`] lists all that is checked.
///
/// # Errors
/// The first fault found: the layer, the tensor, the index, what was expected and what the layer gave.
pub fn check_gradients(layer: impl Layer, input: &Tensor) -> Result<()> {
    GradientCheck::default().layer(layer, input)
}

/// How exactly gradients are checked.
///
/// A gradient is compared with a central difference of forward: the change of the output between `x - step`
/// and `x + step`, divided by the distance. So keep inputs further than `step` from a point where the
/// function has a corner, such as 0 for a ReLU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientCheck {
    /// How far a number is moved to each side.
    pub step: f32,
    /// The largest allowed difference, as a share of the largest slope of the same tensor.
    pub tolerance: f64,
}

impl Default for GradientCheck {
    /// A step of 0.01 and a tolerance of 0.002. They fit numbers around 1 and sums of up to thousands of
    /// terms.
    fn default() -> Self {
        Self { step: 1e-2, tolerance: 2e-3 }
    }
}

impl GradientCheck {
    /// Checks a layer, as [`GradientCheck::stage`] checks a stage.
    ///
    /// # Errors
    /// The first fault found.
    pub fn layer(self, layer: impl Layer, input: &Tensor) -> Result<()> {
        let name = layer.name().to_owned();
        let checked = self.stage(Sequential::new(vec![Box::new(layer)]), input);
        checked.map_err(|error| error.at(&name))
    }

    /// Checks a stage on the CPU, with an input of the shape that it will get. First it changes each
    /// parameter a little, so that a start at zero hides no fault. Then it checks, in this order:
    ///
    /// * Forward gives the shape that `output_shape` says, and the same numbers when it runs again for the
    ///   same micro-batch.
    /// * The input gradient has the input's shape. It and every parameter's gradient are the slopes of a
    ///   weighted sum of the outputs, added up in double precision. Not of [running
    ///   means](crate::Parameter::running), which have no gradient.
    /// * The gradients of two micro-batches add up.
    /// * The bits stay the same when the two halves of backward run apart, with another micro-batch between
    ///   them; when backward runs as one; when what forward keeps is computed again; when the stage
    ///   recomputes nothing; and when it recomputes its interiors.
    ///
    /// # Errors
    /// The first fault found.
    pub fn stage<S: Stage<Wire = Tensor>>(self, stage: S, input: &Tensor) -> Result<()> {
        let mut passes = Passes::new(stage, input)?;
        let expected = passes.run(Order::InTurn)?;
        self.check_slopes(&mut passes)?;
        self.check_sums(&mut passes, &expected)?;
        let apart = "passes of another micro-batch come between: keep nothing of a micro-batch in the layer \
                     itself";
        for (way, order) in [
            (apart, Order::Apart),
            ("backward runs as one and not in its two halves", Order::Whole),
            ("backward starts from what forward_again keeps", Order::Again),
        ] {
            passes.run(order)?.check_same_bits(&expected, way)?;
        }
        for (how, way) in
            [(Recompute::None, "nothing is recomputed"), (Recompute::Selective, "the interior is recomputed")]
        {
            passes.stage.recompute(how);
            for order in [Order::InTurn, Order::Again] {
                passes.run(order)?.check_same_bits(&expected, way)?;
            }
        }
        Ok(())
    }

    /// Compares the gradients of the first micro-batch with central differences.
    fn check_slopes<S: Stage<Wire = Tensor>>(self, passes: &mut Passes<S>) -> Result<()> {
        let record = passes.run(Order::Only(0))?;
        let input = passes.inputs[0].clone();
        if input.shape().kind() == Kind::F32 {
            let slopes = (0..input.shape().count()).map(|index| {
                self.slope(input.f32()[index], |x| {
                    let mut moved = input.clone();
                    moved.f32_mut()[index] = x;
                    passes.objective(&moved)
                })
            });
            let slopes = slopes.collect::<Result<Vec<f64>>>()?;
            self.compare(&record.input_grads[0], &slopes)?;
        }
        for (which, grad) in record.parameters.iter().enumerate() {
            if passes.stage.parameters()[which].running_share().is_some() {
                continue;
            }
            let slopes = (0..grad.numbers.len()).map(|index| {
                let before = passes.stage.parameters()[which].value[index];
                let slope = self.slope(before, |x| {
                    passes.stage.parameters()[which].value[index] = x;
                    passes.objective(&input)
                });
                passes.stage.parameters()[which].value[index] = before;
                slope
            });
            let slopes = slopes.collect::<Result<Vec<f64>>>()?;
            self.compare(grad, &slopes)?;
        }
        Ok(())
    }

    /// The slope of a function at `x`.
    fn slope(self, x: f32, mut function: impl FnMut(f32) -> Result<f64>) -> Result<f64> {
        let (up, down) = (x + self.step, x - self.step);
        Ok((function(up)? - function(down)?) / (f64::from(up) - f64::from(down)))
    }

    /// Checks that two micro-batches in a row leave the sum of their separate gradients.
    fn check_sums<S: Stage<Wire = Tensor>>(self, passes: &mut Passes<S>, both: &Record) -> Result<()> {
        let (first, second) = (passes.run(Order::Only(0))?, passes.run(Order::Only(1))?);
        let alone = first.parameters.iter().zip(&second.parameters);
        for (sum, (first, second)) in both.parameters.iter().zip(alone) {
            let terms = first.numbers.iter().zip(&second.numbers);
            let expected: Vec<f64> = terms.map(|(a, b)| f64::from(*a) + f64::from(*b)).collect();
            if let Some((index, allowed)) = self.first_apart(&sum.numbers, &expected) {
                return Err(Error::new(format!(
                    "{} after two micro-batches, and the sum of both is {} (allowed: {allowed:.1e} apart): \
                     add with `+=` in backward_weight",
                    sum.is_at(index),
                    expected[index]
                )));
            }
        }
        Ok(())
    }

    /// Checks that a gradient equals these slopes.
    fn compare(self, grad: &Numbers, slopes: &[f64]) -> Result<()> {
        match self.first_apart(&grad.numbers, slopes) {
            None => Ok(()),
            Some((index, allowed)) => Err(Error::new(format!(
                "{}, and forward's slope there is {} (allowed: {allowed:.1e} apart)",
                grad.is_at(index),
                slopes[index]
            ))),
        }
    }

    /// The first number that is too far from the expected one, and the allowed distance.
    fn first_apart(self, got: &[f32], expected: &[f64]) -> Option<(usize, f64)> {
        let largest = expected.iter().fold(1e-3, |most: f64, number| most.max(number.abs()));
        let allowed = self.tolerance * largest;
        let mut pairs = got.iter().zip(expected);
        // Written so that NaN is never near: every comparison with NaN is false.
        let is_near = |(got, expected): (&f32, &f64)| (f64::from(*got) - expected).abs() <= allowed;
        let index = pairs.position(|pair| !is_near(pair));
        index.map(|index| (index, allowed))
    }
}
