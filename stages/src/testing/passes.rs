//! The passes of two micro-batches through a stage, in several orders.

use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::rng;
use crate::shape::{Kind, Shape};
use crate::stage::{ForwardContext, Mode, Stage};
use crate::tensor::Tensor;

/// The seed of all random numbers.
const SEED: u64 = 1;

/// The order of the passes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// This micro-batch alone.
    Only(usize),
    /// Each micro-batch runs forward, backward-input and backward-weight before the next one starts.
    InTurn,
    /// Forward of both, then backward-input of both, then backward-weight of both.
    Apart,
    /// Like `InTurn`, with backward in one call.
    Whole,
    /// Like `InTurn`, with backward from what forward keeps when it runs again.
    Again,
}

/// The numbers of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) name: String,
    dims: Vec<usize>,
    pub(super) numbers: Vec<f32>,
}

impl Numbers {
    fn of(name: &str, tensor: &Tensor) -> Self {
        Self { name: name.to_owned(), dims: tensor.dims().to_vec(), numbers: tensor.f32().to_vec() }
    }

    /// What the number at this place in memory is. Its index has one number per dimension, outermost first.
    pub(super) fn is_at(&self, place: usize) -> String {
        let mut rest = place;
        let index = self.dims.iter().rev().map(|&size| {
            let inner = rest % size;
            rest /= size;
            inner
        });
        let mut index: Vec<usize> = index.collect();
        index.reverse();
        format!("{} at {index:?} is {}", self.name, self.numbers[place])
    }

    fn check_same_bits(&self, expected: &Self, way: &str) -> Result<()> {
        let mut pairs = self.numbers.iter().zip(&expected.numbers);
        match pairs.position(|(got, expected)| got.to_bits() != expected.to_bits()) {
            None => Ok(()),
            Some(place) => Err(Error::new(format!(
                "{} and not {} when {way}",
                self.is_at(place),
                expected.numbers[place]
            ))),
        }
    }
}

/// The gradients that the passes gave.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The input gradient of each micro-batch. Empty if the input is ids.
    pub(super) input_grads: Vec<Numbers>,
    /// The gradient of each parameter.
    pub(super) parameters: Vec<Numbers>,
}

impl Record {
    /// Checks that another record has the same bits.
    pub(super) fn check_same_bits(&self, expected: &Self, way: &str) -> Result<()> {
        let grads = self.input_grads.iter().zip(&expected.input_grads);
        let parameters = self.parameters.iter().zip(&expected.parameters);
        grads.chain(parameters).try_for_each(|(got, expected)| got.check_same_bits(expected, way))
    }
}

/// A stage and two micro-batches for it.
pub(super) struct Passes<S> {
    pub(super) stage: S,
    /// The input, and its elements in reverse order.
    pub(super) inputs: [Tensor; 2],
    /// Random, so that each output has another weight.
    output_grads: [Tensor; 2],
}

impl<S: Stage<Wire = Tensor>> Passes<S> {
    /// Changes the stage's parameters a little and runs forward.
    pub(super) fn new(mut stage: S, input: &Tensor) -> Result<Self> {
        stage.visit_parameters(&mut move_a_little);
        let expected = stage.output_shape(input.shape())?;
        let (output, _) = stage.forward(context(0), input.clone())?;
        let got = output.shape();
        if *got != expected {
            return Err(Error::new(format!(
                "forward gave an output of {got}, and output_shape says {expected}"
            )));
        }
        let (again, _) = stage.forward(context(0), input.clone())?;
        let way = "forward runs a second time for the same micro-batch";
        Numbers::of("the output", &again).check_same_bits(&Numbers::of("the output", &output), way)?;
        Ok(Self {
            stage,
            inputs: [input.clone(), reversed(input)],
            output_grads: [drawn("first", &expected), drawn("second", &expected)],
        })
    }

    /// The first micro-batch's outputs for this input, each times its output gradient, summed.
    pub(super) fn objective(&mut self, input: &Tensor) -> Result<f64> {
        let (output, _) = self.stage.forward(context(0), input.clone())?;
        let pairs = output.f32().iter().zip(self.output_grads[0].f32());
        Ok(pairs.map(|(&y, &dy)| f64::from(y) * f64::from(dy)).sum())
    }

