//! What a stage is.

use crate::clock::Clock;
use crate::device::{Device, Place};
use crate::error::{DeviceError, Result};
use crate::gradient::Gradient;
use crate::parameter::Parameter;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Memory that a value holds.
pub trait Bytes {
    /// The size in bytes.
    fn bytes(&self) -> u64;
}

impl Bytes for () {
    fn bytes(&self) -> u64 {
        0
    }
}

/// Whether a forward pass belongs to training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout on; what backward needs is kept.
    Train,
    /// Dropout off; nothing follows the forward pass.
    Evaluate,
    /// As [`Mode::Train`], and the stage fails at its first layer that gives a number that is not finite.
    Probe,
}

/// Where training stands: with the seed and a layer's name it keys every random draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardContext {
    /// The optimizer step, from 0.
    pub step: u64,
    /// The micro-batch in the step, from 0.
    pub micro_batch: u32,
    /// Training or not.
    pub mode: Mode,
}

/// A slice of a model. Ownership is the order of the three functions: forward gives `Saved`, backward-input takes it
/// and gives `Pending`, backward-weight takes that.
///
/// A stage need not be `Send`: it is built on the thread that runs it, by a [`StageBuilder`].
pub trait Stage: 'static {
    /// What crosses the boundary to the next stage, and as a gradient back.
    type Wire: Bytes + Send + 'static;
    /// What forward keeps for backward-input.
    type Saved: Bytes;
    /// What backward-input keeps for backward-weight.
    type Pending: Bytes;

    /// The shape this stage gives for an input of `input`; asked once before the first step.
    ///
    /// # Errors
    /// When the stage cannot work on such an input: the error names the layer, what it expects and what it got.
    fn output_shape(&self, input: &Shape) -> Result<Shape>;

    /// Turns a micro-batch of the data source into this stage's input. Only the first stage is asked.
    ///
    /// # Errors
    /// When the input cannot be taken to the stage's device.
    fn load(&mut self, input: Tensor) -> Result<Self::Wire>;

    /// Takes the stage and its parameters to a place, before it is used. A stage that nobody wrote this for runs on the CPU only.
    ///
    /// # Errors
    /// When there is no such device, it has not as much memory or no such numbers, or a part of the stage does not run there: names it.
    fn move_to(&mut self, place: Place) -> Result<()> {
        match place.device {
            Device::Cpu => Ok(()),
            device => Err(DeviceError::StageOnCpuOnly { device }.into()),
        }
    }

    /// Takes a wire that another thread's stage gave to this stage's device, before the pass that needs it.
    ///
    /// # Errors
    /// When the device cannot take it.
    fn receive(&mut self, wire: Self::Wire) -> Result<Self::Wire> {
        Ok(wire)
    }

    /// A gradient of this stage's as a wire to a rank of the same process that is on a GPU too. Only asked of a stage on a GPU.
    ///
    /// # Errors
    /// What the device reports; of a stage that nobody wrote this for, that it has none.
    fn wire_of(&self, _gradient: &Gradient) -> Result<Self::Wire> {
        Err(DeviceError::GivesNoGradients.into())
    }

    /// What [`Stage::wire_of`] gave on another rank, on this stage's device.
    ///
    /// # Errors
    /// As [`Stage::wire_of`].
    fn gradient_of(&self, _wire: Self::Wire) -> Result<Gradient> {
        Err(DeviceError::TakesNoGradients.into())
    }

    /// Whether the device has done all that this thread has given it; a device that works while the host goes on is waited for by asking.
    ///
    /// # Errors
    /// What the device reports of its work.
    fn is_idle(&self) -> Result<bool> {
        Ok(true)
    }

    /// The clock of a device that works while the host goes on.
    ///
    /// # Errors
    /// When the device cannot be reached.
    fn clock(&self) -> Result<Option<Box<dyn Clock>>> {
        Ok(None)
    }

    /// Output for an input, and what backward-input will need.
    ///
    /// # Errors
    /// Whatever stops the stage; it ends the step on every rank.
    fn forward(&mut self, ctx: ForwardContext, input: Self::Wire) -> Result<(Self::Wire, Self::Saved)>;

    /// Input gradient for an output gradient (`None` where the input has none, as tokens), and what backward-weight will need.
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

    /// Backward-input and backward-weight in one: the input gradient, with the weight gradients added. A stage may override it to
    /// hold less in between or to run faster, with the same bits.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn backward(&mut self, saved: Self::Saved, grad: Self::Wire) -> Result<Option<Self::Wire>> {
        let (input_grad, pending) = self.backward_input(saved, grad)?;
        self.backward_weight(pending)?;
        Ok(input_grad)
    }

    /// What [`Stage::forward`] in training keeps, once more. A stage may override it to leave out what only the output needs.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn forward_again(&mut self, ctx: ForwardContext, input: Self::Wire) -> Result<Self::Saved> {
        Ok(self.forward(ctx, input)?.1)
    }

    /// Makes again what forward did not keep. It is called right before backward-input (or backward) so that the memory is
    /// counted; these take what forward gave as well as what this gives. The default is for stages that keep all they need.
    ///
    /// # Errors
    /// Whatever stops the stage.
    fn restore(&mut self, saved: Self::Saved) -> Result<Self::Saved> {
        Ok(saved)
    }

    /// Told once, before training ([`crate::Recompute::Selective`]): parts that hold a chain of layers keep only their input,
    /// and backward-input makes the rest again. A stage without such parts does nothing.
    fn recompute_interiors(&mut self) {}

    /// The names of the layers that hold the parameters, one for each that [`Stage::visit_parameters`] shows: for messages.
    /// Empty where a stage has no layers with names.
    fn parameter_layers(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Shows every parameter, in an order that never changes. Names differ within a model, but for copies that say so
    /// ([`Parameter::tied`]). Weights change in no other way than through this function: a stage that has computed
    /// something from them and keeps it drops it here.
    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter));

    /// As [`Stage::visit_parameters`], up to the first failure.
    ///
    /// # Errors
    /// The first one of `visit`.
    fn try_visit_parameters(&mut self, visit: &mut dyn FnMut(&mut Parameter) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        self.visit_parameters(&mut |parameter| {
            if result.is_ok() {
                result = visit(parameter);
            }
        });
        result
    }

    /// The parameters, as [`Stage::visit_parameters`] shows them: that is the one to write for a stage of one's own.
    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let mut all = Vec::new();
        self.visit_parameters(&mut |parameter| all.push(parameter));
        all
    }
}

/// What makes a stage. A closure without arguments is one.
pub trait BuildStage<S>: Send {
    /// Makes the stage, with its starting weights. Each call makes the same stage.
    ///
    /// # Errors
    /// When the stage cannot be made: names the layer.
    fn build(&self) -> Result<S>;

    /// What the stage is made of, in words: its layers and the settings of the model. The processes of a run compare it,
    /// so that none of them cuts the model at another layer. Empty when nobody says.
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
