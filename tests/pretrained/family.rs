//! The folder of a family, and what transformers computes with it.

use std::path::PathBuf;

use pipewright::pretrained::start_from;
use pipewright::stages::{Sequential, StageBuilder};

use super::*;
use crate::batches::{Batches, Recorded, floats};

pub(crate) const FAMILIES: [&str; 8] =
    ["llama", "llama3", "padded", "mistral", "mixtral", "qwen2", "qwen3", "gpt2"];

/// The folder of a family.
pub(crate) fn folder(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hf").join(family)
}

/// A copy of a family's folder. `null` in `changes` removes a key, text `"null"` stands for `null`.
pub(crate) fn changed(family: &str, changes: &Value) -> TempDir {
    let scratch = tempfile::tempdir().expect("a folder");
    for file in fs::read_dir(folder(family)).expect("readable") {
        let path = file.expect("readable").path();
        if path.is_file() {
            let name = path.file_name().expect("a file");
            fs::copy(&path, scratch.path().join(name)).expect("copied");
        }
    }
    let path = scratch.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    for (key, value) in changes.as_object().expect("keys") {
        match value {
            Value::Null => drop(config.as_object_mut().expect("keys").remove(key)),
            Value::String(text) if text == "null" => config[key] = Value::Null,
            value => config[key] = value.clone(),
        }
    }
    fs::write(path, config.to_string()).expect("written");
    scratch
}

/// What transformers computed.
pub(crate) struct Golden(Vec<u8>);

impl Golden {
    pub(crate) fn read(family: &str) -> Self {
        Self::read_in(&folder(family))
    }

    pub(crate) fn read_in(folder: &Path) -> Self {
        Self::read_file(&folder.join("golden.safetensors"))
    }

    /// What a family's model computes of rows with several documents.
    pub(crate) fn of_documents(family: &str) -> Self {
        Self::read_file(&folder(family).join("documents.safetensors"))
    }

    fn read_file(path: &Path) -> Self {
        Self(fs::read(path).expect("it is kept with the tests"))
    }

    /// Where the documents of each row begin.
    pub(crate) fn starts(&self) -> Vec<Vec<u32>> {
        let tensors = SafeTensors::deserialize(&self.0).expect("whole");
        let view = tensors.tensor("starts").expect("it has documents");
        let starts = view.data().as_chunks::<8>().0.iter();
        let starts: Vec<u32> = starts.map(|start| i64::from_le_bytes(*start) as u32).collect();
        starts.chunks(view.shape()[1]).map(<[u32]>::to_vec).collect()
    }

    pub(crate) fn numbers(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.0).expect("whole");
        floats(tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}")).data())
    }

    /// The batches, in micro-batches of one row.
    pub(crate) fn batches(&self) -> Arc<Batches> {
        let tensors = SafeTensors::deserialize(&self.0).expect("whole");
        let recorded = |name| Recorded::read(&tensors.tensor(name).expect("it has batches"));
        Arc::new(Batches { rows: 1, micro_batches: 4, input: recorded("x"), target: recorded("y") })
    }
}

/// The model of a folder, cut into stages that start with its weights. It has as many shard groups as
/// shards.
pub(crate) fn stages(
    folder: &Path,
    count: u32,
    shards: u32,
) -> (Architecture, Vec<StageBuilder<Sequential>>) {
    let architecture = read_config(folder).expect("a known model");
    let weights = Arc::new(Weights::open(folder, &architecture).expect("all tensors"));
    let model = architecture.model().expect("possible sizes");
    let model = model.with_shard_groups(shards).expect("a power of two");
    let stages = model.split(count).expect("enough units").into_iter();
    let start = |stage| start_from(Arc::clone(&weights), None, stage);
    (architecture, stages.map(start).collect())
}

/// Panics unless the numbers are as near as a share of the largest.
pub(crate) fn assert_near(got: &[f32], expected: &[f32], share: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: how many");
    let largest = expected.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let off = (got - expected).abs();
        assert!(
            off <= share * largest,
            "{what}: number {index} is {got}, not {expected} (largest {largest})"
        );
    }
}
