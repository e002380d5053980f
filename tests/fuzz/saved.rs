//! What a run has written, and reads to go on: checkpoints and `run.json`.

use pipewright::checkpoint::{Checkpoint, Key, Stored, copy_to};
use pipewright::checksum::Checksum;
use pipewright::run::{Resume, Run, RunDir};
use pipewright::store::Store;

use super::*;
use crate::common::*;

/// The description of a checkpoint of an early version, which has no checksums: so what is behind them is
/// read.
const OLD: &str = r#"{"format": 1, "step": 2, "config": ""}"#;

/// What an encrypted checkpoint is written and read with.
const KEY: &str = "7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f";

/// Does something with a key in use, or with none. The whole process has one key.
fn keyed<T>(has_key: bool, act: impl FnOnce() -> T) -> T {
    Key::set(has_key.then(|| Key::parse("the test", KEY).expect("a key")));
    let done = act();
    Key::set(None);
    done
}

/// A run directory with a checkpoint after two steps.
fn saved(has_key: bool) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let place = RunDir::at(folder.path()).checkpoint(2);
    fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    let recipe = recipe(1, false, 2);
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    keyed(has_key, || pipeline.save(&place)).expect("it is saved");
    (folder, place)
}

fn checkpoints(name: &'static str, file: &str, description: Option<&str>) {
    let (_folder, place) = saved(false);
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
    let _alone = alone();
    checkpoints("checkpoint_descriptions", "state.json", None);
}

#[test]
fn checkpoint_models() {
    let _alone = alone();
    checkpoints("checkpoint_models", "model.safetensors", Some(OLD));
}

#[test]
fn checkpoint_optimizers() {
    let _alone = alone();
    checkpoints("checkpoint_optimizers", "optimizer.safetensors", Some(OLD));
}

/// What is not as it was written is refused, whatever else is right.
fn encrypted(name: &'static str, file: &str) {
    let (_folder, place) = saved(true);
    let path = place.join(file);
    let whole = contents(&path);
    let recipe = recipe(1, false, 2);
    let mut pipeline = recipe.pipeline(1, "gpipe");
    Target { name, seeds: vec![whole.clone()], words: "", inputs: 300, bytes: 64 * MIB, blocks: 1_000_000 }
        .fuzz(|input| {
            write(&path, input);
            let loaded = keyed(true, || {
                let verified = told(Checkpoint::open(&place).and_then(|checkpoint| checkpoint.verify()));
                let loaded = told(pipeline.load(&place));
                verified.map(|_| ()).and(loaded)
            });
            assert_eq!(loaded.is_ok(), input == whole, "{loaded:?}");
            loaded
        });
}

#[test]
fn encrypted_descriptions() {
    let _alone = alone();
    encrypted("encrypted_descriptions", "state.json");
}

#[test]
fn encrypted_models() {
    let _alone = alone();
    encrypted("encrypted_models", "model.safetensors");
}

/// The manifest of a copy, with a checksum that is right: so what is behind it is read.
#[test]
fn checkpoint_manifests() {
    let _alone = alone();
    let (folder, place) = saved(false);
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
    let _alone = alone();
    let (folder, _) = saved(false);
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
