//! Encrypted checkpoints: they come back, they show nothing, and what is not as it was is refused.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/worlds.rs"]
mod worlds;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::*;
use has::has;
use pipewright::Pipeline;
use pipewright::checkpoint::{Checkpoint, Key, Stored, copy_to};
use pipewright::stages::Sequential;
use pipewright::store::Store;
use proptest::prelude::*;
use tempfile::TempDir;
use worlds::in_processes;

const FILES: [&str; 3] = ["model.safetensors", "optimizer.safetensors", "state.json"];

/// A key is of the process, so one test at a time has one.
struct Keyed(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Keyed {
    fn with(key: Option<Key>) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Key::set(key);
        Self(alone)
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        Key::set(None);
    }
}

fn key(byte: &str) -> Option<Key> {
    Some(Key::parse("a test", &byte.repeat(32)).expect("64 digits"))
}

/// A model with a tensor of several blocks.
fn pipeline(stages: u32) -> Pipeline<Sequential> {
    large(false, 4).pipeline(stages, "1f1b")
}

/// Saves a trained model with the key in use. Returns its hash.
fn saved(folder: &Path) -> String {
    let mut pipeline = pipeline(2);
    let hash = trained(&mut pipeline, 2);
    pipeline.save(folder).expect("it is saved");
    hash
}

fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("saved");
    (folder, path)
}

fn loaded(folder: &Path, stages: u32) -> pipewright::Result<String> {
    let mut pipeline = pipeline(stages);
    pipeline.load(folder)?;
    pipeline.weights_hash()
}

#[test]
fn an_encrypted_checkpoint_comes_back_on_any_cut_and_trains_on() {
    let _keyed = Keyed::with(key("1c"));
    let (_folder, path) = folder();
    let hash = saved(&path);
    let verified = Checkpoint::open(&path).expect("it opens").verify().expect("it is whole");
    assert!(verified.checksums);
    for stages in [1, 3] {
        assert_eq!(loaded(&path, stages).expect("it is loaded"), hash, "{stages} stages");
    }
    let mut whole = pipeline(1);
    let expected = trained(&mut whole, 4);
    let mut resumed = pipeline(3);
    resumed.load(&path).expect("it is loaded");
    assert_eq!(trained(&mut resumed, 2), expected);
}

#[test]
fn replicas_and_processes_write_one_encrypted_checkpoint() {
    let _keyed = Keyed::with(key("2d"));
    let (_folder, path) = folder();
    let recipe = || Recipe { replicas: 2, sharded: true, ..large(false, 4) };
    let hashes = in_processes(2, |world| {
        let builder = recipe().builder(named("1f1b", 2, 4)).world(world);
        let mut pipeline = builder.launch().expect("it starts");
        let hash = trained(&mut pipeline, 2);
        pipeline.save(&path).expect("it is saved");
        hash
    });
    assert_eq!(loaded(&path, 1).expect("it is loaded"), hashes[0]);
    shows_nothing(&path);
}

#[test]
fn one_that_is_written_beside_steps_or_before_the_first_is_encrypted_too() {
    let _keyed = Keyed::with(key("3e"));
    let (_folder, path) = folder();
    let mut first = pipeline(2);
    let hash = first.weights_hash().expect("it runs");
    first.save(&path).expect("it is saved");
    assert_eq!(loaded(&path, 1).expect("it is loaded"), hash);
    shows_nothing(&path);
    let hash = trained(&mut first, 1);
    first.save_beside(&path).expect("it begins");
    train(&mut first, 1);
    first.wait_until_saved().expect("it ends");
    assert_eq!(loaded(&path, 1).expect("it is loaded"), hash);
    shows_nothing(&path);
}

/// Neither the names of tensors nor the description can be read, and zeros are no zeros.
#[track_caller]
fn shows_nothing(path: &Path) {
    for file in FILES {
        let bytes = fs::read(path.join(file)).expect("it is there");
        let shows = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        for text in [&b"wte.weight"[..], b"data_offsets", b"\"step\"", b"checksum", &[0; 24]] {
            assert!(!shows(text), "{file} shows {text:?}");
        }
    }
}

#[test]
fn an_encrypted_checkpoint_shows_nothing_and_differs_each_time() {
    let _keyed = Keyed::with(key("4f"));
    let (_folder, path) = folder();
    saved(&path);
    shows_nothing(&path);
    let before = FILES.map(|file| fs::read(path.join(file)).expect("it is there"));
    saved(&path);
    for (file, before) in FILES.iter().zip(before) {
        let after = fs::read(path.join(file)).expect("it is there");
        let equal = after.chunks(16).zip(before.chunks(16)).skip(3).filter(|(a, b)| a == b).count();
        assert_eq!(equal, 0, "{file}");
    }
}

