//! A model whose layers are divided among shards, and its data.

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::stages::layers::{Linear, OwnRows, RmsNorm};
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::{LayerSpec, Model as Units};
use pipewright::stages::{
    Division, Error as StageError, ForwardContext, Init, Kept, Layer, Mode, Parameter, Result, Shape,
    StageBuilder, Team, rng,
};

use super::*;
use crate::here;

/// The numbers of a row, and the classes.
const WIDTH: usize = 4;
/// The rows of a micro-batch. Two shards have unequal numbers of them.
const ROWS: usize = 5;
/// The shard groups.
const GROUPS: u32 = 2;

/// The loss.
pub(crate) fn loss() -> CrossEntropy {
    CrossEntropy::default().with_shard_groups(GROUPS).expect("a power of two")
}

/// Stages with these numbers of layers.
pub(crate) fn cut(layers: usize, counts: &[usize]) -> Vec<StageBuilder<Sequential>> {
    units(layers).cut(counts).expect("they add up to all layers")
}

/// All layers in one stage.
pub(crate) fn whole(layers: usize) -> Sequential {
    let mut stages = units(layers).cut(&[layers]).expect("a stage");
    stages.remove(0).build().expect("it is built")
}

fn units(count: usize) -> Units {
    let unit = |index: usize| {
        LayerSpec::divided(format!("h.{index}"), 1.0, move |sharding| {
            if here::with(World::builds) == Some(false) {
                return Err(StageError::other("no memory today"));
            }
            let named = |what: &str| format!("h.{index}.{what}");
            let division = Division::new(sharding, WIDTH, &[1])?;
            let mut layers: Vec<Box<dyn Layer>> = Vec::new();
            if index == 0 {
                layers.push(Box::new(OwnRows::of_data("rows", WIDTH)));
            }
            layers.push(Box::new(RmsNorm::new(&named("norm"), WIDTH, 1e-5).divided(sharding)));
            let linear = Linear::new(&named("fc"), [WIDTH, WIDTH], Init::Normal(0.5), 5);
            layers.push(Box::new(Watched { index, linear: linear.with_divided_outputs(&division) }));
            if index + 1 < count {
                layers.push(Box::new(OwnRows::of_outputs(&named("rows"), &division)));
            }
            Ok(layers)
        })
    };
    Units::new((0..count).map(unit).collect()).with_shard_groups(GROUPS).expect("a power of two")
}

/// A linear layer whose passes the world sees.
#[derive(Debug)]
struct Watched {
    index: usize,
    linear: Linear,
}

impl Watched {
    fn pass(&self, what: &'static str, ctx: ForwardContext) -> Result<()> {
        let (step, micro_batch, trains) = (ctx.step, ctx.micro_batch, ctx.mode == Mode::Train);
        here::pass(Pass { what, layer: self.index, step, micro_batch, trains })
    }
}

impl Layer for Watched {
    fn name(&self) -> &str {
        self.linear.name()
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.linear.output_shape(input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.pass(FORWARD, ctx)?;
        self.linear.forward(ctx, input)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        self.pass("backward", saved.ctx)?;
        self.linear.backward_input(saved, grad)
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        self.pass("backward-weight", pending.ctx)?;
        self.linear.backward_weight(pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        here::with(World::visit);
        self.linear.visit_parameters(visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.linear.visit_gradients(visit);
    }

    fn divided_output(&self) -> Option<&Division> {
        self.linear.divided_output()
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        self.linear.join(team)
    }
}

/// Random rows and classes, as the data of other stories says when they come.
#[derive(Debug)]
pub(crate) struct Rows(pub(crate) Arc<Numbers>);

impl DataSource for Rows {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let (numbers, _) = self.0.micro_batch(step, micro_batch)?;
        let draw = |at: usize| rng::philox([9, 7], [step as u32, micro_batch.0, at as u32, 0])[0];
        let number = |at| numbers.f32()[0] + rng::unit(draw(at)) - 0.5;
        let rows = Tensor::from_vec(&[ROWS, WIDTH], (0..ROWS * WIDTH).map(number).collect())?;
        let class = |row| draw(1_000 + row) % WIDTH as u32;
        Ok((rows, Tensor::from_ids(&[ROWS], (0..ROWS).map(class).collect())?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[ROWS, WIDTH]), Shape::ids(&[ROWS]))
    }
}
