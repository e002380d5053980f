//! A model trains with validation and checkpoints. Run again, it goes on where it was left: with
//! `cargo run --example run -- 400`, for 400 steps in all.

use std::sync::Arc;

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::run::{Event, Flow, Interrupt, Progress, Resume, Run};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::Mlp;
use pipewright::stages::{Shape, Tensor, rng};
use pipewright::{Pipeline, Result};

/// Eight random numbers from -1 to 1 a micro-batch, and their squares.
struct Squares(u32);

impl DataSource for Squares {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let bits = |row| rng::philox([self.0, 0], [step as u32, micro_batch.0, row, 0])[0];
        let numbers: Vec<f32> = (0..8).map(|row| bits(row) as f32 / 2f32.powi(31) - 1.0).collect();
        let squares = numbers.iter().map(|number| number * number).collect();
        Ok((
            Tensor::from_vec(&[8, 1], numbers)?,
            Tensor::from_vec(&[8, 1], squares)?,
        ))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[8, 1]), Shape::f32(&[8, 1]))
    }
}

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).and_then(|steps| steps.parse().ok());
    let model = Mlp {
        sizes: vec![1, 32, 1],
        dropout: 0.0,
        seed: 1,
    }
    .model()?;
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 4)?) // 2 ranks, 4 micro-batches a step
        .stages(model.split(2)?)
        .loss(MeanSquaredError::default())
        .data(Arc::new(Squares(1)))
        .launch()?;
    Run::new("runs/squares")
        .steps(steps.unwrap_or(200))
        .resume(Resume::IfThere)
        .validate(Arc::new(Squares(2)), 4, 50) // 4 micro-batches, every 50 steps
        .save_every(100)
        .progress(Progress::default().every(50).unit("numbers"))
        .interrupt(Interrupt::on_signals(|| eprintln!("saving after this step"))?)
        .on(|event| match event {
            Event::Validation { evaluation, .. } if evaluation.loss < 1e-6 => Flow::Stop,
            _ => Flow::Continue,
        })
        .train(&mut pipeline)?;
    Ok(())
}
