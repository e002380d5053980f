//! The layer that a model of candle's is.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use candle_core::{Device, Module, Var};
use candle_nn::{VarBuilder, VarMap};
use pipewright_stages::models::LayerSpec;
use pipewright_stages::{Error, ForwardContext, Kept, Kind, Layer, Mode, Parameter, Shape, Tensor};

use crate::error::{CandleError, Result};
use crate::numbers::{from_candle, read, to_candle};
use crate::pool::stay_on_this_rank;
use crate::split::{Waiting, collecting};
use crate::tape::Tape;
use crate::weights::{Asked, Weights};

type Run = Box<dyn Fn(&candle_core::Tensor, ForwardContext) -> candle_core::Result<candle_core::Tensor>>;

/// A model of candle's, or a part of one, as a layer. The crate's page says what holds for it.
///
/// Input: numbers, or ids as `u32`. Output: `f32`, with at most four dimensions. It keeps candle's tape.
///
/// ```
/// use candle_nn::linear;
/// use pipewright_candle::CandleLayer;
/// use pipewright_stages::testing::check_gradients;
/// use pipewright_stages::{Layer, Tensor};
///
/// let mut layer = CandleLayer::new("fc", 1, |weights| linear(3, 2, weights.pp("linear")))?;
/// let names: Vec<_> = layer.parameters().iter().map(|one| one.name().to_owned()).collect();
/// assert_eq!(names, ["fc.linear.bias", "fc.linear.weight"]);
///
/// let input = Tensor::from_vec(&[2, 3], vec![0.3, -0.7, 0.2, 1.1, -0.4, 0.9])?;
/// check_gradients(layer, &input)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CandleLayer {
    name: String,
    run: Run,
    weights: Weights,
    input_gradient: bool,
    /// Whether the gradient of a weight has waited for backward-weight.
    splits_backward: bool,
    /// The last shape of an input, and the shape of its output.
    shapes: Cell<Option<(Shape, Shape)>>,
}

impl CandleLayer {
    /// A layer of a candle module, which `build` makes. A closure from a tensor to a tensor is a module too.
    ///
    /// `build` gets the layer's variables from the builder, whose path starts with the layer's name. Their
    /// starting weights are those that the module asks for, with random numbers of this seed. What the module
    /// computes from weights while it is built does not change when they do, and gets no gradient.
    ///
    /// candle's products run on the threads of the rank (`threads_per_rank`). On a thread without helpers
    /// they run alone: from the first such layer on, rayon's functions use this thread only, and
    /// [`threads::start`](pipewright_stages::threads::start) must have been called before.
    /// `RAYON_NUM_THREADS` says into how many parts candle cuts a product, not on how many threads they run.
    /// Its operations on single numbers run in one pool for the whole process, where ranks wait for each
    /// other: let `main` begin with [`one_thread_a_rank`](crate::one_thread_a_rank).
    ///
    /// # Errors
    /// When `build` fails.
    pub fn new<M: Module + 'static>(
        name: &str,
        seed: u64,
        build: impl FnOnce(VarBuilder<'static>) -> candle_core::Result<M>,
    ) -> pipewright_stages::Result<Self> {
        Self::with_context(name, seed, |weights| {
            let module = build(weights)?;
            Ok(move |x: &candle_core::Tensor, _| module.forward(x))
        })
    }

    /// Like [`CandleLayer::new`], with a closure that also gets the context of the pass: step, micro-batch
    /// and mode. For what differs in evaluation, and for random numbers that are keyed by them.
    ///
    /// # Errors
    /// When `build` fails.
    pub fn with_context<F>(
        name: &str,
        seed: u64,
        build: impl FnOnce(VarBuilder<'static>) -> candle_core::Result<F>,
    ) -> pipewright_stages::Result<Self>
    where
        F: Fn(&candle_core::Tensor, ForwardContext) -> candle_core::Result<candle_core::Tensor> + 'static,
    {
        stay_on_this_rank();
        let asked = Asked::default();
        let run = build(asked.builder(seed).pp(name)).map_err(|error| at(name, error.into()))?;
        Self::of_vars(name, asked.vars(), Box::new(run))
    }

    /// A layer of a module that was made with this map of variables, and with its weights: the weights of a
    /// file, if the map has loaded one. The parameters are `{name}.{name in the map}`.
    ///
    /// # Errors
    /// When the map has a variable that is not of `f32`, or not on the CPU.
    pub fn of(name: &str, map: &VarMap, module: impl Module + 'static) -> pipewright_stages::Result<Self> {
        let vars = map.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let vars = vars.iter().map(|(path, var)| (format!("{name}.{path}"), var.clone()));
        let vars = vars.collect();
        Self::of_vars(name, vars, Box::new(move |x, _| module.forward(x)))
    }

    fn of_vars(name: &str, vars: BTreeMap<String, Var>, run: Run) -> pipewright_stages::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            run,
            weights: Weights::new(vars).map_err(|error| at(name, error))?,
            input_gradient: true,
            splits_backward: false,
            shapes: Cell::new(None),
        })
    }

    /// Runs forward, with what the tape keeps.
    fn run(&mut self, ctx: ForwardContext, input: &Tensor) -> Result<(Tensor, Tape)> {
        stay_on_this_rank();
        self.weights.copy_to_vars()?;
        let wanted = self.input_gradient && ctx.mode != Mode::Evaluate && input.shape().kind() == Kind::F32;
        let var = wanted.then(|| Var::from_slice(input.f32(), input.dims(), &Device::Cpu)).transpose()?;
        let output = match &var {
            Some(var) => (self.run)(var, ctx)?,
            None => (self.run)(&to_candle(input)?, ctx)?,
        };
        let given = from_candle(&output)?;
        self.shapes.set(Some((*input.shape(), *given.shape())));
        Ok((given, Tape { output, input: var }))
    }

    /// The input gradient, and what the gradients of all weights that are trained are made of.
    fn grads(&mut self, tape: &Tape, grad: &Tensor) -> Result<(Option<Tensor>, Pending)> {
        stay_on_this_rank();
        let grad = to_candle(grad)?;
        let (grads, waiting) = collecting(|| tape.backward(grad));
        let (mut grads, mut waiting) = (grads?, waiting.into_iter().map(Some).collect::<Vec<_>>());
        let of_weight = |(parameter, var): &mut (Parameter, Var)| {
            let own = waiting.iter_mut().filter_map(|one| one.take_if(|one| one.weight == var.id()));
            let (known, later): (_, Vec<_>) = (grads.remove(var), own.collect());
            match known.is_none() && later.is_empty() {
                true => Err(CandleError::NoGradient(parameter.name().to_owned())),
                false => Ok((known, later)),
            }
        };
        let of_weights = self.weights.trained().map(of_weight).collect::<Result<_>>()?;
        let pending = Pending(of_weights);
        self.splits_backward |= pending.0.iter().any(|(_, later)| !later.is_empty());
        let Some(input) = &tape.input else {
            return Ok((None, pending));
        };
        let of_input = grads.remove(input).ok_or(CandleError::NoInputGradient)?;
        Ok((Some(from_candle(&of_input)?), pending))
    }
}

