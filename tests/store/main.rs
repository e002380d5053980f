//! Copies of checkpoints and data in stores of objects: folders, and with the feature `cloud` a real server
//! of S3 behind a proxy that makes faults. Nothing is lost, and nothing half is ever taken as whole.

#[path = "../common/has.rs"]
mod has;
#[cfg(feature = "cloud")]
#[path = "../common/skipped.rs"]
mod skipped;

mod copies;
mod damage;
mod objects;
#[cfg(feature = "cloud")]
mod s3;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use has::has;
use pipewright::checkpoint::{Checkpoint, Stored, copy_to};
use pipewright::data::DataSource;
use pipewright::error::StoreError;
use pipewright::id::MicroBatch;
use pipewright::run::{Resume, Run, RunDir};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::Mlp;
use pipewright::stages::{Sequential, Shape, Tensor};
use pipewright::store::Store;
use pipewright::{Error, Pipeline, Result};
use tempfile::TempDir;

/// Four numbers per micro-batch. From the given step on they are infinite.
struct Numbers {
    finite: u64,
}

impl DataSource for Numbers {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let number = |row: u64| match step < self.finite {
            true => ((7 * step + 3 * u64::from(micro_batch.0) + row) % 11) as f32 / 11.0,
            false => f32::INFINITY,
        };
        let numbers: Vec<f32> = (0..4).map(number).collect();
        let targets = numbers.iter().map(|number| number * 2.0).collect();
        Ok((Tensor::from_vec(&[4, 1], numbers)?, Tensor::from_vec(&[4, 1], targets)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[4, 1]), Shape::f32(&[4, 1]))
    }
}

/// A perceptron of one stage. `width`: of its two inner layers. With 1,500 its checkpoint has more than 8
/// MiB.
fn pipeline_of(width: usize, seed: u64, finite: u64) -> Pipeline<Sequential> {
    let model = Mlp { sizes: vec![1, width, width, 1], dropout: 0.0, seed }.model().expect("the sizes fit");
    Pipeline::builder()
        .schedule(Schedule::one_f_one_b(1, 2).expect("a rank"))
        .stages(model.split(1).expect("a stage"))
        .loss(MeanSquaredError::default())
        .data(Arc::new(Numbers { finite }))
        .pin(false)
        .launch()
        .expect("the parts fit")
}

fn pipeline() -> Pipeline<Sequential> {
    pipeline_of(4, 1, u64::MAX)
}

/// A folder for a run, for copies, and for what is fetched.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn copies(&self) -> Store {
        Store::open(self.at("copies").to_str().expect("it is text")).expect("a folder is a store")
    }

    fn run(&self, store: &Store) -> Run {
        Run::new(self.at("run")).resume(Resume::IfThere).save_every(2).copy_to(store.clone())
    }

    fn dir(&self) -> RunDir {
        RunDir::at(self.at("run"))
    }

    /// Trains a model of this width and this seed for some steps, and saves it.
    fn checkpoint(&self, (width, seed): (usize, u64), steps: u64) -> PathBuf {
        let folder = self.at(&format!("seed-{seed}")).join(format!("step-{steps:08}"));
        let mut pipeline = pipeline_of(width, seed, u64::MAX);
        (0..steps).for_each(|_| drop(pipeline.step().expect("it trains")));
        pipeline.save(&folder).expect("it is saved");
        folder
    }
}

/// The files of a folder by their names.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it is there"));
    let file = |entry: fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
    };
    entries.map(file).collect()
}

/// Fetches the newest checkpoint of a store, and returns its steps and its files.
fn fetched(store: &Store) -> Result<(u64, BTreeMap<String, Vec<u8>>)> {
    let place = Place::new();
    let newest = Stored::newest(store)?.expect("there is one");
    let folder = place.at(&format!("step-{:08}", newest.step()));
    let got = newest.fetch(&folder, &mut |_| ());
    if got.is_err() {
        assert!(fs::read_dir(place.0.path()).expect("it is there").next().is_none(), "nothing is left");
    }
    got?;
    let verified = Checkpoint::open(&folder)?.verify()?;
    assert_eq!(verified.step, newest.step());
    Ok((newest.step(), contents(&folder)))
}

fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => *error,
        error => panic!("{error}"),
    }
}
