//! Helpers for several test files: small models, data, and training without the engine.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use pipewright::data::{DataSource, IGNORED};
use pipewright::groups::GradientGroups;
use pipewright::id::MicroBatch;
use pipewright::pipeline::SyncMode;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{CrossEntropy, Loss, Score};
use pipewright::stages::models::{Gpt, Mlp, Model};
use pipewright::stages::optimizer::{AdamW, LearningRate, Optimizer, Update, clip_factor, update};
use pipewright::stages::{
    Borders, DType, ForwardContext, Mode, Parameter, Place, Recompute, Result as StageResult, Sequential,
    Shape, Stage, StageBuilder, Tensor, Together, rng, round_sums,
};
use pipewright::{Pipeline, PipelineBuilder, Result};
use sha2::{Digest, Sha256};

/// Random tokens. The target of each is the next one.
#[derive(Clone, Copy, Debug)]
pub struct RandomTokens {
    pub rows: usize,
    pub seq: usize,
    pub vocab: u32,
}

impl DataSource for RandomTokens {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let draw = |row: usize, at: usize| {
            let counter = [step as u32, micro_batch.0, row as u32, at as u32];
            rng::philox([7, 7], counter)[0] % self.vocab
        };
        let window = |shift: usize| {
            let place = |row| (0..self.seq).map(move |at| draw(row, at + shift));
            let ids = (0..self.rows).flat_map(place).collect();
            Tensor::from_ids(&[self.rows, self.seq], ids).expect("it fills the shape")
        };
        Ok((window(0), window(1)))
    }

    fn shapes(&self) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.rows, self.seq]);
        (shape, shape)
    }
}

/// Random tokens in micro-batches of different shapes, up to the shape of these. Each has this number of rows
/// at least.
#[derive(Clone, Copy, Debug)]
pub struct Varied(pub RandomTokens, pub usize);

impl Varied {
    /// The tokens of a micro-batch.
    fn of(&self, step: u64, micro_batch: MicroBatch) -> RandomTokens {
        let draws = rng::philox([6, 6], [step as u32, micro_batch.0, 0, 0]);
        let up_to = |least: usize, most: usize, draw: u32| least + draw as usize % (most + 1 - least);
        let rows = up_to(self.1, self.0.rows, draws[0]);
        RandomTokens { rows, seq: up_to(1, self.0.seq, draws[1]), ..self.0 }
    }
}

impl DataSource for Varied {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        self.of(step, micro_batch).micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0.shapes()
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.of(step, micro_batch).shapes()
    }
}

/// Tokens in documents that are kept apart: about every fourth token begins one.
pub struct Apart(pub Arc<dyn DataSource>);

impl DataSource for Apart {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        self.0.micro_batch(step, micro_batch)
    }

    fn documents(&self, step: u64, micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        let (shape, _) = self.shapes_of(step, micro_batch);
        let mut starts = Tensor::scratch_ids(shape.dims());
        let time = shape.last();
        for (row, starts) in (0..).zip(starts.ids_mut().chunks_exact_mut(time)) {
            let mut start = 0;
            for (at, own) in (0..).zip(starts) {
                let draw = rng::philox([8, 8], [step as u32, micro_batch.0, row, at])[0];
                start = if draw.is_multiple_of(4) { at } else { start };
                *own = start;
            }
        }
        Ok(Some(starts))
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0.shapes()
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.0.shapes_of(step, micro_batch)
    }
}

/// The same inputs and targets in each micro-batch.
pub struct Fixed(pub Tensor, pub Tensor);

impl DataSource for Fixed {
    fn micro_batch(&self, _: u64, _: MicroBatch) -> Result<(Tensor, Tensor)> {
        Ok((self.0.clone(), self.1.clone()))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (*self.0.shape(), *self.1.shape())
    }
}

/// This number, `count` times.
pub fn repeated(number: f32, count: usize) -> Tensor {
    Tensor::from_vec(&[count], vec![number; count]).expect("it fills the shape")
}

struct Changed<F>(Arc<dyn DataSource>, F);

impl<F> DataSource for Changed<F>
where
    F: Fn(&dyn DataSource, u64, MicroBatch) -> Result<(Tensor, Tensor)> + Send + Sync + 'static,
{
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        (self.1)(self.0.as_ref(), step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0.shapes()
    }
}

/// Data with other micro-batches: those that `change` makes of them.
pub fn changed(
    data: Arc<dyn DataSource>,
    change: impl Fn(&dyn DataSource, u64, MicroBatch) -> Result<(Tensor, Tensor)> + Send + Sync + 'static,
) -> Arc<dyn DataSource> {
    Arc::new(Changed(data, change))
}