/// For each weight that is trained: the gradient from the tape, and those that wait.
struct Pending(Vec<(Option<candle_core::Tensor>, Vec<Waiting>)>);

impl Pending {
    fn bytes(&self) -> u64 {
        let known = self.0.iter().filter_map(|(known, _)| known.as_ref());
        let known = known.map(|grad| 4 * grad.elem_count() as u64);
        let later = self.0.iter().flat_map(|(_, later)| later.iter().map(Waiting::bytes));
        known.chain(later).sum()
    }
}

/// Adds a micro-batch's gradient to a parameter's.
fn add(parameter: &mut Parameter, grad: &candle_core::Tensor) -> Result<()> {
    read(grad, "a gradient", |more| {
        let sums = parameter.grad.iter_mut().zip(more);
        sums.for_each(|(sum, more)| *sum += more);
    })
}

/// A unit of a model that is one [`CandleLayer`], made as [`CandleLayer::new`] does. `cost` is the estimated
/// work of a forward pass, in floating-point operations for a row: two for each weight of a linear layer.
pub fn unit<M: Module + 'static>(
    name: &str,
    cost: f64,
    seed: u64,
    build: impl Fn(VarBuilder<'static>) -> candle_core::Result<M> + Send + 'static,
) -> LayerSpec {
    let layer = name.to_owned();
    LayerSpec::new(name, cost, move || {
        let layer = CandleLayer::new(&layer, seed, &build)?;
        Ok(vec![Box::new(layer)])
    })
}

fn at(name: &str, error: CandleError) -> Error {
    Error::from(error).at(name)
}

impl fmt::Debug for CandleLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CandleLayer({})", self.name)
    }
}

impl Layer for CandleLayer {
    fn name(&self) -> &str {
        &self.name
    }

    /// Runs the model once on zeros, unless it knows the answer.
    fn output_shape(&self, input: &Shape) -> pipewright_stages::Result<Shape> {
        if let Some((_, output)) = self.shapes.get().filter(|(known, _)| known == input) {
            return Ok(output);
        }
        stay_on_this_rank();
        let zeros = match input.kind() {
            Kind::F32 => Tensor::zeros(input.dims()),
            Kind::Ids => Tensor::from_ids(input.dims(), vec![0; input.count()])?,
        };
        let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Evaluate };
        let output = to_candle(&zeros).and_then(|zeros| from_candle(&(self.run)(&zeros, ctx)?));
        let output = *output.map_err(|error| at(&self.name, error))?.shape();
        self.shapes.set(Some((*input, output)));
        Ok(output)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> pipewright_stages::Result<(Tensor, Kept)> {
        let (output, tape) = self.run(ctx, &input).map_err(|error| at(&self.name, error))?;
        let kept = Kept::new(ctx, []);
        if ctx.mode == Mode::Evaluate {
            return Ok((output, kept));
        }
        let bytes = tape.bytes(self.weights.vars());
        Ok((output, kept.with_foreign(tape, bytes)))
    }

    fn backward_input(
        &mut self,
        saved: Kept,
        grad: Tensor,
    ) -> pipewright_stages::Result<(Option<Tensor>, Kept)> {
        let tape = saved.foreign().expect("checked: forward before backward");
        let (input_grad, grads) = self.grads(tape, &grad).map_err(|error| at(&self.name, error))?;
        let bytes = grads.bytes();
        Ok((input_grad, Kept::new(saved.ctx, []).with_foreign(grads, bytes)))
    }

    fn backward_weight(&mut self, pending: Kept) -> pipewright_stages::Result<()> {
        let Pending(grads) = pending.foreign().expect("checked: backward-input before backward-weight");
        stay_on_this_rank();
        let mut pairs = self.weights.trained().zip(grads);
        let added = pairs.try_for_each(|((parameter, _), (known, later))| {
            known.iter().try_for_each(|grad| add(parameter, grad))?;
            later.iter().try_for_each(|grad| add(parameter, &grad.compute()?))
        });
        added.map_err(|error| at(&self.name, error))
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.weights.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.weights.visit_gradients(visit);
    }

    fn splits_backward(&mut self) -> bool {
        self.splits_backward
    }

    fn drop_input_gradient(&mut self) {
        self.input_gradient = false;
    }
}
