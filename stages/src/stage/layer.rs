//! What a layer is.

use crate::device::{Device, Place};
use crate::error::{Error, Result};
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::shape::Shape;
use crate::shards::{Division, Team};
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::recompute::Recompute;
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

/// One layer of a [`Sequential`](crate::Sequential) stage: forward, backward-input and backward-weight as
/// three functions.
///
/// Most layers need not be derived: [`Block`](crate::layers::Block) composes ready ones.
///
/// These functions return [`Result`](crate::Result). From the engine it is `pipewright::stages::Result`, not
/// `pipewright::Result`. Check a layer of your own with [`check_gradients`](crate::testing::check_gradients).
///
/// Weight gradients are sums over the rows of a micro-batch, never means. The step divides once, by the total
/// weight.
///
/// ```
/// use pipewright_stages::testing::check_gradients;
/// use pipewright_stages::{ForwardContext, Kept, Layer, Result, Shape, Tensor};
///
/// /// `x^2`, on any shape.
/// #[derive(Debug)]
/// struct Square;
///
/// impl Layer for Square {
///     fn name(&self) -> &str {
///         "square"
///     }
///
///     fn output_shape(&self, input: &Shape) -> Result<Shape> {
///         Ok(*input)
///     }
///
///     fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
///         let mut output = input.clone();
///         output.f32_mut().iter_mut().for_each(|x| *x *= *x);
///         Ok((output, Kept::new(ctx, [input])))
///     }
///
///     fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
///         let ctx = saved.ctx;
///         let [input] = saved.into_tensors();
///         grad.f32_mut().iter_mut().zip(input.f32()).for_each(|(dy, x)| *dy *= 2.0 * x);
///         Ok((Some(grad), Kept::new(ctx, [])))
///     }
/// }
///
/// check_gradients(Square, &Tensor::from_vec(&[2], vec![0.3, -0.7])?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Layer: std::fmt::Debug + 'static {
    /// The name that errors and partitions show, such as `h.3.attn`.
    fn name(&self) -> &str;

    /// Whether the layer also runs on GPUs. Then its tensors and parameters are on the GPU of its stage, and
    /// it runs in `bf16` too.
    ///
    /// A layer of your own may return `true` if it only passes its tensors to ready layers inside it, as a
    /// [`Block`](crate::layers::Block) does. Any other layer runs on the CPU only, in `f32`, and so must its
    /// rank: there is no public way to launch a kernel yet, and [`Tensor::f32`] reads neither a GPU's memory
    /// nor numbers of `bf16`.
    fn runs_on_gpus(&self) -> bool {
        false
    }

    /// The shape of the output for an input of this shape.
    ///
    /// # Errors
    /// When the layer cannot work on such an input.
    fn output_shape(&self, input: &Shape) -> Result<Shape>;

    /// Computes the output, and keeps what backward-input will need.
    ///
    /// # Errors
    /// Whatever stops the layer, such as a token outside the vocabulary.
    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)>;

    /// Computes the input gradient, and keeps what backward-weight will need. The gradient is `None` if the
    /// input has none, as for tokens.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)>;

    /// Like [`Layer::forward`], with `onto` added to the output. It has the output's shape. A layer may
    /// override this to add while it computes, without writing and reading its output once more. It may round
    /// once where the two one after the other round twice.
    ///
    /// # Errors
    /// Whatever stops the layer, and when `onto` has another shape than the output.
    fn forward_onto(&mut self, ctx: ForwardContext, input: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        let (output, kept) = self.forward(ctx, input)?;
        Ok((output_onto(output, &onto)?, kept))
    }

    /// Like [`Layer::backward_input`], with `onto` added to the input gradient. It has the input's shape. A
    /// layer may override this to add while it computes.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_input_onto(&mut self, saved: Kept, grad: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        let (input_grad, pending) = self.backward_input(saved, grad)?;
        Ok((input_grad_onto(input_grad, onto)?, pending))
    }

    /// Computes again what [`Layer::forward`] keeps in training. A layer may override this to skip work that
    /// only the output needs.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(self.forward(ctx, input)?.1)
    }

    /// Says that this is the last layer of a model, the head, whose loss takes some rows of its output at a
    /// time, and how many rows the largest micro-batch has. Called once, before training. A layer may then
    /// defer what it does to the backward, where [`Layer::head_and_loss`] goes through some rows at a time,
    /// and so never has the output of all rows. Then it returns how many of its parameters, the last ones,
    /// get their gradients there: 1 or more. The default defers nothing, and returns 0.
    ///
    /// A layer that defers something is still asked for its output by [`Layer::forward`], when a number that
    /// is not finite is looked for; and [`Layer::forward_again`] gives what [`Layer::forward_before_head`]
    /// keeps.
    fn defer_head(&mut self, _rows: usize) -> usize {
        0
    }

    /// Forward without what is [deferred](Layer::defer_head): the input of that, and what backward-input will
    /// need.
    ///
    /// # Errors
    /// Whatever stops the layer. The default always fails.
    fn forward_before_head(&mut self, _ctx: ForwardContext, _input: Tensor) -> Result<(Tensor, Kept)> {
        Err(Error::new(NOT_DEFERRED))
    }

    /// What is [deferred](Layer::defer_head), from the input that [`Layer::forward_before_head`] has given:
    /// the output, the loss and, in training, the weight gradients. Gives the gradient of the input, in
    /// training, with which backward-input goes on.
    ///
    /// # Errors
    /// Whatever stops the layer or the loss. The default always fails.
    fn head_and_loss(
        &mut self,
        _ctx: ForwardContext,
        _input: Tensor,
        _loss: &mut MicroBatchLoss<'_, Tensor>,
    ) -> Result<Option<Tensor>> {
        Err(Error::new(NOT_DEFERRED))
    }

    /// Computes the output of tokens that follow `past` others of the same text, for writing text. A layer
    /// that lets a token see others keeps what it needs of them, and begins a new text at `past` 0. The
    /// default is for layers that compute every row alone.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn forward_next(&mut self, _past: usize, input: Tensor) -> Result<Tensor> {
        Ok(self.forward(WRITING, input)?.0)
    }

    /// What forward keeps, if that does not depend on the input. When a chain of layers is recomputed, such
    /// layers at its end are not run again.
    fn kept_without_input(&self, _ctx: ForwardContext) -> Option<Kept> {
        None
    }

    /// Adds this micro-batch's weight gradients. The default is for layers without parameters.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_weight(&mut self, _pending: Kept) -> Result<()> {
        Ok(())
    }

    /// Whether backward-weight computes gradients, and not only adds what backward-input has found with its
    /// own. Only then a schedule gains something from a backward in two halves. It is asked after a
    /// backward-input: a layer may know it only then. The default: if it has parameters that are trained.
    fn splits_backward(&mut self) -> bool {
        self.parameters().iter().any(|parameter| !parameter.is_frozen())
    }

    /// Calls `visit` with every parameter, in an order that never changes. The default is for layers without
    /// parameters. Weights change only through this function, so a layer that caches something computed from
    /// its weights must drop the cache here.
    fn visit_parameters<'a>(&'a mut self, _visit: &mut dyn FnMut(&'a mut Parameter)) {}

    /// Like [`Layer::visit_parameters`], for a caller that changes no weight, only gradients. So a cache of
    /// something computed from the weights may stay.
    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.visit_parameters(visit);
    }

    /// The parameters, in the order of [`Layer::visit_parameters`]. A layer of your own implements that
    /// function, not this one.
    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let mut all = Vec::new();
        self.visit_parameters(&mut |parameter| all.push(parameter));
        all
    }

    /// Gives low-rank adapters to the linear layers that `choose` names: see [`Lora`](crate::Lora). Called
    /// once, before training. A composite layer passes the call on. Other layers do nothing, and neither do
    /// layers whose weights are tied.
    ///
    /// # Errors
    /// When there can be no such adapter.
    fn adapt(&mut self, _choose: &mut ChooseLora<'_>) -> Result<()> {
        Ok(())
    }

    /// Adds what adapters add to the weights of their layers, on the CPU, and drops the adapters. Adapters of
    /// [quantised](Parameter::quantise) weights stay.
    fn merge_adapters(&mut self) {}

    /// Says that nobody uses this layer's input gradient; from then on backward-input may give `None` for it.
    /// Called once, before training, on the first layer of the model that has parameters.
    fn drop_input_gradient(&mut self) {}

    /// Holds matrices of weights in 16 bits from now on, rounded to nearest, and frees them in 32 bits. After
    /// it, the layer is only asked for outputs, and computes with the rounded weights in the number format of
    /// its input. The default is for layers without matrices.
    fn hold_in_bf16(&mut self) {}

    /// Makes this the layer of one of several shards, before training. A layer whose weights are divided
    /// works together with the same layer of the other shards from then on. A layer that treats each row
    /// alone gets this shard's rows. A composite layer passes the call on.
    ///
    /// # Errors
    /// When the layer cannot be divided. The default always fails.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Err(Error::new(
            "this layer cannot be divided among shards: it lacks `Layer::join`; set the number of shards to \
             1",
        ))
    }

    /// Keeps the documents of each micro-batch apart from now on. Called before training. A layer in which
    /// tokens see each other, or that knows their positions, keeps a clone of the borders. A layer that
    /// treats each row alone does nothing. A composite layer passes the call on.
    ///
    /// # Errors
    /// When documents cannot be kept apart. The default always fails.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Err(Error::new(
            "this layer cannot keep documents apart: it lacks `Layer::keep_apart`; join the documents of a \
             sequence, or give each a sequence of its own (`data.packing`)",
        ))
    }

    /// How the last dimension of the output is divided among the shards that it has [joined](Layer::join).
    /// `None`: it is not divided.
    fn divided_output(&self) -> Option<&Division> {
        None
    }

    /// Says what is computed again in backward-input instead of kept: see
    /// [`Stage::recompute`](crate::Stage::recompute). A composite layer tells its layers, unless it keeps
    /// only its input. Other layers do nothing.
    fn recompute(&mut self, _how: Recompute) {}
}