/// The same batch in every step, so that a model can learn it.
pub fn same_batch(data: Arc<dyn DataSource>) -> Arc<dyn DataSource> {
    changed(data, |data, _, micro_batch| data.micro_batch(0, micro_batch))
}

/// Gradient groups of a recipe: up to this number of replicas have equal bits.
const GROUPS: u32 = 8;

/// A way to train: everything except the stages and the schedule.
pub struct Recipe {
    pub model: Box<dyn Fn() -> Model>,
    pub data: Arc<dyn DataSource>,
    pub micro_batches: u32,
    pub optimizer: AdamW,
    pub learning_rate: LearningRate,
    pub clip: Option<f64>,
    pub threads_per_rank: usize,
    pub replicas: u32,
    pub gradient_groups: u32,
    pub shards: u32,
    pub shard_groups: u32,
    pub sharded: bool,
    /// The number format of sums of gradients.
    pub sums: DType,
    pub sync: SyncMode,
    /// Of all ranks.
    pub place: Place,
}

/// Random numbers with random classes.
#[derive(Clone, Copy, Debug)]
pub struct RandomRows {
    pub rows: usize,
    pub width: usize,
    pub classes: u32,
}

impl DataSource for RandomRows {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let draw = |index: usize| rng::philox([9, 9], [step as u32, micro_batch.0, index as u32, 0])[0];
        let numbers = (0..self.rows * self.width).map(|index| rng::unit(draw(index)) - 0.5);
        let classes = (0..self.rows).map(|row| draw(1_000_000 + row) % self.classes);
        Ok((
            Tensor::from_vec(&[self.rows, self.width], numbers.collect())?,
            Tensor::from_ids(&[self.rows], classes.collect())?,
        ))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[self.rows, self.width]), Shape::ids(&[self.rows]))
    }
}

/// A small GPT with every risky feature: dropout, clipping, weight decay, a warm-up.
pub fn recipe(layers: usize, tied: bool, micro_batches: u32) -> Recipe {
    let gpt = Gpt { vocab: 17, dim: 16, layers, heads: 2, context: 8, dropout: 0.1, tied, seed: 3 };
    gpt_recipe(gpt, 2, micro_batches)
}

/// Any GPT. A micro-batch has `rows` rows, each as long as the context.
pub fn gpt_recipe(gpt: Gpt, rows: usize, micro_batches: u32) -> Recipe {
    let data = RandomTokens { rows, seq: gpt.context, vocab: gpt.vocab as u32 };
    recipe_of(move || gpt.model(), Arc::new(data), micro_batches)
}

/// A perceptron so large that threads share all its work, with sizes that nothing divides.
pub fn odd_mlp() -> Recipe {
    let data = RandomRows { rows: 307, width: 301, classes: 103 };
    let mlp = Mlp { sizes: vec![301, 293, 103], dropout: 0.1, seed: 5 };
    recipe_of(move || mlp.model(), Arc::new(data), 2)
}

/// Any model on any data.
pub fn recipe_of(
    model: impl Fn() -> StageResult<Model> + 'static,
    data: Arc<dyn DataSource>,
    micro_batches: u32,
) -> Recipe {
    Recipe {
        model: Box::new(move || model().expect("the settings fit")),
        data,
        micro_batches,
        optimizer: AdamW::default(),
        learning_rate: LearningRate::WarmupCosine {
            peak: 0.01,
            floor: 0.001,
            warmup_steps: 2,
            total_steps: 10,
        },
        clip: Some(0.5),
        threads_per_rank: 1,
        replicas: 1,
        gradient_groups: GROUPS,
        shards: 1,
        shard_groups: 1,
        sharded: false,
        sums: DType::F32,
        sync: SyncMode::Reduce,
        place: Place::default(),
    }
}

pub fn named(name: &str, ranks: u32, micro_batches: u32) -> Schedule {
    Schedule::named(name, ranks, micro_batches).expect("the sizes fit")
}

/// Does some steps.
pub fn train<S: Stage>(pipeline: &mut Pipeline<S>, steps: u64) {
    (0..steps).for_each(|_| drop(pipeline.step().expect("the step succeeds")));
}

/// The hash of all weights after some steps.
pub fn trained<S: Stage>(pipeline: &mut Pipeline<S>, steps: u64) -> String {
    train(pipeline, steps);
    pipeline.weights_hash().expect("the pipeline runs")
}

impl Recipe {
    /// A pipeline with this many stages, one per rank.
    pub fn pipeline(&self, stages: u32, schedule: &str) -> Pipeline<Sequential> {
        self.launch(named(schedule, stages, self.micro_batches)).expect("it starts")
    }

