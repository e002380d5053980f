//! Two tiny stages on two ranks learn the square of a number.

use std::sync::Arc;

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::Mlp;
use pipewright::stages::optimizer::LearningRate;
use pipewright::stages::{Shape, Tensor};
use pipewright::{Pipeline, Result};

/// Eight numbers from -1 to 1 a micro-batch, and their squares.
struct Squares;

impl DataSource for Squares {
    fn micro_batch(&self, _step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let number = |row| (8 * micro_batch.0 + row) as f32 / 15.5 - 1.0;
        let input = Tensor::from_vec(&[8, 1], (0..8).map(number).collect())?;
        let target = Tensor::from_vec(&[8, 1], (0..8).map(|row| number(row).powi(2)).collect())?;
        Ok((input, target))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[8, 1]), Shape::f32(&[8, 1]))
    }
}

fn main() -> Result<()> {
    let model = Mlp { sizes: vec![1, 32, 1], dropout: 0.0, seed: 1 }.model()?;
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 4)?)
        .stages(model.split(2)?)
        .loss(MeanSquaredError::default())
        .data(Arc::new(Squares))
        .learning_rate(LearningRate::Constant(0.03))
        .launch()?;
    for _ in 0..10 {
        println!("{}", pipeline.step()?);
    }
    Ok(())
}
