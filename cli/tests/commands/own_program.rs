//! The command, where a run belongs to a program that builds its model in Rust.

use std::sync::Arc;

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::Mlp;
use pipewright::stages::{Sequential, Shape, Tensor};
use pipewright::{Pipeline, Result};

use super::*;

/// Inputs and targets of one number, 1.
struct Ones;

impl DataSource for Ones {
    fn micro_batch(&self, _: u64, _: MicroBatch) -> Result<(Tensor, Tensor)> {
        let ones = Tensor::from_vec(&[1, 1], vec![1.0])?;
        Ok((ones.clone(), ones))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[1, 1]), Shape::f32(&[1, 1]))
    }
}

fn pipeline() -> Pipeline<Sequential> {
    let mlp = Mlp { sizes: vec![1, 4, 1], dropout: 0.0, seed: 1 };
    Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 2).unwrap())
        .stages(mlp.model().unwrap().split(2).unwrap())
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .launch()
        .unwrap()
}

#[test]
fn commands_say_that_only_the_program_knows_the_model_and_the_page_needs_no_model() {
    let place = Place::empty();
    let run = pipewright::run::Run::new(place.path("run")).steps(2).save_every(2);
    run.train(&mut pipeline()).unwrap();
    for args in [&["evaluate", "run"][..], &["sample", "run"], &["export", "run", "model"]] {
        assert_eq!(
            place.run(args).refused(),
            "error: run/checkpoints/step-00000002 has no config that says what the model is: it was saved by \
             a program that builds its model in Rust. Only that program can load it (with `Pipeline::load`) \
             and then evaluate it, write text with it or save its weights\n"
        );
    }
    assert!(!place.path("model").exists());
    assert_eq!(place.run(&["report", "run"]).done().stdout(), "run/report.html\n");
}