    pub fn launch(&self, schedule: Schedule) -> Result<Pipeline<Sequential>> {
        self.builder(schedule).launch()
    }

    /// A builder with everything that a launch needs.
    pub fn builder(&self, schedule: Schedule) -> PipelineBuilder<Sequential> {
        self.builder_of(schedule, |stage| stage)
    }

    /// A builder whose stages are made of the model's.
    pub fn builder_of<S: Stage<Wire = Tensor>>(
        &self,
        schedule: Schedule,
        make: impl FnMut(StageBuilder<Sequential>) -> StageBuilder<S>,
    ) -> PipelineBuilder<S> {
        let stages = self.model().split(schedule.stages()).expect("the model can be cut");
        let builder = Pipeline::builder()
            .schedule(schedule)
            .stages(stages.into_iter().map(make).collect())
            .loss(self.loss())
            .data(Arc::clone(&self.data))
            .optimizer(self.optimizer)
            .learning_rate(self.learning_rate)
            .threads_per_rank(self.threads_per_rank)
            .replicas(self.replicas)
            .gradient_groups(self.gradient_groups)
            .shards(self.shards)
            .sharded(self.sharded)
            .sums(self.sums)
            .sync(self.sync)
            .places(vec![self.place])
            .pin(false);
        match self.clip {
            Some(clip) => builder.clip(clip),
            None => builder,
        }
    }

    /// The hash of all weights after some steps of a pipeline with one stage per rank.
    pub fn hash(&self, stages: u32, schedule: &str, steps: u64) -> String {
        self.hash_on(named(schedule, stages, self.micro_batches), steps)
    }

    /// The hash of all weights after some steps of this schedule.
    pub fn hash_on(&self, schedule: Schedule, steps: u64) -> String {
        trained(&mut self.launch(schedule).expect("it starts"), steps)
    }

    /// Fails unless each schedule, with each way to recompute, has these weights after two steps.
    #[track_caller]
    pub fn assert_everywhere(&self, hash: &str) {
        for name in Schedule::names() {
            for how in Recompute::ALL {
                let make = |stage| pipewright::stages::recompute(stage, how);
                let builder = self.builder_of(named(name, 2, self.micro_batches), make);
                let got = trained(&mut builder.launch().expect("it starts"), 2);
                assert_eq!(got, hash, "{name}, {how:?}");
            }
        }
    }

    /// The model, with its shard groups.
    pub fn model(&self) -> Model {
        (self.model)().with_shard_groups(self.shard_groups).expect("a power of two")
    }

    /// The loss, with the shard groups.
    pub fn loss(&self) -> CrossEntropy {
        CrossEntropy::ignoring(IGNORED).with_shard_groups(self.shard_groups).expect("a power of two")
    }

    /// Training without the engine.
    pub fn plain(&self) -> Plain {
        let mut stage = self.model().whole().expect("the model can be built");
        stage.move_to(self.place).expect("the CPU can");
        let plain = Plain::new(stage, Arc::new(self.optimizer), self.learning_rate, self.clip);
        Plain { gradient_groups: self.gradient_groups, sums: self.sums, ..plain }
    }

    /// The hash of all weights after some steps of the plain loop.
    pub fn plain_hash(&self, steps: u64) -> String {
        let mut plain = self.plain();
        for step in 0..steps {
            plain.step(self.data.as_ref(), step, self.micro_batches, &mut self.loss());
        }
        plain.hash()
    }
}

/// A training loop over one stage, written by hand.
pub struct Plain {
    pub stage: Sequential,
    pub gradient_groups: u32,
    sums: DType,
    borders: Option<Borders>,
    optimizer: Arc<dyn Optimizer>,
    learning_rate: LearningRate,
    clip: Option<f64>,
}

impl Plain {
    pub fn new(
        stage: Sequential,
        optimizer: Arc<dyn Optimizer>,
        learning_rate: LearningRate,
        clip: Option<f64>,
    ) -> Self {
        Self {
            stage,
            gradient_groups: GROUPS,
            sums: DType::F32,
            borders: None,
            optimizer,
            learning_rate,
            clip,
        }
    }

