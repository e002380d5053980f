//! Layers, loss and optimizer that tell how long they took.

use std::hint::black_box;
use std::time::Instant;

use crossbeam_channel::Sender;
use pipewright_stages::loss::{Loss, Score};
use pipewright_stages::models::LayerSpec;
use pipewright_stages::optimizer::{Optimizer, Update};
use pipewright_stages::{Bytes, Kept, Layer, Moment, Parameter, Result, Sequential, Shape, Stage, Tensor};

/// What was measured of the layer of this index.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) layer: usize,
    pub(super) of: Measured,
}

/// One measurement. Times in seconds.
#[derive(Debug)]
pub(super) enum Measured {
    /// It has parameters of these names.
    Parameters(Vec<String>),
    Forward {
        at: Moment,
        seconds: f64,
        /// The memory blocks it keeps, and their bytes.
        saved: Vec<(usize, u64)>,
        output: u64,
    },
    BackwardInput {
        seconds: f64,
        pending: u64,
    },
    BackwardWeight {
        seconds: f64,
    },
    Loss {
        seconds: f64,
    },
    Update {
        parameter: String,
        seconds: f64,
    },
}

/// Where measurements go.
pub(super) type Log = Sender<Sample>;

/// The same unit as one layer that tells of its passes.
pub(super) fn timed(layer: usize, unit: LayerSpec, log: Log) -> LayerSpec {
    let LayerSpec { name, cost, build } = unit;
    LayerSpec::new(name.clone(), cost, move || {
        let mut inside = Sequential::new(build()?);
        let parameters = inside
            .parameters()
            .iter()
            .map(|parameter| parameter.name().to_owned())
            .collect();
        tell(&log, layer, Measured::Parameters(parameters));
        Ok(vec![Box::new(Timed {
            name,
            layer,
            inside,
            log,
        })])
    })
}

fn tell(log: &Log, layer: usize, of: Measured) {
    // Whoever has stopped listening has measured enough.
    let _ = log.send(Sample { layer, of });
}

#[derive(Debug)]
struct Timed {
    name: String,
    layer: usize,
    inside: Sequential,
    log: Log,
}

impl Layer for Timed {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.inside.output_shape(input)
    }

    fn forward(&mut self, at: Moment, input: Tensor) -> Result<(Tensor, Kept)> {
        let start = Instant::now();
        let (output, kept) = self.inside.forward(at, input)?;
        let of = Measured::Forward {
            at,
            seconds: start.elapsed().as_secs_f64(),
            saved: kept.with_blocks(<[_]>::to_vec),
            output: output.bytes(),
        };
        tell(&self.log, self.layer, of);
        Ok((output, kept))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let start = Instant::now();
        let (input_grad, pending) = self.inside.backward_input(saved, grad)?;
        let of = Measured::BackwardInput {
            seconds: start.elapsed().as_secs_f64(),
            pending: pending.bytes(),
        };
        tell(&self.log, self.layer, of);
        Ok((input_grad, pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let start = Instant::now();
        self.inside.backward_weight(pending)?;
        let seconds = start.elapsed().as_secs_f64();
        tell(&self.log, self.layer, Measured::BackwardWeight { seconds });
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.inside.visit_parameters(visit);
    }

    fn recompute_interior(&mut self) {
        self.inside.recompute_interiors();
    }

    fn drop_input_gradient(&mut self) {
        self.inside.drop_input_gradient();
    }
}

/// A loss that tells of the last layer, whose output it judges.
#[derive(Debug)]
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
        let start = Instant::now();
        let result = self.loss.forward(output, target)?;
        let seconds = start.elapsed().as_secs_f64();
        tell(&self.log, self.layer, Measured::Loss { seconds });
        Ok(result)
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        self.loss.score(output, target)
    }
}

/// An optimizer that tells of all that a step does with a parameter.
#[derive(Debug)]
pub(super) struct TimedOptimizer<O> {
    pub(super) optimizer: O,
    pub(super) log: Log,
}

impl<O: Optimizer> Optimizer for TimedOptimizer<O> {
    fn state_names(&self) -> &'static [&'static str] {
        self.optimizer.state_names()
    }

    fn update(&self, parameter: &mut Parameter, update: Update) -> Result<()> {
        let start = Instant::now();
        // The norm before it and the clearing after it belong to a step too, and neither changes anything here.
        black_box(parameter.grad_squares());
        self.optimizer.update(parameter, update)?;
        parameter.zero_grad()?;
        let of = Measured::Update {
            parameter: parameter.name().to_owned(),
            seconds: start.elapsed().as_secs_f64(),
        };
        tell(&self.log, 0, of);
        Ok(())
    }
}