    /// Clears the gradients, then runs the passes.
    pub(super) fn run(&mut self, order: Order) -> Result<Record> {
        self.stage.try_visit_parameters(&mut Parameter::zero_grad)?;
        let mut input_grads = Vec::new();
        match order {
            Order::Only(micro_batch) => input_grads.extend(self.pass(micro_batch, order)?),
            Order::Apart => input_grads = self.apart()?,
            Order::InTurn | Order::Whole | Order::Again => {
                for micro_batch in [0, 1] {
                    input_grads.extend(self.pass(micro_batch, order)?);
                }
            }
        }
        let grads = self.stage.parameters().into_iter().map(|parameter| Numbers {
            name: format!("the gradient of parameter `{}`", parameter.name()),
            dims: parameter.dims().to_vec(),
            numbers: parameter.grad.to_vec(),
        });
        Ok(Record { parameters: grads.collect(), input_grads })
    }

    fn forward(&mut self, micro_batch: usize) -> Result<S::Saved> {
        let input = self.inputs[micro_batch].clone();
        Ok(self.stage.forward(context(micro_batch), input)?.1)
    }

    /// All passes of a micro-batch.
    fn pass(&mut self, micro_batch: usize, order: Order) -> Result<Option<Numbers>> {
        let mut saved = self.forward(micro_batch)?;
        if matches!(order, Order::Again) {
            let input = self.inputs[micro_batch].clone();
            saved = self.stage.forward_again(context(micro_batch), input)?;
        }
        let output_grad = self.output_grads[micro_batch].clone();
        if matches!(order, Order::Whole) {
            let input_grad = self.stage.backward(saved, output_grad)?;
            return self.checked(micro_batch, input_grad);
        }
        let (input_grad, pending) = self.stage.backward_input(saved, output_grad)?;
        self.stage.backward_weight(pending)?;
        self.checked(micro_batch, input_grad)
    }

    fn apart(&mut self) -> Result<Vec<Numbers>> {
        let saved = [self.forward(0)?, self.forward(1)?];
        let (mut input_grads, mut all) = (Vec::new(), Vec::new());
        for (micro_batch, saved) in saved.into_iter().enumerate() {
            let output_grad = self.output_grads[micro_batch].clone();
            let (input_grad, pending) = self.stage.backward_input(saved, output_grad)?;
            input_grads.extend(self.checked(micro_batch, input_grad)?);
            all.push(pending);
        }
        all.into_iter().try_for_each(|pending| self.stage.backward_weight(pending))?;
        Ok(input_grads)
    }

    /// Checks that the input gradient has the input's shape. `None` if the input is ids.
    fn checked(&self, micro_batch: usize, grad: Option<Tensor>) -> Result<Option<Numbers>> {
        let input = *self.inputs[micro_batch].shape();
        if input.kind() == Kind::Ids {
            return Ok(None);
        }
        let Some(grad) = grad else {
            return Err(Error::new(format!(
                "backward_input gave no input gradient, and the input is {input}: only ids have none"
            )));
        };
        if *grad.shape() != input {
            return Err(Error::new(format!(
                "backward_input gave an input gradient of {} for an input of {input}",
                grad.shape()
            )));
        }
        let name = format!("the input gradient of micro-batch {micro_batch}");
        Ok(Some(Numbers::of(&name, &grad)))
    }
}

fn context(micro_batch: usize) -> ForwardContext {
    ForwardContext { step: 0, micro_batch: micro_batch as u32, mode: Mode::Train }
}

/// Changes each number by at most a quarter.
fn move_a_little(parameter: &mut Parameter) {
    let mut draws = vec![0.0; parameter.value.len()];
    rng::fill_uniform(rng::key(SEED, parameter.name()), 0.25, &mut draws);
    let values = parameter.value.iter_mut();
    values.zip(draws).for_each(|(value, draw)| *value += draw);
}

/// The same elements in reverse order.
fn reversed(tensor: &Tensor) -> Tensor {
    let mut tensor = tensor.clone();
    match tensor.shape().kind() {
        Kind::F32 => tensor.f32_mut().reverse(),
        Kind::Ids => tensor.ids_mut().reverse(),
    }
    tensor
}

/// Random numbers in `[-1, 1)`, keyed by the name.
fn drawn(name: &str, shape: &Shape) -> Tensor {
    let mut tensor = Tensor::scratch(shape.dims());
    rng::fill_uniform(rng::key(SEED, name), 1.0, tensor.f32_mut());
    tensor
}