    /// One step. Returns the mean loss and the gradient norm.
    pub fn step(
        &mut self,
        data: &dyn DataSource,
        step: u64,
        micro_batches: u32,
        loss: &mut dyn Loss<Tensor>,
    ) -> (f64, f64) {
        let mut total = Score::default();
        let groups = GradientGroups::new(micro_batches, self.gradient_groups);
        let (mut group_sums, format) = (Vec::new(), self.sums);
        for micro_batch in 0..micro_batches {
            let (input, target) = data.micro_batch(step, MicroBatch(micro_batch)).expect("data");
            let at = ForwardContext { step, micro_batch, mode: Mode::Train };
            if let Some(starts) = data.documents(step, MicroBatch(micro_batch)).expect("data") {
                let stage = &mut self.stage;
                let borders = self.borders.get_or_insert_with(|| {
                    let borders = Borders::default();
                    stage.keep_apart(&borders).expect("all layers can");
                    borders
                });
                borders.set(at, starts).expect("they are right");
            }
            let input = self.stage.load(input).expect("load");
            let (output, saved) = self.stage.forward(at, input).expect("forward");
            let (score, grad) = loss.forward(output, target).expect("loss");
            total.add(score);
            let (_, pending) = self.stage.backward_input(saved, grad).expect("backward-input");
            self.stage.backward_weight(pending).expect("backward-weight");
            if groups.ends_with(micro_batch) {
                let sums = self.stage.parameters().into_iter();
                let sums = sums.map(|parameter| {
                    parameter.end_group().expect("the CPU can");
                    let mut sum = parameter.grad.to_vec();
                    rounded(&mut sum, format);
                    parameter.zero_grad().expect("the CPU can");
                    sum
                });
                group_sums.push(sums.collect());
            }
        }
        let sum = tree(group_sums, self.sums);
        for (parameter, sum) in self.stage.parameters().into_iter().zip(sum) {
            parameter.grad.copy_from_slice(&sum);
        }
        let mut parameters = self.stage.parameters();
        let mut first_of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, parameter) in parameters.iter().enumerate() {
            first_of.entry(parameter.name().to_owned()).or_default().push(index);
        }
        for sites in first_of.values().filter(|sites| sites.len() > 1) {
            let mut sum = parameters[sites[0]].grad.clone();
            for &site in &sites[1..] {
                sum.iter_mut().zip(&*parameters[site].grad).for_each(|(sum, grad)| *sum += grad);
            }
            sites.iter().for_each(|&site| parameters[site].grad.copy_from_slice(&sum));
        }
        let counted = |index: &usize| first_of.values().any(|sites| sites[0] == *index);
        let squares: f64 = (0..parameters.len())
            .filter(counted)
            .map(|index| &parameters[index])
            .flat_map(|parameter| parameter.all_grad_squares())
            .sum();
        let norm = squares.sqrt() / total.weight;
        let clip = self.clip.map_or(1.0, |limit| clip_factor(norm, limit));
        let learning_rate = self.learning_rate.at(step);
        for parameter in parameters.iter_mut().filter(|parameter| !parameter.is_frozen()) {
            let by = Update { step: step + 1, learning_rate, scale: clip / total.weight, micro_batches };
            let update = |together: &mut Together| update(self.optimizer.as_ref(), parameter, by, together);
            Together::now(update).expect("the CPU can");
            parameter.grad.fill(0.0);
        }
        (total.mean(), norm)
    }

    /// SHA-256 of all weights in name order.
    pub fn hash(&mut self) -> String {
        let by_name: BTreeMap<String, &Parameter> = self
            .stage
            .parameters()
            .into_iter()
            .map(|parameter| (parameter.name().to_owned(), &*parameter))
            .collect();
        let mut hash = Sha256::new();
        for parameter in by_name.values() {
            parameter.value.iter().for_each(|number| hash.update(number.to_le_bytes()));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Rounds sums to a format.
fn rounded(sums: &mut [f32], format: DType) {
    if format == DType::Bf16 {
        let mut bytes: Vec<u8> = sums.iter().flat_map(|number| number.to_ne_bytes()).collect();
        round_sums(&mut bytes);
        let numbers = bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = number);
    }
}

/// The sum of the gradient groups: neighbours are added, then neighbours of these sums, and so on. An odd one
/// at the end waits.
fn tree(mut sums: Vec<Vec<Vec<f32>>>, format: DType) -> Vec<Vec<f32>> {
    while sums.len() > 1 {
        let mut rest = sums.into_iter();
        let mut next = Vec::new();
        while let Some(mut sum) = rest.next() {
            if let Some(other) = rest.next() {
                let numbers = sum.iter_mut().flatten().zip(other.into_iter().flatten());
                numbers.for_each(|(number, more)| *number += more);
                sum.iter_mut().for_each(|sum| rounded(sum, format));
            }
            next.push(sum);
        }
        sums = next;
    }
    sums.pop().expect("a batch has a micro-batch")
}

/// A GPT with a parameter of several pieces, whose sum over replicas has several buckets.
pub fn large(tied: bool, micro_batches: u32) -> Recipe {
    let gpt = Gpt { vocab: 700, dim: 144, layers: 1, heads: 2, context: 8, dropout: 0.1, tied, seed: 3 };
    gpt_recipe(gpt, 1, micro_batches)
}
