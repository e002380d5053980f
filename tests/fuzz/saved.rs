//! What a run has written, and reads to go on: checkpoints and `run.json`.

use pipewright::checkpoint::Checkpoint;
use pipewright::run::{Resume, Run, RunDir};

use super::*;
use crate::common::*;

/// The description of a checkpoint of an early version, which has no checksums: so what is behind them is
/// read.
const OLD: &str = r#"{"format": 1, "step": 2, "config": ""}"#;

/// A run directory with a checkpoint after two steps.
fn saved() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let place = RunDir::at(folder.path()).checkpoint(2);
    fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    let recipe = recipe(1, false, 2);
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    pipeline.save(&place).expect("it is saved");
    (folder, place)
}

fn checkpoints(name: &'static str, file: &str, description: Option<&str>) {
    let (_folder, place) = saved();
    if let Some(description) = description {
        write(&place.join("state.json"), description.as_bytes());
    }
    let path = place.join(file);
    let recipe = recipe(1, false, 2);
    let mut pipeline = recipe.pipeline(1, "gpipe");
    Target {
        name,
        seeds: vec![contents(&path)],
        words: "F32, shape, data_offsets, format, step, files, model.safetensors, exp_avg",
        inputs: 300,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let verified = told(Checkpoint::open(&place).and_then(|checkpoint| checkpoint.verify()));
        let loaded = told(pipeline.load(&place));
        verified.map(|_| ()).and(loaded)
    });
}

#[test]
fn checkpoint_descriptions() {
    checkpoints("checkpoint_descriptions", "state.json", None);
}

#[test]
fn checkpoint_models() {
    checkpoints("checkpoint_models", "model.safetensors", Some(OLD));
}

#[test]
fn checkpoint_optimizers() {
    checkpoints("checkpoint_optimizers", "optimizer.safetensors", Some(OLD));
}

#[test]
fn run_marks() {
    let (folder, _) = saved();
    let path = folder.path().join("run.json");
    let mark = r#"{
  "format": 1,
  "last": "checkpoints/step-00000002",
  "best": "checkpoints/step-00000002",
  "best_validation": { "step": 2, "validation_loss": 1.5 },
  "validation": "4 micro-batches"
}"#;
    Target {
        name: "run_marks",
        seeds: vec![mark.into()],
        words: "format, last, best, validation, ../.., checkpoints/step-00000003",
        inputs: 300,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        told(RunDir::at(folder.path()).best())?;
        told(Run::new(folder.path()).resume(Resume::Always).claim(None)).map(|_| ())
    });
}
