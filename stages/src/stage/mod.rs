//! What a stage is.

pub(crate) mod borders;
pub(crate) mod chain;
pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod current;
pub(crate) mod kept;
pub(crate) mod layer;
pub(crate) mod offloaded;
pub(crate) mod recompute;
pub(crate) mod recomputed_stage;
pub(crate) mod sequential;

use crate::cuda::Together;
use crate::device::{DType, Device, Place};
use crate::error::{Error, Result};
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::parameter::packed::Packed;
use crate::shape::Shape;
use crate::shards::{Division, Shard, Team};
use crate::stage::borders::Borders;
use crate::stage::clock::Clock;
use crate::stage::recompute::Recompute;
use crate::tensor::{Bytes, Tensor};

pub(crate) use context::WRITING;
pub use context::{ForwardContext, Mode};

/// A slice of a model. Ownership fixes the order of its three functions: forward gives `Saved`,
/// backward-input takes it and gives `Pending`, backward-weight takes that.
///
/// A stage need not be `Send`: a [`StageBuilder`] builds it on the thread that runs it.
pub trait Stage: 'static {
    /// What a stage sends the next one, and gets back as a gradient.
    type Wire: Bytes + Send + 'static;
    /// What forward keeps for backward-input.
    type Saved: Bytes;
    /// What backward-input keeps for backward-weight.
    type Pending: Bytes;

    /// The shape of the output for an input of this shape. Asked once, before the first step.
    ///
    /// # Errors
    /// When the stage cannot work on such an input. The error names the layer, what it expects and what it
    /// got.
    fn output_shape(&self, input: &Shape) -> Result<Shape>;

    /// Turns a micro-batch of the data source into this stage's input. Called on the first stage only.
    ///
    /// # Errors
    /// When the input cannot be moved to the stage's device.
    fn load(&mut self, input: Tensor) -> Result<Self::Wire>;

    /// Moves the stage and its parameters to a place. Called before the stage is used. The default is for
    /// stages that run on the CPU only, in `f32`.
    ///
    /// # Errors
    /// When there is no such device, it has too little memory, it cannot compute in this number format, or a
    /// part of the stage does not run there. The error names which.
    fn move_to(&mut self, place: Place) -> Result<()> {
        match (place.device, place.dtype) {
            (Device::Cpu, DType::F32) => Ok(()),
            (Device::Cpu, DType::Bf16) => {
                Err(Error::new("this stage computes in f32 only: set dtype to f32"))
            }
            (device, _) => Err(Error::new(format!("this stage does not run on {device}, only on cpu"))),
        }
    }

    /// Makes this the stage of one of several shards of its rank, which work together from then on. Called
    /// once, before [`Stage::output_shape`].
    ///
    /// # Errors
    /// When the stage cannot be divided. The error names the layer. The default always fails.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Err(Error::new(
            "this stage cannot be divided among shards: it lacks `Stage::join`; set the number of shards to \
             1",
        ))
    }

    /// Keeps the documents of each micro-batch apart. Called once, after [`Stage::join`], if the data has
    /// several documents in a sequence. The engine sets the borders of a micro-batch before its forward.
    ///
    /// # Errors
    /// When documents cannot be kept apart. The default always fails.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Err(Error::new(
            "this stage cannot keep documents apart: it lacks `Stage::keep_apart`; join the documents of a \
             sequence, or give each a sequence of its own (`data.packing`)",
        ))
    }

    /// As [`Layer::divided_output`](crate::Layer::divided_output), of the stage's output.
    fn divided_output(&self) -> Option<&Division> {
        None
    }

    /// The gradients of a gradient group are complete. Adds up those that each shard has for its own rows
    /// only. The default is for stages without shards.
    ///
    /// # Errors
    /// When another shard has stopped.
    fn sum_rows(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes a wire smaller before it goes to another process: an output of this stage, or a gradient of its
    /// input. The default sends it as it is.
    ///
    /// # Errors
    /// When the wire cannot be sent so, or the device reports an error.
    fn narrow(&self, wire: Self::Wire) -> Result<Self::Wire> {
        Ok(wire)
    }

    /// The wire that a stage of another process has [made smaller](Stage::narrow). It is given to
    /// [`Stage::receive`] then.
    ///
    /// # Errors
    /// When it is no such wire.
    fn widen(&self, wire: Self::Wire) -> Result<Self::Wire> {
        Ok(wire)
    }

    /// Moves a wire from another thread's stage to this stage's device. Called before the pass that needs the
    /// wire.
    ///
    /// # Errors
    /// When the device cannot take it.
    fn receive(&mut self, wire: Self::Wire) -> Result<Self::Wire> {
        Ok(wire)
    }

    /// Makes a wire of numbers of this stage's parameters, for a rank that is on a GPU too: gradients that
    /// are added to the gradients of another stage or replica, or new weights. Called only on a stage that is
    /// on a GPU.
    ///
    /// # Errors
    /// When the device reports an error. The default always fails.
    fn wire_of(&self, _numbers: Packed) -> Result<Self::Wire> {
        Err(Error::new("this stage gives no gradients to other ranks' GPUs"))
    }

    /// Takes the numbers out of a wire that [`Stage::wire_of`] made on another rank, to this stage's device.
    ///
    /// # Errors
    /// As [`Stage::wire_of`].
    fn packed_of(&self, _wire: Self::Wire) -> Result<Packed> {
        Err(Error::new("this stage takes no gradients from other ranks' GPUs"))
    }

    /// Whether the device has done all work that this thread queued. The caller polls this function to wait
    /// for a device.
    ///
    /// # Errors
    /// When the device reports an error in its work.
    fn is_idle(&self) -> Result<bool> {
        Ok(true)
    }

    /// The clock of the stage's device. `None` if the host computes itself.
    ///
    /// # Errors
    /// When the device cannot be reached.
    fn clock(&self) -> Result<Option<Box<dyn Clock>>> {
        Ok(None)
    }

    /// Computes the output, and keeps what backward-input will need.
    ///
    /// # Errors
    /// Whatever stops the stage. The error ends the step on every rank.
    fn forward(&mut self, ctx: ForwardContext, input: Self::Wire) -> Result<(Self::Wire, Self::Saved)>;

    /// As [`Layer::defer_head`](crate::Layer::defer_head), of the last stage of a model: its head, and its
    /// last parameters.
    fn defer_head(&mut self, _rows: usize) -> usize {
        0
    }

    /// Forward of a stage whose head is [deferred](Stage::defer_head): the input of the head, and what
    /// backward-input will need.
    ///
    /// # Errors
    /// Whatever stops the stage. The default always fails.
    fn forward_before_head(
        &mut self,
        _ctx: ForwardContext,
        _input: Self::Wire,
    ) -> Result<(Self::Wire, Self::Saved)> {
        Err(Error::new(NOT_DEFERRED))
    }

    /// A head that is [deferred](Stage::defer_head), and the loss. In training, gives the gradient of the
    /// head's input, with which backward-input goes on. Called right before backward-input or backward; in an
    /// evaluation, right after forward.
    ///
    /// # Errors
    /// Whatever stops the head or the loss. The default always fails.
    fn head_and_loss(
        &mut self,
        _ctx: ForwardContext,
        _input: Self::Wire,
        _loss: &mut MicroBatchLoss<'_, Self::Wire>,
    ) -> Result<Option<Self::Wire>> {
        Err(Error::new(NOT_DEFERRED))
    }

    /// Computes the input gradient from the output gradient, and keeps what backward-weight will need. The
    /// input gradient is `None` if the input has none, as for tokens.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn backward_input(
        &mut self,
        saved: Self::Saved,
        grad: Self::Wire,
    ) -> Result<(Option<Self::Wire>, Self::Pending)>;

    /// Adds one micro-batch's weight gradients to [`Parameter::grad`].
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn backward_weight(&mut self, pending: Self::Pending) -> Result<()>;

    /// Backward-input and backward-weight in one call. It adds the weight gradients and gives the input
    /// gradient. A stage may override this to keep less or to run faster, with the same bits.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn backward(&mut self, saved: Self::Saved, grad: Self::Wire) -> Result<Option<Self::Wire>> {
        let (input_grad, pending) = self.backward_input(saved, grad)?;
        self.backward_weight(pending)?;
        Ok(input_grad)
    }

    /// Computes again what [`Stage::forward`] keeps in training. A stage may override this to skip work that
    /// only the output needs.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn forward_again(&mut self, ctx: ForwardContext, input: Self::Wire) -> Result<Self::Saved> {
        Ok(self.forward(ctx, input)?.1)
    }

    /// Computes again what forward did not keep. Called right before backward-input or backward, so that the
    /// engine counts the memory. Those functions accept both what forward gave and what this function gives.
    /// The default is for stages that keep all they need.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn restore(&mut self, saved: Self::Saved) -> Result<Self::Saved> {
        Ok(saved)
    }

    /// Computes the output of the next tokens of a text, which follow `past` others that the stage has had. A
    /// stage that lets a token see others keeps what it needs of them. At `past` 0 a new text begins.
    ///
    /// # Errors
    /// Whatever stops the stage. The default always fails.
    fn forward_next(&mut self, _past: usize, _input: Self::Wire) -> Result<Self::Wire> {
        Err(Error::new(NO_TEXT))
    }

    /// As [`Stage::forward_next`], for the last stage of a model: the scores of what may follow the last of
    /// these tokens, one for each token of the vocabulary.
    ///
    /// # Errors
    /// Whatever stops the stage. The default always fails.
    fn next_scores(&mut self, _past: usize, _input: Self::Wire) -> Result<Vec<f32>> {
        Err(Error::new(NO_TEXT))
    }

    /// Says which parts are computed again in backward-input instead of kept. With
    /// [`Recompute::Selective`](crate::Recompute::Selective), parts with a chain of layers inside keep only
    /// their input. With [`Recompute::None`](crate::Recompute::None), no output of a layer is computed again.
    /// Never called with [`Recompute::Full`](crate::Recompute::Full). The last call before training counts. A
    /// stage without such parts does nothing.
    fn recompute(&mut self, _how: Recompute) {}

    /// For messages: the names of its layers, in the order that [`CurrentLayer`](crate::CurrentLayer) counts.
    /// Empty if the stage has no named layers.
    fn layer_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// For messages: the name of the layer that holds each parameter, in the order of
    /// [`Stage::visit_parameters`]. Empty if the stage has no named layers.
    fn parameter_layers(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Calls `visit` with every parameter, in an order that never changes. Within a model, two parameters
    /// have the same name only if one is a copy that says so ([`Parameter::tied`]). Weights change only
    /// through this function, so a stage that caches something computed from its weights must drop the cache
    /// here.
    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter));

    /// Like [`Stage::visit_parameters`], for a caller that changes no weight, only gradients. So a cache of
    /// something computed from the weights may stay.
    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.visit_parameters(visit);
    }

    /// Like [`Stage::visit_parameters`], but stops at the first error.
    ///
    /// # Errors
    /// The first error of `visit`.
    fn try_visit_parameters(&mut self, visit: &mut dyn FnMut(&mut Parameter) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        self.visit_parameters(&mut |parameter| {
            if result.is_ok() {
                result = visit(parameter);
            }
        });
        result
    }

    /// The parameters, in the order of [`Stage::visit_parameters`]. A stage of your own implements that
    /// function, not this one.
    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let mut all = Vec::new();
        self.visit_parameters(&mut |parameter| all.push(parameter));
        all
    }
}

