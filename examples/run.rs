//! A model of one's own trains with validation and checkpoints. Run again, it goes on where it was left: with
//! `cargo run --example run -- 400`, for 400 steps in all.

use std::sync::Arc;

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::run::{Event, Interrupt, Next, Progress, Resume, Run, Validation};
use pipewright::schedule::Schedule;
use pipewright::stages::layers::{Gelu, GeluForm, Linear};
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::{LayerSpec, Model};
use pipewright::stages::{Init, Shape, Tensor, rng};
use pipewright::{Pipeline, Result};

/// Eight random numbers from -1 to 1 a micro-batch, and their squares.
struct Squares(u32);

impl DataSource for Squares {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let bits = |row| rng::philox([self.0, 0], [step as u32, micro_batch.0, row, 0])[0];
        let numbers: Vec<f32> = (0..8).map(|row| bits(row) as f32 / 2f32.powi(31) - 1.0).collect();
        let squares = numbers.iter().map(|number| number * number).collect();
        let column = |numbers| Tensor::from_vec(&[8, 1], numbers);
        Ok((column(numbers)?, column(squares)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[8, 1]), Shape::f32(&[8, 1]))
    }
}

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).and_then(|steps| steps.parse().ok());
    let linear = |name, sizes, bound| move || Linear::new(name, sizes, Init::Uniform(bound), 1);
    let model = Model::new(vec![
        LayerSpec::of("up", 1.0, linear("up", [1, 32], 1.0)),
        LayerSpec::of("gelu", 1.0, || Gelu::new("gelu", GeluForm::Tanh)),
        LayerSpec::of("down", 1.0, linear("down", [32, 1], 0.2)),
    ]);
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 4)?) // 2 ranks, 4 micro-batches a step
        .stages(model.split(2)?)
        .loss(MeanSquaredError::default())
        .data(Arc::new(Squares(1)))
        .launch()?;
    Run::new("runs/squares")
        .steps(steps.unwrap_or(200))
        .resume(Resume::IfThere)
        .validate(Validation::new(Arc::new(Squares(2))).micro_batches(4).every(50))
        .progress(Progress::default().every(50))
        .interrupt(Interrupt::on_signals(|| eprintln!("saving after this step"))?)
        .on(|event| match event {
            Event::Validation { evaluation, .. } if evaluation.loss < 1e-6 => Next::Stop,
            _ => Next::Continue,
        })
        .train(&mut pipeline)?;
    Ok(())
}
