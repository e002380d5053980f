//! What the gradient check finds, and its messages.

use pipewright_stages::layers::{Block, Dropout, LayerNorm, Relu};
use pipewright_stages::models::Gpt;
use pipewright_stages::testing::GradientCheck;
use pipewright_stages::{Error, Kept};

use super::*;

/// The fault of a [`Scale`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    InputGradient,
    WeightGradient,
    Overwrites,
    KeepsInSelf,
    NoInputGradient,
    Turned,
    OtherAgain,
    Random,
    OutputShape,
    Fails,
}

/// `y = w x` for numbers of any shape, with a fault.
#[derive(Debug)]
struct Scale {
    weight: Parameter,
    fault: Fault,
    last: Option<Tensor>,
    calls: u32,
}

impl Scale {
    fn new(fault: Fault) -> Self {
        Self { weight: Parameter::new("scale.weight", &[1], Init::Zeros, 1), fault, last: None, calls: 0 }
    }
}

fn times(tensor: &Tensor, factor: f32) -> Tensor {
    let mut scaled = tensor.clone();
    scaled.f32_mut().iter_mut().for_each(|x| *x *= factor);
    scaled
}

impl Layer for Scale {
    fn name(&self) -> &str {
        "scale"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        match self.fault {
            Fault::OutputShape => Ok(input.with_last(9)),
            _ => Ok(*input),
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.calls += 1;
        let drift = if self.fault == Fault::Random { self.calls } else { 0 };
        let output = times(&input, self.weight.value[0] + drift as f32);
        self.last = Some(input.clone());
        Ok((output, Kept::new(ctx, [input])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        let factor = if self.fault == Fault::OtherAgain { 2.0 } else { 1.0 };
        Ok(Kept::new(ctx, [times(&input, factor)]))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        if self.fault == Fault::Fails {
            return Err(Error::other("no more"));
        }
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        let factor = if self.fault == Fault::InputGradient { 1.1 } else { 1.0 };
        let input_grad = times(&grad, self.weight.value[0] * factor);
        let input_grad = match self.fault {
            Fault::NoInputGradient => None,
            Fault::Turned => Some(input_grad.reshape(&[3, 2])?),
            _ => Some(input_grad),
        };
        Ok((input_grad, Kept::new(ctx, [input, grad])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let [mut input, grad] = pending.into_tensors();
        if self.fault == Fault::KeepsInSelf {
            input = self.last.clone().expect("forward came first");
        }
        let sum: f32 = input.f32().iter().zip(grad.f32()).map(|(x, dy)| x * dy).sum();
        match self.fault {
            Fault::WeightGradient => self.weight.grad[0] -= sum,
            Fault::Overwrites => self.weight.grad[0] = sum,
            _ => self.weight.grad[0] += sum,
        }
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
    }
}

fn input() -> Tensor {
    Tensor::from_vec(&[2, 3], vec![0.5, -1.0, 2.0, 0.25, 1.5, -0.75]).unwrap()
}

fn found(fault: Fault) -> Error {
    check_gradients(Scale::new(fault), &input()).unwrap_err()
}

#[test]
fn a_layer_with_the_gradients_of_its_forward_passes() {
    check_gradients(Scale::new(Fault::None), &input()).unwrap();
}

#[test]
fn a_wrong_input_gradient_is_named_with_its_place() {
    let error = found(Fault::InputGradient);
    assert_eq!(error.place, "scale");
    let text = error.kind.to_string();
    let numbers = text.strip_prefix("the input gradient of micro-batch 0 at [0, 0] is ");
    let (got, rest) = numbers.unwrap_or_else(|| panic!("{text}")).split_once(", and ").unwrap();
    let expected = rest.strip_prefix("forward's slope there is ").unwrap().split_once(" (").unwrap().0;
    let [got, expected]: [f64; 2] = [got, expected].map(|number| number.parse().unwrap());
    assert!((got / expected - 1.1).abs() < 1e-3);
}

#[test]
fn a_wrong_weight_gradient_is_named_with_the_parameter() {
    let message = found(Fault::WeightGradient).to_string();
    assert!(message.starts_with("scale: the gradient of parameter `scale.weight` at [0] is "), "{message}");
    assert!(message.contains("forward's slope there is"), "{message}");
}

#[test]
fn gradients_that_do_not_add_up_are_found() {
    let message = found(Fault::Overwrites).to_string();
    assert!(message.contains(" after two micro-batches, and the sum of both is "), "{message}");
    assert!(message.ends_with("add with `+=` in backward_weight"), "{message}");
}

#[test]
fn a_layer_that_holds_a_micro_batch_in_itself_is_found() {
    let message = found(Fault::KeepsInSelf).to_string();
    let way = "when passes of another micro-batch come between: keep nothing of a micro-batch in the layer \
               itself";
    assert!(message.ends_with(way), "{message}");
}

#[test]
fn other_numbers_made_again_are_found() {
    let message = found(Fault::OtherAgain).to_string();
    assert!(message.ends_with("when backward starts from what forward_again keeps"), "{message}");
}

#[test]
fn a_forward_that_is_no_function_of_its_input_is_found() {
    let message = found(Fault::Random).to_string();
    assert!(message.ends_with("when forward runs a second time for the same micro-batch"), "{message}");
}

#[test]
fn wrong_shapes_are_found() {
    let message = |fault| found(fault).to_string();
    assert_eq!(
        message(Fault::OutputShape),
        "scale: forward gave an output of f32[2, 3], and output_shape says f32[2, 9]"
    );
    assert_eq!(
        message(Fault::NoInputGradient),
        "scale: backward_input gave no input gradient, and the input is f32[2, 3]: only ids have none"
    );
    let error = found(Fault::Turned);
    assert_eq!(
        error.kind.to_string(),
        "backward_input gave an input gradient of f32[3, 2], and the input was f32[2, 3]: they must have one \
         shape"
    );
}

#[test]
fn a_failure_names_the_layer_once() {
    assert_eq!(found(Fault::Fails).to_string(), "scale: no more");
}

#[test]
fn a_whole_stage_can_be_checked() {
    let gpt = Gpt { vocab: 11, dim: 8, layers: 1, heads: 2, context: 4, dropout: 0.2, tied: false, seed: 3 };
    let tokens = Tensor::from_ids(&[2, 4], vec![1, 4, 2, 10, 0, 3, 3, 7]).unwrap();
    let check = GradientCheck { tolerance: 1e-2, ..GradientCheck::default() };
    check.stage(gpt.model().unwrap().whole().unwrap(), &tokens).unwrap();
}

#[test]
fn ready_layers_pass_as_one_chain() {
    let layers: Vec<Box<dyn Layer>> = vec![
        Box::new(LayerNorm::new("norm", 3)),
        Box::new(Dropout::new("dropout", 0.3, 1).unwrap()),
        Box::new(Scale::new(Fault::None)),
    ];
    check_gradients(Block::residual("block", layers), &input()).unwrap();
    check_gradients(Relu::new("relu"), &input()).unwrap();
}