const NOT_DEFERRED: &str = "this stage defers nothing: see `Stage::defer_head`";
const NO_TEXT: &str = "this stage writes no text: it lacks `Stage::forward_next` or `Stage::next_scores`";

/// Makes a stage. A closure without arguments implements this trait.
///
/// Nobody can look into a closure: if processes of a run are given closures that leave out a layer, or that
/// start with other weights, nothing tells. Implement the trait for a type of your own, with a description,
/// where several processes build stages of your own.
///
/// ```
/// use pipewright_stages::layers::Relu;
/// use pipewright_stages::{BuildStage, Result, Sequential};
///
/// #[derive(Debug)]
/// struct Mine {
///     layers: std::ops::Range<usize>,
/// }
///
/// impl BuildStage<Sequential> for Mine {
///     fn build(&self) -> Result<Sequential> {
///         let layer = |index| Box::new(Relu::new(&format!("relu.{index}"))) as _;
///         Ok(Sequential::new(self.layers.clone().map(layer).collect()))
///     }
///
///     fn describe(&self) -> String {
///         format!("{self:?}")
///     }
/// }
///
/// assert_eq!(Mine { layers: 0..3 }.describe(), "Mine { layers: 0..3 }");
/// ```
pub trait BuildStage<S>: Send {
    /// Makes the stage with its starting weights. Each call makes the same stage.
    ///
    /// # Errors
    /// When the stage cannot be made. The error names the layer.
    fn build(&self) -> Result<S>;