#[test]
fn a_missing_key_and_another_one_are_told_apart() {
    let (_folder, path) = folder();
    {
        let _keyed = Keyed::with(key("5a"));
        saved(&path);
    }
    let cure = "name the file with its key (checkpoint.key_file), or give the key as PIPEWRIGHT_KEY";
    for (key, why) in [
        (None, "state.json: it is encrypted, and there is no key: "),
        (key("5b"), "state.json: it is encrypted with another key: "),
    ] {
        let _keyed = Keyed::with(key);
        has(&Checkpoint::open(&path).map(drop).expect_err("refused").to_string(), &[why, cure]);
    }
}

#[test]
fn a_plain_checkpoint_is_read_with_a_key_and_replaced_by_an_encrypted_one() {
    let (_folder, path) = folder();
    let hash = {
        let _keyed = Keyed::with(None);
        saved(&path)
    };
    let _keyed = Keyed::with(key("6b"));
    assert_eq!(loaded(&path, 1).expect("it is loaded"), hash);
    saved(&path);
    shows_nothing(&path);
    Key::set(None);
    // It is one of ours, also for somebody who cannot read it.
    saved(&path);
    assert_eq!(loaded(&path, 1).expect("it is loaded"), hash);
}

#[test]
fn files_of_other_places_are_refused() {
    let _keyed = Keyed::with(key("7c"));
    let (_folder, path) = folder();
    saved(&path);
    let other = path.with_file_name("other");
    let mut pipeline = pipeline(1);
    train(&mut pipeline, 3);
    pipeline.save(&other).expect("it is saved");
    let refused = |what: &str| {
        let opened = Checkpoint::open(&path).and_then(|checkpoint| checkpoint.verify());
        let said = opened.map(drop).expect_err(what).to_string();
        has(&said, &[": not a whole file: ", "; use an earlier checkpoint"]);
        said
    };
    let model = path.join("model.safetensors");
    let own = fs::read(&model).expect("it is there");
    fs::copy(other.join("model.safetensors"), &model).expect("it is copied");
    has(&refused("the model of another checkpoint"), &["has the checksum"]);
    fs::copy(path.join("optimizer.safetensors"), &model).expect("it is copied");
    has(&refused("the optimizer in place of the model"), &["the header was changed after it was encrypted"]);
    for length in [own.len() - 1, own.len() - 70_000, 100, 41, 40, 39, 9, 7, 0] {
        fs::write(&model, &own[..length]).expect("it is written");
        refused(&format!("{length} bytes"));
    }
    fs::write(&model, [&own[..], &[0]].concat()).expect("it is written");
    refused("a byte more");
    fs::write(&model, &own).expect("it is written");
    assert!(Checkpoint::open(&path).and_then(|checkpoint| checkpoint.verify()).is_ok());
}

#[test]
fn a_copy_in_a_store_is_encrypted_as_the_checkpoint_is() {
    let _keyed = Keyed::with(key("8d"));
    let (folder, _) = folder();
    let path = folder.path().join("step-00000002");
    let hash = saved(&path);
    let store = Store::open(&folder.path().join("store").to_string_lossy()).expect("a folder is a store");
    assert!(copy_to(&path, &store).expect("it is copied"));
    let stored = Stored::newest(&store).expect("it is read").expect("it is there");
    assert_eq!(stored.config().expect("it is decrypted"), "");
    let fetched = folder.path().join("fetched").join("step-00000002");
    stored.fetch(&fetched, &mut |_| ()).expect("it is fetched");
    shows_nothing(&fetched);
    assert_eq!(loaded(&fetched, 2).expect("it is loaded"), hash);
    Key::set(None);
    has(&stored.config().expect_err("no key").to_string(), &["it is encrypted, and there is no key"]);
}

#[test]
fn a_text_that_is_no_key_is_refused_and_not_shown() {
    for text in ["", "secret", &"g".repeat(64), &"ab".repeat(31), &"ab".repeat(33), &"é".repeat(32)] {
        let said = Key::parse("key.txt", text).expect_err("refused").to_string();
        has(&said, &["key.txt is no key of checkpoints: 64 hexadecimal digits, as `openssl rand -hex 32`"]);
        assert!(text.is_empty() || !said.contains(text));
    }
    assert!(Key::parse("key.txt", &format!(" {}\n", "aB".repeat(32))).is_ok());
    assert_eq!(format!("{:?}", key("aa")), "Some(Key)");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_changed_byte_is_found(file in 0_usize..3, at: prop::sample::Index, by in 1_u8..=255) {
        let _keyed = Keyed::with(key("9e"));
        let (_folder, path) = folder();
        let mut pipeline = small();
        train(&mut pipeline, 1);
        pipeline.save(&path).expect("it is saved");
        let changed = path.join(FILES[file]);
        let mut bytes = fs::read(&changed).expect("it is there");
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        fs::write(&changed, bytes).expect("it is written");
        let opened = Checkpoint::open(&path).and_then(|checkpoint| checkpoint.verify());
        let said = opened.map(drop).expect_err("a byte has changed").to_string();
        prop_assert!(said.contains(FILES[file]), "{said}");
    }
}

fn small() -> Pipeline<Sequential> {
    recipe(1, false, 2).pipeline(1, "1f1b")
}
