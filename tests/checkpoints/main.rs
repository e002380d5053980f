//! Checkpoints. Training continues from one with the same bits on any number of stages. A damaged or foreign
//! one is refused by name.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/folders.rs"]
mod folders;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/worlds.rs"]
mod worlds;

mod beside;
mod damage;
mod places;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use has::has;
use pipewright::checkpoint::Checkpoint;
use pipewright::data::{DataSource, Fingerprint};
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::models::Gpt;
use pipewright::stages::{Sequential, Shape, Tensor};
use pipewright::{Error, Pipeline};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

/// A checkpoint of `recipe` after two steps on two stages.
fn saved(recipe: &Recipe) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("step-2");
    let mut pipeline = recipe.pipeline(2, "1f1b");
    train(&mut pipeline, 2);
    pipeline.save(&place).expect("it is saved");
    (folder, place)
}

#[test]
fn training_continues_bit_for_bit_on_any_number_of_stages() {
    for tied in [false, true] {
        let recipe = recipe(3, tied, 3);
        let (_folder, place) = saved(&recipe);
        let expected = recipe.plain_hash(5);
        for (stages, schedule) in [(1, "gpipe"), (2, "1f1b"), (3, "gpipe"), (4, "1f1b")] {
            let mut pipeline = recipe.pipeline(stages, schedule);
            pipeline.load(&place).expect("it loads");
            assert_eq!(pipeline.next_step(), 2);
            assert_eq!(trained(&mut pipeline, 3), expected, "{stages} stages, tied: {tied}");
        }
    }
}

#[test]
fn a_checkpoint_from_before_the_first_step_starts_training() {
    let recipe = recipe(1, true, 2);
    let folder = tempfile::tempdir().expect("a folder");
    recipe.pipeline(2, "gpipe").save(folder.path().join("start")).expect("it is saved");
    let mut pipeline = recipe.pipeline(1, "gpipe");
    pipeline.load(folder.path().join("start")).expect("it loads");
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(2));
}

#[test]
fn nothing_in_a_checkpoint_depends_on_the_stages() {
    let recipe = recipe(3, true, 2);
    let folder = tempfile::tempdir().expect("a folder");
    let contents = |stages| {
        let place = folder.path().join(format!("with-{stages}"));
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        train(&mut pipeline, 1);
        pipeline.save(&place).expect("it is saved");
        let mut files: Vec<PathBuf> =
            fs::read_dir(&place).expect("a folder").map(|entry| entry.expect("entry").path()).collect();
        files.sort();
        let read =
            |path: PathBuf| (path.file_name().expect("a name").to_owned(), fs::read(path).expect("a file"));
        files.into_iter().map(read).collect::<Vec<_>>()
    };
    assert!(contents(1) == contents(4), "the files of one and of four stages are equal");
}

#[test]
fn saving_again_replaces_and_leaves_no_litter() {
    let recipe = recipe(1, false, 2);
    let (folder, place) = saved(&recipe);
    let mut pipeline = recipe.pipeline(1, "gpipe");
    train(&mut pipeline, 1);
    pipeline.save(&place).expect("it replaces");
    let names: Vec<_> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    assert_eq!(names, ["step-2"]);
    pipeline.load(&place).expect("it loads");
    assert_eq!(pipeline.next_step(), 1);
}

#[test]
fn an_interrupted_or_failed_save_leaves_the_last_good_one() {
    let recipe = recipe(1, false, 2);
    let (_folder, place) = saved(&recipe);
    let before = fs::read(place.join("model.safetensors")).expect("it is there");
    let mut pipeline = recipe.pipeline(2, "gpipe");
    train(&mut pipeline, 1);
    // A save that is interrupted leaves its own folder behind. A save that cannot write its state fails with
    // an error.
    let partial = place.with_file_name(".step-2.partial");
    fs::write(&partial, "in the way").expect("written");
    has(&pipeline.save(&place).expect_err("a file is in the way"), &[".step-2.partial"]);
    assert_eq!(fs::read(place.join("model.safetensors")).expect("it is there"), before);
    fs::remove_file(&partial).expect("removed");
    fs::create_dir(&partial).expect("made");
    fs::write(partial.join("model.safetensors"), "half").expect("written");
    pipeline
        .save(&place)
        .expect("the litter of an interrupted save is no obstacle, and the pipeline still runs");
    recipe.pipeline(1, "gpipe").load(&place).expect("whole");
}

#[test]
fn a_save_cut_short_between_its_renames_leaves_the_old_one_to_load() {
    let recipe = recipe(1, false, 2);
    let (_folder, place) = saved(&recipe);
    fs::rename(&place, place.with_file_name(".step-2.old")).expect("renamed");
    let mut pipeline = recipe.pipeline(2, "gpipe");
    pipeline.load(&place).expect("it is found");
    assert_eq!(pipeline.next_step(), 2);
    pipeline.save(&place).expect("it is saved again");
    pipeline.load(&place).expect("whole");
}

/// The error of loading `place` into a fresh pipeline, whose weights must not have changed.
fn refusal(recipe: &Recipe, place: &Path) -> String {
    let mut pipeline = recipe.pipeline(2, "gpipe");
    let before = pipeline.weights_hash().expect("it runs");
    let error = pipeline.load(place).expect_err("it must be refused");
    assert!(matches!(error, Error::Checkpoint(_) | Error::Io { .. }), "{error:?}");
    assert_eq!(pipeline.weights_hash().expect("it still runs"), before);
    pipeline.step().expect("it still trains");
    error.to_string()
}

