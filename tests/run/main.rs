//! The training loop as a user of the library calls it.

#[path = "../common/folders.rs"]
mod folders;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/passing.rs"]
mod passing;

mod directory;
mod lock;
mod metrics;
mod references;
mod replanning;
mod resume;
mod saving;
mod settings;
mod tensorboard;
mod warnings;
mod without_barrier;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use folders::names;
use has::has;
use passing::{Ones, PassOn};
use pipewright::data::DataSource;
use pipewright::error::{CheckpointError, RunError};
use pipewright::id::MicroBatch;
use pipewright::run::{
    Ended, Event, Forecast, Next, Resume, Run, RunDir, Task, Validation, ValidationSource,
};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{Loss, MeanSquaredError};
use pipewright::stages::models::Mlp;
use pipewright::stages::{Sequential, Shape, Tensor};
use pipewright::{Error, Pipeline, PipelineBuilder, Result};
use tempfile::TempDir;

/// Four numbers per micro-batch. The targets are the numbers times this factor.
struct Times(f32);

impl DataSource for Times {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let number = |row: u64| ((7 * step + 3 * u64::from(micro_batch.0) + row) % 11) as f32 / 11.0;
        let numbers: Vec<f32> = (0..4).map(number).collect();
        let targets = numbers.iter().map(|number| number * self.0).collect();
        Ok((Tensor::from_vec(&[4, 1], numbers)?, Tensor::from_vec(&[4, 1], targets)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[4, 1]), Shape::f32(&[4, 1]))
    }
}

fn pipeline() -> Pipeline<Sequential> {
    pipeline_on(Times(2.0))
}

fn pipeline_on(data: impl DataSource + 'static) -> Pipeline<Sequential> {
    pipeline_of(data, MeanSquaredError::default())
}

fn pipeline_of(
    data: impl DataSource + 'static,
    loss: impl Loss<Tensor> + Clone + Sync,
) -> Pipeline<Sequential> {
    builder().loss(loss).data(Arc::new(data)).launch().expect("the parts fit")
}

/// A pipeline of two ranks that learns to double numbers.
fn builder() -> PipelineBuilder<Sequential> {
    let sizes = vec![1, 4, 1];
    let (dropout, seed) = (0.0, 1);
    let model = Mlp { sizes, dropout, seed }.model().expect("the sizes fit");
    Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 2).expect("two ranks"))
        .stages(model.split(2).expect("two stages"))
        .loss(MeanSquaredError::default())
        .data(Arc::new(Times(2.0)))
        .pin(false)
}

/// A folder for a run, and what is in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("run")
    }

    fn dir(&self) -> RunDir {
        RunDir::at(self.path())
    }

    fn run(&self) -> Run {
        Run::new(self.path())
    }

    /// A run of this many steps.
    fn train(&self, steps: u64) {
        let run = self.run().steps(steps).save_every(2).resume(Resume::IfThere);
        run.train(&mut pipeline()).expect("it trains");
    }

    /// The names of the checkpoints.
    fn checkpoints(&self) -> Vec<u64> {
        let step = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            name.strip_prefix("step-").and_then(|step| step.parse().ok()).expect("a step")
        };
        let all = self.dir().checkpoints().expect("they are listed");
        all.iter().map(step).collect()
    }

    /// All names beside the checkpoints.
    fn checkpoints_and_others(&self) -> Vec<String> {
        names(&self.path().join("checkpoints"))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).expect("the file is there")
    }
}

/// Two micro-batches of targets that are the numbers times this.
fn validation(factor: f32) -> Validation {
    Validation::new(Arc::new(Times(factor))).micro_batches(2)
}

#[test]
fn the_loss_on_several_sources_is_the_mean_over_their_targets_and_each_is_told() {
    let place = Place::new();
    let source = |name: &str, factor, micro_batches| ValidationSource {
        name: name.to_owned(),
        source: Arc::new(Times(factor)),
        micro_batches,
    };
    let told = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&told);
    let validation = Validation::on_each(vec![source("double", 2.0, 1), source("triple", 3.0, 3)]);
    let run = place.run().steps(2).validate(validation).on(move |event| {
        if let Event::Validation { evaluation, sources, .. } = event {
            note.borrow_mut().push((**evaluation, sources.to_vec()));
        }
    });
    run.train(&mut pipeline()).expect("it trains");
    let told = told.borrow();
    let [(all, each)] = &told[..] else { panic!("one validation: {told:?}") };
    let names: Vec<&str> = each.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["double", "triple"]);
    assert_eq!((each[0].1.weight, each[1].1.weight, all.weight), (4.0, 12.0, 16.0));
    assert_eq!(all.loss, (each[0].1.loss * 4.0 + each[1].1.loss * 12.0) / 16.0);
    assert!(each[0].1.loss < each[1].1.loss, "it was trained to double");
}

