//! The folder of a family, and what transformers computes with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright::pretrained::{Architecture, Weights, read_config, start_from};
use pipewright::stages::{Sequential, StageBuilder};
use safetensors::SafeTensors;

use crate::batches::{Batches, Recorded, floats};

pub(crate) const FAMILIES: [&str; 6] = ["llama", "llama3", "mistral", "qwen2", "qwen3", "gpt2"];

/// The folder of a family.
pub(crate) fn folder(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/hf")
        .join(family)
}

/// What transformers computed.
pub(crate) struct Golden(Vec<u8>);

impl Golden {
    pub(crate) fn read(family: &str) -> Self {
        Self::read_in(&folder(family))
    }

    pub(crate) fn read_in(folder: &Path) -> Self {
        Self(std::fs::read(folder.join("golden.safetensors")).expect("it is kept with the tests"))
    }

    pub(crate) fn numbers(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.0).expect("whole");
        floats(
            tensors
                .tensor(name)
                .unwrap_or_else(|error| panic!("{name}: {error}"))
                .data(),
        )
    }

    /// The batches, in micro-batches of one row.
    pub(crate) fn batches(&self) -> Arc<Batches> {
        let tensors = SafeTensors::deserialize(&self.0).expect("whole");
        let recorded = |name| Recorded::read(&tensors.tensor(name).expect("it has batches"));
        Arc::new(Batches {
            rows: 1,
            micro_batches: 4,
            input: recorded("x"),
            target: recorded("y"),
        })
    }
}

/// The model of a folder, cut into stages that start with its weights.
pub(crate) fn stages(folder: &Path, count: u32) -> (Architecture, Vec<StageBuilder<Sequential>>) {
    let architecture = read_config(folder).expect("a known model");
    let weights = Arc::new(Weights::open(folder, &architecture).expect("all tensors"));
    let model = architecture.model().expect("possible sizes");
    let stages = model.split(count).expect("enough units").into_iter();
    let start = |stage| start_from(Arc::clone(&weights), None, stage);
    (architecture, stages.map(start).collect())
}

/// Panics unless the numbers are as near as a share of the largest.
pub(crate) fn assert_near(got: &[f32], expected: &[f32], share: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: how many");
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, number| largest.max(number.abs()));
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let off = (got - expected).abs();
        assert!(
            off <= share * largest,
            "{what}: number {index} is {got}, not {expected} (largest {largest})"
        );
    }
}
