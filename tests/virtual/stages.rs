//! Tiny stages, data and an optimizer for virtual worlds. They add up numbers with many digits, so another
//! order gives other bits.

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::stages::loss::Loss;
use pipewright::stages::optimizer::{AdamW, Optimizer, StateTensor, Update};
use pipewright::stages::{
    Error as StageError, ForwardContext, Init, Kept, Layer, Mode, Parameter, Result, Shape, StageBuilder,
    Together, rng,
};

use super::*;
use crate::here;

/// The numbers of a wire.
const WIDTH: usize = 3;

/// How often each of a layer's weights is there. So a snapshot is larger than what comes in a step, and lasts
/// for several steps.
const REPEATS: usize = 200;

/// How a model is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) layers: usize,
    /// Into how many stages it is cut.
    pub(crate) stages: usize,
    /// Whether the first and the last layer share their weights.
    pub(crate) tied: bool,
    /// Whether the first layer has enough weights that their sums over replicas are several blocks.
    pub(crate) large: bool,
    /// Whether its layers can be divided among shards.
    pub(crate) divided: bool,
}

impl Model {
    /// One layer a stage. The stage `long` has those that are left over.
    pub(crate) fn cut(self, long: usize) -> Vec<StageBuilder<Sequential>> {
        let mut counts = vec![1; self.stages];
        counts[long % self.stages] += self.layers - self.stages;
        if self.divided {
            return divided::cut(self.layers, &counts);
        }
        let mut first = 0;
        let stage = |count| {
            let layers = first..first + count;
            first += count;
            let build = move || {
                if here::with(World::builds) == Some(false) {
                    return Err(StageError::other("no memory today"));
                }
                let layers = layers.clone().map(|layer| Box::new(self.layer(layer)) as Box<dyn Layer>);
                Ok(Sequential::new(layers.collect()))
            };
            Box::new(build) as StageBuilder<Sequential>
        };
        counts.into_iter().map(stage).collect()
    }

    /// All layers in one stage.
    pub(crate) fn whole(self) -> Sequential {
        if self.divided {
            return divided::whole(self.layers);
        }
        let layers = (0..self.layers).map(|layer| Box::new(self.layer(layer)) as Box<dyn Layer>);
        Sequential::new(layers.collect())
    }

    /// A builder of a pipeline with its stages, its loss, its data, and with these shards.
    pub(crate) fn builder(self, numbers: Arc<Numbers>, shards: u32) -> PipelineBuilder<Sequential> {
        let builder = Pipeline::builder().stages(self.cut(0)).data(self.data(numbers)).shards(shards);
        match self.divided {
            true => builder.loss(divided::loss()),
            false => builder.loss(MeanSquaredError::default()),
        }
    }

    /// Its loss.
    pub(crate) fn loss(self) -> Box<dyn Loss<Tensor>> {
        match self.divided {
            true => Box::new(divided::loss()),
            false => Box::new(MeanSquaredError::default()),
        }
    }

    /// Its data.
    pub(crate) fn data(self, numbers: Arc<Numbers>) -> Arc<dyn DataSource> {
        match self.divided {
            true => Arc::new(divided::Rows(numbers)),
            false => numbers,
        }
    }

    fn layer(self, index: usize) -> Mix {
        let is_end = index == 0 || index + 1 == self.layers;
        let shares = self.tied && self.layers > 1 && is_end;
        let is_large = self.large && index == 0 && !shares;
        let repeats = if is_large { 45_000 } else { REPEATS };
        let of = if shares { 0 } else { index };
        let weight = Parameter::new(format!("h.{of}.weight"), &[repeats * WIDTH], Init::Normal(0.3), 5);
        Mix {
            index,
            name: format!("h.{index}"),
            weight: if shares && index > 0 { weight.tied() } else { weight },
        }
    }
}

/// Each number of the output is a number of the input, and a part of its neighbour.
#[derive(Debug)]
struct Mix {
    index: usize,
    name: String,
    weight: Parameter,
}

impl Mix {
    fn pass(&self, what: &'static str, ctx: ForwardContext) -> Result<()> {
        here::pass(Pass {
            what,
            layer: self.index,
            step: ctx.step,
            micro_batch: ctx.micro_batch,
            trains: ctx.mode == Mode::Train,
        })
    }