/// All files in a folder, with their bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => found.push((path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    found.sort();
    found
}

#[test]
fn listeners_hear_steps_validations_checkpoints_and_the_end_in_order() {
    let place = Place::new();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&heard);
    let run = place.run().steps(4).save_every(3).save_beside(false).validate(validation(2.0).every(2));
    let outcome = run
        .on(move |event| {
            note.borrow_mut().push(match event {
                Event::Step(report) => format!("step {}", report.step),
                Event::Validation { step, best, .. } => format!("validation {step} {best}"),
                Event::Checkpoint { step, .. } => format!("checkpoint {step}"),
                Event::End(outcome) => format!("end {}", outcome.steps),
                other => format!("{other:?}"),
            });
        })
        .train(&mut pipeline())
        .expect("it trains");
    assert_eq!((outcome.ended, outcome.trained), (Ended::Done, 4));
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let expected = [
        "step 0",
        "step 1",
        "validation 2 true",
        "checkpoint 2",
        "step 2",
        "checkpoint 3",
        "step 3",
        "validation 4 true",
        "checkpoint 4",
        "end 4",
    ];
    assert_eq!(*heard.borrow(), expected);
}

#[test]
fn a_listener_stops_the_run_which_is_saved_where_it_stopped() {
    let place = Place::new();
    let stop = |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 2 => Next::Stop,
        _ => Next::Continue,
    };
    let run = place.run().steps(9).on(stop);
    let outcome = run.train(&mut pipeline()).expect("it trains");
    assert_eq!((outcome.ended, outcome.steps), (Ended::Stopped, 3));
    assert_eq!(place.checkpoints(), [3]);
}

#[test]
fn the_best_checkpoint_is_kept_beside_the_newest_and_run_json_names_both() {
    let place = Place::new();
    // Each step brings the model nearer to a factor of 2, and away from -1: the first validation is the best.
    let away = validation(-1.0).every(5);
    let run = place.run().steps(40).save_every(5).keep(1).validate(away);
    let outcome = run.train(&mut pipeline()).expect("it trains");
    let best = outcome.best.expect("there were validations");
    assert_eq!(best.step, 5);
    assert_eq!(place.checkpoints(), [5, 35, 40], "the best, the newest that is proved good, the newest");
    assert_eq!(place.dir().best().expect("it is read"), Some(best));
    let mark: serde_json::Value = serde_json::from_str(&place.read("run.json")).expect("JSON");
    assert_eq!(mark["last"], "checkpoints/step-00000040");
    assert_eq!(mark["best"], "checkpoints/step-00000005");
}

#[test]
fn a_forecast_counts_the_ranks_of_all_replicas() {
    // Replica 0 has one of the three micro-batches and replica 1 the two others.
    let pass = Duration::from_millis(10);
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::one_f_one_b(1, 3).expect("one rank"))
        .replicas(2)
        .gradient_groups(2)
        .stages(vec![PassOn::calling(move |_| std::thread::sleep(pass))])
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .pin(false)
        .launch()
        .expect("the parts fit");
    let place = Place::new();
    let run = place.run().steps(6).forecast(Forecast::by_passes());
    let outcome = run.train(&mut pipeline).expect("it trains");
    let predicted = outcome.forecast.expect("there were steps enough").predicted;
    assert!(predicted.seconds >= 2.0 * pass.as_secs_f64(), "{predicted}");
    assert!(predicted.bubble > 0.1, "one of two ranks is idle half of the time: {predicted}");
}

#[test]
fn a_forecast_tells_a_step_s_time_and_bubble_as_numbers() {
    let place = Place::new();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&heard);
    let listen = move |event: &Event<'_>| {
        if let Event::Predicted(predicted) = event {
            note.borrow_mut().push(*predicted);
        }
    };
    let run = place.run().steps(8).forecast(Forecast::by_passes()).on(listen);
    let outcome = run.train(&mut pipeline()).expect("it trains");
    let report = outcome.forecast.expect("there were steps enough");
    assert_eq!(*heard.borrow(), [report.predicted]);
    assert!(report.predicted.seconds > 0.0 && report.measured.seconds > 0.0);
    assert!((0.0..1.0).contains(&report.measured.bubble), "{report}");
}
