//! What a run has written, and reads to go on: checkpoints and `run.json`.

use pipewright::checkpoint::{Checkpoint, Stored, copy_to};
use pipewright::checksum::Checksum;
use pipewright::run::{Resume, Run, RunDir};
use pipewright::store::Store;

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

/// The manifest of a copy, with a checksum that is right: so what is behind it is read.
#[test]
fn checkpoint_manifests() {
    let (folder, place) = saved();
    let copies = folder.path().join("copies");
    let store = Store::open(copies.to_str().expect("it is text")).expect("a folder is a store");
    copy_to(&place, &store).expect("copied");
    let path = copies.join("step-00000002.json");
    let seal = |sum: Checksum| format!(",\n  \"checksum\": \"{sum}\"\n}}\n");
    let mut manifest = contents(&path);
    manifest.truncate(manifest.len() - seal(Checksum::of(&[])).len());
    let fetched = folder.path().join("fetched").join("step-00000002");
    Target {
        name: "checkpoint_manifests",
        seeds: vec![manifest],
        words: "format, step, files, bytes, checksum, model.safetensors, ../../state.json",
        inputs: 300,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&path, &[input, seal(Checksum::of(input)).as_bytes()].concat());
        let Some(newest) = told(Stored::newest(&store))? else { return Ok(()) };
        told(newest.config())?;
        told(newest.fetch(&fetched, &mut |_| ()))
    });
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
