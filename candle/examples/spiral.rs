//! A model of candle's, in two stages, learns on which of three arms of a spiral a point is.
use std::sync::Arc;

use candle_nn::{Activation::Relu, linear, seq};
use pipewright::stages::{Shape, Tensor, loss::CrossEntropy, models::Model, rng};
use pipewright::{Pipeline, Result, data::DataSource, id::MicroBatch, schedule::Schedule};
use pipewright_candle::unit;

/// 64 random points a micro-batch, and their arms.
struct Spiral(u32);

impl DataSource for Spiral {
    fn micro_batch(&self, step: u64, MicroBatch(at): MicroBatch) -> Result<(Tensor, Tensor)> {
        let draw = |row| rng::philox([self.0, 0], [step as u32, at, row, 0]);
        let arm = |row| draw(row)[0] % 3;
        let point = |row| {
            let radius = rng::unit(draw(row)[1]);
            let (sin, cos) = (6.0 * radius + 2.1 * arm(row) as f32).sin_cos();
            [radius * cos, radius * sin]
        };
        let points = Tensor::from_vec(&[64, 2], (0..64).flat_map(point).collect())?;
        Ok((points, Tensor::from_ids(&[64], (0..64).map(arm).collect())?))
    }
    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[64, 2]), Shape::ids(&[64]))
    }
}

fn main() -> Result<()> {
    let one = unit("one", 256.0, 1, |w| Ok(seq().add(linear(2, 64, w)?).add(Relu)));
    let two = unit("two", 8192.0, 1, |w| Ok(seq().add(linear(64, 64, w)?).add(Relu)));
    let three = unit("three", 384.0, 1, |w| linear(64, 3, w));
    let pipeline = Pipeline::builder().schedule(Schedule::one_f_one_b(2, 4)?);
    let pipeline = pipeline.stages(Model::new(vec![one, two, three]).split(2)?);
    let pipeline = pipeline.loss(CrossEntropy::default());
    let mut pipeline = pipeline.data(Arc::new(Spiral(1))).launch()?;
    (0..500).try_for_each(|_| pipeline.step().map(drop))?;
    Ok(println!("{}", pipeline.evaluate(Arc::new(Spiral(2)), 16)?))
}