#[test]
fn a_truncated_file_is_named() {
    let recipe = recipe(1, false, 2);
    for (file, keep) in [
        ("model.safetensors", 4),
        ("model.safetensors", 100),
        ("optimizer.safetensors", 5000),
        ("model.safetensors", 9000),
    ] {
        let (_folder, place) = saved(&recipe);
        let path = place.join(file);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..keep]).expect("written");
        let message = refusal(&recipe, &place);
        has(&message, &[&format!("{}: not a whole file", path.display())]);
        has(&message, &[&format!("it has {keep} bytes")]);
        assert!(message.ends_with("use an earlier checkpoint"), "{message}");
    }
}

#[test]
fn a_missing_folder_and_a_damaged_state_are_named() {
    let recipe = recipe(1, false, 2);
    let message = refusal(&recipe, Path::new("/nowhere/step-1"));
    assert!(message.starts_with("cannot read /nowhere/step-1/state.json"), "{message}");
    let (_folder, place) = saved(&recipe);
    fs::write(place.join("state.json"), "{").expect("written");
    has(&refusal(&recipe, &place), &["state.json: not a whole file"]);
    fs::write(place.join("state.json"), r#"{"format": 9, "step": 1, "config": ""}"#).expect("written");
    has(&refusal(&recipe, &place), &["state.json: its format is 9, this program reads 1 and 2"]);
}

#[test]
fn a_checkpoint_of_another_model_is_refused_by_parameter() {
    let small = recipe(1, false, 2);
    let (_folder, place) = saved(&recipe(2, false, 2));
    has(&refusal(&small, &place), &["`h.1.attn.c_attn.bias` is in it, but the model has no such tensor"]);
    let (_folder, place) = saved(&small);
    let message = refusal(&recipe(2, false, 2), &place);
    has(&message, &["`h.1.attn.c_attn.bias` is missing, the model has it with dimensions [48]"]);
    let wide = Recipe {
        model: Box::new(|| {
            Gpt { vocab: 17, dim: 24, layers: 1, heads: 2, context: 8, dropout: 0.1, tied: false, seed: 3 }
                .model()
                .expect("the settings fit")
        }),
        ..recipe(1, false, 2)
    };
    has(&refusal(&wide, &place), &["`h.0.attn.c_attn.bias` has dimensions [48], the model has [72]"]);
}

/// Turns a checkpoint into one of format 1, which earlier versions wrote without checksums.
fn forget_checksums(place: &Path) {
    let old = r#"{"format": 1, "step": 2, "config": ""}"#;
    fs::write(place.join("state.json"), old).expect("written");
}

/// Rewrites a safetensors file with some tensors left out or added.
fn rewrite(path: &Path, drop: &str, add: &str) {
    let bytes = fs::read(path).expect("it is there");
    let tensors = SafeTensors::deserialize(&bytes).expect("it is whole");
    let extra = TensorView::new(safetensors::Dtype::F32, vec![1], &[0; 4]).expect("four bytes");
    let kept = tensors.tensors().into_iter().filter(|(name, _)| name != drop);
    let all = kept.chain((!add.is_empty()).then(|| (add.to_owned(), extra)));
    let whole = safetensors::serialize(all, None).expect("it serialises");
    fs::write(path, whole).expect("written");
}

#[test]
fn a_missing_and_an_extra_tensor_are_named() {
    let recipe = recipe(1, false, 2);
    for (file, drop, add, problem) in [
        ("model.safetensors", "ln_f.bias", "", "`ln_f.bias` is missing"),
        ("model.safetensors", "", "h.9.x", "`h.9.x` is in it"),
        (
            "optimizer.safetensors",
            "ln_f.bias.exp_avg",
            "",
            "`ln_f.bias.exp_avg` is missing, the optimizer has it",
        ),
        ("optimizer.safetensors", "", "y", "`y` is in it, but the optimizer has no such tensor"),
    ] {
        let (_folder, place) = saved(&recipe);
        rewrite(&place.join(file), drop, add);
        has(&refusal(&recipe, &place), &["the header has the checksum"]);
        // Without checksums the tensors still have to be the model's.
        forget_checksums(&place);
        has(&refusal(&recipe, &place), &[problem, file]);
    }
}

#[test]
fn other_programs_can_read_the_weights() {
    let recipe = recipe(1, true, 2);
    let (_folder, place) = saved(&recipe);
    let bytes = fs::read(place.join("model.safetensors")).expect("it is there");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors reads it");
    assert_eq!(tensors.tensor("h.0.attn.c_attn.weight").expect("it has it").shape(), [16, 48]);
    assert_eq!(tensors.tensor("wte.weight").expect("tied, and there once").shape(), [17, 16]);
    assert!(tensors.tensor("lm_head.weight").is_err());
    let schedule = Schedule::gpipe(1, 2).expect("sizes");
    assert_eq!(recipe.launch(schedule).expect("it starts").next_step(), 0);
}

/// Data that counts how often it was asked for its fingerprint.
struct Counted(Arc<dyn DataSource>, AtomicU32);

impl DataSource for Counted {
    fn micro_batch(&self, step: u64, at: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        self.0.micro_batch(step, at)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0.shapes()
    }

    fn fingerprint(&self) -> pipewright::Result<Fingerprint> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.fingerprint()
    }
}

#[test]
fn data_is_asked_for_its_fingerprint_once() {
    let recipe = recipe(1, false, 2);
    let folder = tempfile::tempdir().expect("a folder");
    let data = Arc::new(Counted(Arc::clone(&recipe.data), AtomicU32::new(0)));
    let builder = recipe.builder(named("gpipe", 1, 2));
    let mut pipeline = builder.data(Arc::clone(&data) as _).launch().expect("it starts");
    for name in ["one", "two", "three"] {
        pipeline.save(folder.path().join(name)).expect("it is saved");
    }
    pipeline.fingerprint().expect("it is known");
    assert_eq!(data.1.load(Ordering::Relaxed), 1);
}
