//! Fingerprints: a few bytes that differ between the data of different sources.

use std::fmt;

use pipewright_stages::{Kind, Shape, Tensor};
use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, ChecksumBuilder};

/// The fingerprint of a data source: a checksum of its contents, and how micro-batches are taken from them.
///
/// The processes of a run compare all of it except the name. A resumed run compares only the contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The name of the data, for messages.
    pub name: String,
    /// The checksum of the contents.
    pub contents: Checksum,
    /// How micro-batches are taken from the contents, in words: which part, how many rows, which seed.
    pub batches: String,
    /// Whether it covers only a sample of the contents. Then processes also compare each batch that they
    /// read.
    #[serde(default)]
    pub is_sample: bool,
}

impl Fingerprint {
    /// The fingerprint of a source from one sample: the input and the target of micro-batch 0 of step 0.
    pub fn of_sample(name: &str, input: &Tensor, target: &Tensor) -> Self {
        Self {
            name: name.to_owned(),
            contents: of_tensors(input, target),
            batches: "known by micro-batch 0 of step 0".to_owned(),
            is_sample: true,
        }
    }

    /// Whether both have the same contents, even if their names and micro-batches differ.
    pub fn same_contents(&self, other: &Self) -> bool {
        self.contents == other.contents
    }

    /// Whether both give the same micro-batches.
    pub fn same_batches(&self, other: &Self) -> bool {
        self.same_contents(other) && self.batches == other.batches
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (fingerprint {}; {})",
            self.name, self.contents, self.batches
        )
    }
}

/// The checksum of a micro-batch.
pub(super) fn of_tensors(input: &Tensor, target: &Tensor) -> Checksum {
    let mut checksum = ChecksumBuilder::new();
    add(&mut checksum, input);
    add(&mut checksum, target);
    checksum.checksum()
}

/// Adds a tensor: its dimensions and its numbers.
fn add(checksum: &mut ChecksumBuilder, tensor: &Tensor) {
    checksum.add(describe(tensor.shape()).as_bytes());
    checksum.add(match tensor.shape().kind() {
        Kind::F32 => bytemuck::cast_slice(tensor.f32()),
        Kind::Ids => bytemuck::cast_slice(tensor.ids()),
    });
}

fn describe(shape: &Shape) -> String {
    format!("{:?} {:?}", shape.kind(), shape.dims())
}
