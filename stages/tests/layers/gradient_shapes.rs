//! An input gradient must have the shape of the input, and a weight gradient the length of its weights. If a
//! user's layer gives another shape, the step fails with the layer's name.

use pipewright_stages::layers::{Block, Flatten, Linear};
use pipewright_stages::{Kept, Numbers, Recompute, RecomputedStage, Sequential, Stage, chain};

use super::*;

/// An identity layer. Its input gradient has these dimensions.
#[derive(Debug)]
struct Mine(Vec<usize>);

impl Layer for Mine {
    fn name(&self) -> &str {
        "mine"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        Ok((input, Kept::new(ctx, [])))
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        Some(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, _grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(Tensor::zeros(&self.0)), Kept::new(saved.ctx, [])))
    }
}

const CTX: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

fn linear_layer() -> Linear {
    Linear::new("fc", [8, 8], Init::Normal(0.1), 1)
}

fn linear() -> Box<dyn Layer> {
    Box::new(linear_layer())
}

/// A stage with such a layer between two others. The layer's input is `[4, 8]`.
fn stage(dims: &[usize]) -> Sequential {
    Sequential::new(vec![linear(), Box::new(Mine(dims.to_vec())), linear()])
}

/// The errors of backward in one call, and in two halves.
fn messages<S: Stage<Wire = Tensor>>(make: impl Fn() -> S) -> [Option<String>; 2] {
    let input = || Tensor::zeros(&[4, 8]);
    let whole = |mut stage: S| {
        let (_, saved) = stage.forward(CTX, input())?;
        stage.backward(saved, input()).map(|_| ())
    };
    let halves = |mut stage: S| {
        let (_, saved) = stage.forward(CTX, input())?;
        stage.backward_input(saved, input()).map(|_| ())
    };
    [whole(make()), halves(make())].map(|result| result.err().map(|error| error.to_string()))
}

fn refusal(got: &str) -> Option<String> {
    Some(format!(
        "mine: backward_input gave an input gradient of {got}, and the input was f32[4, 8]: they must \
         have one shape"
    ))
}

#[test]
fn an_input_gradient_of_another_shape_is_refused_with_the_layer() {
    for (dims, got) in
        [(&[8, 4][..], "f32[8, 4]"), (&[4, 9], "f32[4, 9]"), (&[32], "f32[32]"), (&[4, 4], "f32[4, 4]")]
    {
        let expected = [refusal(got), refusal(got)];
        assert_eq!(messages(|| stage(dims)), expected);
        let inside =
            || Sequential::new(vec![Box::new(Block::residual("block", vec![Box::new(Mine(dims.to_vec()))]))]);
        assert_eq!(messages(inside), expected, "in a residual");
        for how in [Recompute::Selective, Recompute::Full] {
            assert_eq!(messages(|| RecomputedStage::new(stage(dims), how)), expected, "{how:?}");
            assert_eq!(messages(|| RecomputedStage::new(inside(), how)), expected, "{how:?}");
        }
    }
}

#[test]
fn a_gradient_after_a_layer_that_changes_the_shape_is_compared_with_the_input() {
    let flat = || {
        let mine = Box::new(Mine(vec![4, 8]));
        Sequential::new(vec![mine, Box::new(Flatten::new("flatten"))])
    };
    let mut stage = flat();
    let (_, saved) = stage.forward(CTX, Tensor::zeros(&[4, 2, 4])).unwrap();
    let error = stage.backward(saved, Tensor::zeros(&[4, 8])).unwrap_err();
    assert!(error.to_string().ends_with("the input was f32[4, 2, 4]: they must have one shape"));
}

#[test]
fn gradients_of_the_right_shape_pass() {
    assert_eq!(messages(|| stage(&[4, 8])), [None, None]);
}

/// A layer that replaces its weight gradient by none.
#[derive(Debug)]
struct Replacing(Parameter);

impl Layer for Replacing {
    fn name(&self) -> &str {
        "replacing"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        Ok((input, Kept::new(ctx, [])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(grad), saved))
    }

    fn backward_weight(&mut self, _pending: Kept) -> Result<()> {
        self.0.grad = Numbers::default();
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.0);
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_weight_gradient_of_another_length_is_refused_with_the_layer_and_the_parameter() {
    let replacing = || Replacing(Parameter::new("replacing.slope", &[2, 3], Init::Ones, 0));
    let expected = "replacing: backward_weight left a gradient of 0 numbers in `replacing.slope`, which is \
                    [2, 3] and needs 6: add to `Parameter::grad`, and never replace it";
    let inside = || Block::sum("block", [chain![replacing()], chain![]]);
    let stages: [&dyn Fn() -> Sequential; 2] =
        [&|| Sequential::new(chain![linear_layer(), replacing()]), &|| {
            Sequential::new(chain![inside(), linear_layer()])
        }];
    for make in stages {
        let input = || Tensor::zeros(&[4, 8]);
        let mut stage = make();
        let (_, saved) = stage.forward(CTX, input()).unwrap();
        assert_eq!(stage.backward(saved, input()).unwrap_err().to_string(), expected);
        let mut stage = make();
        let (_, saved) = stage.forward(CTX, input()).unwrap();
        let (_, pending) = stage.backward_input(saved, input()).unwrap();
        assert_eq!(stage.backward_weight(pending).unwrap_err().to_string(), expected);
    }
}