const NOT_DEFERRED: &str = "this layer defers nothing: see `Layer::defer_head`";

/// An output with `onto` added to it.
pub(crate) fn output_onto(mut output: Tensor, onto: &Tensor) -> Result<Tensor> {
    check_added(output.shape(), onto)?;
    output.add(onto)?;
    Ok(output)
}

/// Fails unless `onto` can be added to an output of this shape.
pub(crate) fn check_added(output: &Shape, onto: &Tensor) -> Result<()> {
    if output == onto.shape() {
        return Ok(());
    }
    Err(misfit("what is added must have one shape", onto.shape(), 1, output))
}

/// The error for a branch whose output does not fit the first one's.
pub(crate) fn misfit(how: &str, first: &Shape, index: usize, other: &Shape) -> Error {
    Error::new(format!(
        "{how}, but branch 0 gives {first} and branch {index} gives {other} (branches count from 0)"
    ))
}

/// An input gradient with `onto` added to it.
pub(crate) fn input_grad_onto(input_grad: Option<Tensor>, onto: Tensor) -> Result<Tensor> {
    let Some(mut sum) = input_grad else {
        return Ok(onto);
    };
    check_input_grad(onto.shape(), &sum)?;
    sum.add(&onto)?;
    Ok(sum)
}

/// Fails unless the gradient has the shape of the input.
pub(crate) fn check_input_grad(input: &Shape, grad: &Tensor) -> Result<()> {
    if grad.shape() == input {
        return Ok(());
    }
    Err(Error::new(format!(
        "backward_input gave an input gradient of {}, and the input was {input}: they must have one shape",
        grad.shape()
    )))
}