    /// How much of its neighbour's number each output number has.
    fn shares(&self) -> [f32; WIDTH] {
        let mut shares = [0.0; WIDTH];
        for row in self.weight.value.as_chunks::<WIDTH>().0.iter().take(2) {
            shares.iter_mut().zip(row).for_each(|(share, weight)| *share += 0.1 * weight);
        }
        shares
    }
}

impl Layer for Mix {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.pass(FORWARD, ctx)?;
        if ctx.mode == Mode::Evaluate {
            here::with(|world, _| world.settled.evaluates(self.index, &self.weight.value));
        }
        let (x, shares) = (input.f32(), self.shares());
        let y = (0..WIDTH).map(|at| x[at] + shares[at] * x[(at + 1) % WIDTH]);
        let output = Tensor::from_vec(&[WIDTH], y.collect())?;
        Ok((output, Kept::new(ctx, [input])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        self.pass("backward", ctx)?;
        let [input] = saved.into_tensors();
        let (g, shares) = (grad.f32(), self.shares());
        let before = |at: usize| (at + WIDTH - 1) % WIDTH;
        let dx = (0..WIDTH).map(|at| g[at] + shares[before(at)] * g[before(at)]);
        let input_grad = Tensor::from_vec(&[WIDTH], dx.collect())?;
        Ok((Some(input_grad), Kept::new(ctx, [input, grad])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        self.pass("backward-weight", pending.ctx)?;
        let [input, grad] = pending.into_tensors();
        let (x, g) = (input.f32(), grad.f32());
        for (row, grads) in self.weight.grad.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            let part = 1.0 / (1 + row % 7) as f32;
            for (at, sum) in grads.iter_mut().enumerate() {
                *sum += 0.1 * part * x[(at + 1) % WIDTH] * g[at];
            }
        }
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        here::with(World::visit);
        visit(&mut self.weight);
    }
}

/// Random numbers. Some micro-batches cannot be read at first.
#[derive(Debug)]
pub(crate) struct Numbers {
    fails: Mutex<HashMap<(u64, u32), u32>>,
    /// The step whose first micro-batch has infinite numbers.
    spoilt: AtomicU64,
}

impl Numbers {
    pub(crate) fn failing(faults: &[Fault]) -> Self {
        let fails = faults.iter().filter_map(|fault| match fault {
            Fault::NoData { step, micro_batch, times } => Some(((*step, *micro_batch), *times)),
            _ => None,
        });
        Self { fails: Mutex::new(fails.collect()), ..Self::default() }
    }

    /// This step's first micro-batch has infinite numbers. It must not have been read.
    pub(crate) fn spoil(&self, step: u64) {
        self.spoilt.store(step, Ordering::Relaxed);
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self { fails: Mutex::default(), spoilt: AtomicU64::new(u64::MAX) }
    }
}

impl DataSource for Numbers {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let mut fails = self.fails.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = fails.get_mut(&(step, micro_batch.0)).filter(|left| **left > 0) {
            *left -= 1;
            return Err(Error::from(StageError::other("the data is away")));
        }
        drop(fails);
        if (step, micro_batch.0) == (self.spoilt.load(Ordering::Relaxed), 0) {
            let tensor = || Tensor::from_vec(&[WIDTH], vec![f32::INFINITY; WIDTH]);
            return Ok((tensor()?, tensor()?));
        }
        let draw = |at| rng::unit(rng::philox([9, 9], [step as u32, micro_batch.0, at, 0])[0]) - 0.5;
        let tensor = |from| Tensor::from_vec(&[WIDTH], (from..from + WIDTH as u32).map(draw).collect());
        Ok((tensor(0)?, tensor(100)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[WIDTH]), Shape::f32(&[WIDTH]))
    }
}

/// AdamW whose updates take virtual time, and may fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Updates(AdamW);

impl Optimizer for Updates {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.0.states(name, dims)
    }

    fn update(&self, parameter: &mut Parameter, update: Update, together: &mut Together) -> Result<()> {
        let layer =
            parameter.name().split('.').nth(1).and_then(|layer| layer.parse().ok()).unwrap_or_default();
        let step = update.step - 1;
        here::with(|world, rank| world.settled.updates(rank, layer, step));
        here::pass(Pass { what: "update", layer, step, micro_batch: 0, trains: true })?;
        self.0.update(parameter, update, together)
    }

    fn updates_parts(&self) -> bool {
        true
    }
}
