//! Layers, loss and optimizer that report how long they took.

use std::fmt;
use std::hint::black_box;

use pipewright::stages::loss::{Loss, Score};
use pipewright::stages::models::LayerSpec;
use pipewright::stages::optimizer::{Optimizer, StateTensor, Update};
use pipewright::stages::{
    Borders, Bytes, ChooseLora, Division, ForwardContext, Kept, Layer, Parameter, Recompute, Result,
    Sequential, Shape, Stage, Team, Tensor, Together,
};

use super::observation::{Log, Observation};
use super::stopwatch::{Took, begin_step, tell, timed};

/// The same unit as one layer that reports the time of its passes.
pub(super) fn unit(layer: usize, unit: LayerSpec, log: Log) -> LayerSpec {
    let (name, cost) = (unit.name.clone(), unit.cost);
    LayerSpec::divided(name.clone(), cost, move |sharding| {
        let layers = unit.build(sharding)?;
        let runs_on_gpus = layers.iter().all(|layer| layer.runs_on_gpus());
        Ok(vec![Box::new(Timed {
            name: name.clone(),
            layer,
            runs_on_gpus,
            inside: Sequential::new(layers),
            log: log.clone(),
        })])
    })
}

#[derive(Debug)]
struct Timed {
    name: String,
    layer: usize,
    runs_on_gpus: bool,
    inside: Sequential,
    log: Log,
}

impl Layer for Timed {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        self.runs_on_gpus
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.inside.output_shape(input)
    }

    fn forward(&mut self, at: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        begin_step(at.step, &self.log)?;
        let ((output, kept), took) = timed(|| self.inside.forward(at, input))?;
        let of = Observation::Forward { at, saved: kept.with_blocks(<[_]>::to_vec), output: output.bytes() };
        tell(&self.log, self.layer, took, of);
        Ok((output, kept))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ((input_grad, pending), took) = timed(|| self.inside.backward_input(saved, grad))?;
        let of = Observation::BackwardInput { pending: pending.bytes() };
        tell(&self.log, self.layer, took, of);
        Ok((input_grad, pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let ((), took) = timed(|| self.inside.backward_weight(pending))?;
        let splits = self.inside.splits_backward();
        tell(&self.log, self.layer, took, Observation::BackwardWeight { splits });
        Ok(())
    }

    /// A model calls this for all its layers before training. From here on it is known which parameters there
    /// are.
    fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        self.inside.adapt(choose)?;
        let parameters = self.inside.parameters().into_iter();
        let names = parameters.map(|parameter| parameter.name().to_owned());
        let of = Observation::Parameters(names.collect());
        tell(&self.log, self.layer, Took::Seconds(0.0), of);
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.inside.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.inside.visit_gradients(visit);
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        self.inside.join(team)
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.inside.keep_apart(borders)
    }

    fn divided_output(&self) -> Option<&Division> {
        self.inside.divided_output()
    }

    fn recompute(&mut self, how: Recompute) {
        self.inside.recompute(how);
    }

    fn drop_input_gradient(&mut self) {
        self.inside.drop_input_gradient();
    }
}

/// A loss that reports its time as the last layer's: that layer's output is what it works on.
#[derive(Clone, Debug)]
pub(super) struct TimedLoss<L> {
    pub(super) loss: L,
    pub(super) layer: usize,
    pub(super) log: Log,
}

impl<L: Loss<Tensor>> Loss<Tensor> for TimedLoss<L> {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        self.loss.check(output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.loss.forward(output, target)
    }

    fn start(&mut self, micro_batch: u32, output: Tensor, target: Tensor) -> Result<(Option<Score>, Tensor)> {
        let (started, took) = timed(|| self.loss.start(micro_batch, output, target))?;
        tell(&self.log, self.layer, took, Observation::Loss);
        Ok(started)
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.loss.finish(micro_batch)
    }

    fn runs_on_gpus(&self) -> bool {
        self.loss.runs_on_gpus()
    }

    fn join(&mut self, team: &Team, outputs: &Division) -> Result<()> {
        self.loss.join(team, outputs)
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        self.loss.score(output, target)
    }
}

/// An optimizer that reports the time of all that a step does with a parameter.
pub(super) struct TimedOptimizer<O> {
    pub(super) optimizer: O,
    pub(super) log: Log,
}

/// Errors show it as the optimizer that it times.
impl<O: fmt::Debug> fmt::Debug for TimedOptimizer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.optimizer.fmt(f)
    }
}

impl<O: Optimizer> Optimizer for TimedOptimizer<O> {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.optimizer.states(name, dims)
    }

    fn update(&self, parameter: &mut Parameter, update: Update, together: &mut Together) -> Result<()> {
        let ((), took) = timed(|| {
            // A step also sums the squared gradient before the update and clears the gradient after it.
            // Repeating both changes nothing. A CPU computes the sum in `grad_squares`, a GPU in
            // `start_grad_squares`. On a GPU each of the three is a launch for this parameter alone, and a
            // step has one for many. So this is too long for small parameters.
            for piece in 0..parameter.pieces().count() {
                parameter.grad_squares(piece, |_, square| {
                    black_box(square);
                });
            }
            parameter.start_grad_squares(together)?;
            together.launch()?;
            self.optimizer.update(parameter, update, together)?;
            together.launch()?;
            parameter.start_sum(together)?;
            together.launch()
        })?;
        let of = Observation::Update { parameter: parameter.name().to_owned() };
        tell(&self.log, 0, took, of);
        Ok(())
    }

    fn runs_on_gpus(&self) -> bool {
        self.optimizer.runs_on_gpus()
    }

    fn updates_parts(&self) -> bool {
        self.optimizer.updates_parts()
    }
}