    /// As [`BuildStage::build`], of one shard, which has a part of the weights. `build` makes the only shard.
    ///
    /// # Errors
    /// When the stage cannot be made, or cannot be divided. The default makes the only shard, and refuses
    /// others.
    fn build_shard(&self, shard: Shard) -> Result<S> {
        match shard {
            Shard::WHOLE => self.build(),
            _ => Err(Error::new(
                "this stage cannot be divided among shards: its builder lacks `BuildStage::build_shard`; \
                 set the number of shards to 1",
            )),
        }
    }

    /// Describes the stage in words: its layers, and all settings that its numbers depend on, such as a seed.
    /// The processes of a run compare the descriptions of all stages, so that all cut the same model at the
    /// same layers. The first line is of the layers; each further one is of a file that the stage's weights
    /// are read from, with a checksum. Empty by default, and for closures.
    fn describe(&self) -> String {
        String::new()
    }
}

impl<S, F: Fn() -> Result<S> + Send> BuildStage<S> for F {
    fn build(&self) -> Result<S> {
        self()
    }
}

/// Makes a stage on the thread that will run it.
pub type StageBuilder<S> = Box<dyn BuildStage<S>>;

impl Together {
    /// Does something with each parameter of a stage, in the order of [`Stage::visit_parameters`], and
    /// launches what it leaves waiting. If it fails, that is forgotten.
    ///
    /// # Errors
    /// The first error of `act`; or when the GPU reports an error, of this call or of earlier work.
    pub fn visit<S: Stage + ?Sized>(
        &mut self,
        stage: &mut S,
        mut act: impl FnMut(&mut Parameter, &mut Self) -> Result<()>,
    ) -> Result<()> {
        match stage.try_visit_parameters(&mut |parameter| act(parameter, self)) {
            Ok(()) => self.launch(),
            Err(error) => {
                self.forget();
                Err(error)
            }
        }
    }
}
