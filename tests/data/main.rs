//! Data sources: what they give, that it depends only on the position, and the errors for files that they
//! cannot use.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use has::has;
use pipewright::data::{
    Corpus, DataSource, Fingerprint, IGNORED, Images, LabelledImages, Share, Width, Windows,
};
use pipewright::id::MicroBatch;
use pipewright::stages::{Shape, Tensor};
use proptest::prelude::*;
use tempfile::TempDir;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn text(bytes: &[u8]) -> Arc<Corpus> {
    let folder = folder(&[("text.txt", bytes)]);
    Arc::new(Corpus::text(&[folder.path().join("text.txt")]).unwrap())
}

fn counting(count: usize) -> Arc<Corpus> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokens.bin");
    fs::write(&path, (0..count as u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    Arc::new(Corpus::tokens(&[path], Width::U32).unwrap())
}

/// Every token, taken through windows of the whole.
fn everything(corpus: &Arc<Corpus>) -> Vec<u32> {
    let count = corpus.count();
    let windows = Windows::even(Arc::clone(corpus), 0..count, 1, count as usize - 1, 1).unwrap();
    let (input, target) = windows.micro_batch(0, MicroBatch(0)).unwrap();
    input.ids().iter().chain(target.ids().last()).copied().collect()
}

fn as_text(tokens: &[u32]) -> String {
    tokens.iter().map(|&token| token as u8 as char).collect()
}

fn message<T>(result: pipewright::Result<T>) -> String {
    let error = result.err().expect("an error");
    assert!(matches!(error, pipewright::Error::Data(_)), "{error:?}");
    error.to_string()
}

#[path = "../common/has.rs"]
mod has;
mod text_files;

mod token_files;

mod windows;

mod images;

mod cifar;

mod fingerprints;

mod loading;

mod rows;