/// A chain of layers of any types, as a list of boxes: what a [`Sequential`](crate::Sequential) and the
/// branches of a [`Block`](crate::layers::Block) are made of.
///
/// ```
/// use pipewright_stages::layers::{Linear, Relu};
/// use pipewright_stages::{Init, Sequential, chain};
///
/// let fc = Linear::new("fc", [4, 8], Init::Normal(0.1), 1);
/// let stage = Sequential::new(chain![fc, Relu::new("relu")]);
/// ```
#[macro_export]
macro_rules! chain {
    ($($layer:expr),* $(,)?) => {
        ::std::vec![$(::std::boxed::Box::new($layer) as ::std::boxed::Box<dyn $crate::Layer>),*]
    };
}

/// Fails if the layer does not run there.
pub(crate) fn check_place(layer: &dyn Layer, place: Place) -> Result<()> {
    if place == Place::default() || layer.runs_on_gpus() {
        return Ok(());
    }
    let text = match place.device {
        Device::Cpu => "this layer computes in f32 only: set dtype to f32".to_owned(),
        device => {
            format!("this layer does not run on {device}, only on cpu: put the rank of its stage on the CPU")
        }
    };
    Err(Error::new(text).at(layer.name()))
}

/// Low-rank adapters of linear layers. Hu et al., "LoRA: low-rank adaptation of large language models"
/// (2021).
///
/// An adapter adds `alpha / rank * (x A^T) B^T` to the output of a linear layer, or to some of its columns.
/// `A` is `[rank, inputs]`, named `{target}.lora_a.weight`; it starts uniform within `1 / sqrt(inputs)`, as
/// PEFT's does. `B` is `[outputs, rank]`, named `{target}.lora_b.weight`, and starts at zero. So training
/// starts with the same function as without adapters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// The number of rows of `A`.
    pub rank: usize,
    /// What the adapter's output is multiplied by, times the rank.
    pub alpha: f64,
    /// The probability of dropout of an adapter's input, from 0 to below 1.
    pub dropout: f32,
    /// The seed of the starting weights and of dropout.
    pub seed: u64,
}

impl Lora {
    /// Whether a parameter of this name belongs to an adapter.
    pub fn is_adapter(parameter: &str) -> bool {
        parameter.ends_with(".lora_a.weight") || parameter.ends_with(".lora_b.weight")
    }

    /// The factor of an adapter's output.
    pub fn scale(self) -> f32 {
        (self.alpha / self.rank as f64) as f32
    }
}

/// Says which linear layers get adapters. It is asked with the name of each: of a layer, such as
/// `h.0.attn.out`, or of a part of its columns, such as `h.0.attn.q`.
pub type ChooseLora<'a> = dyn FnMut(&str) -> Option<Lora> + 'a;
