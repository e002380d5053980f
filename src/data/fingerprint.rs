//! What tells one source's data from another's, in few bytes.

use std::fmt;

use pipewright_stages::{Kind, Shape, Tensor};
use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, ChecksumBuilder};

/// What tells one source's data from another's: a checksum of the contents, and how micro-batches are taken from them.
///
/// The processes of a run compare all of it but the name. A run that is resumed compares the contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fingerprint {
    /// What the data is called, for messages.
    pub name: String,
    /// The checksum of the contents.
    pub contents: Checksum,
    /// How micro-batches are taken from the contents, in words: which part, how many rows, which seed.
    pub batches: String,
    /// Whether only a sample of the contents was looked at. Then processes also compare each batch that they
    /// read.
    #[serde(default)]
    pub is_sample: bool,
}

impl Fingerprint {
    /// The fingerprint of a source of which only micro-batch 0 of step 0 is looked at: its input and its target.
    pub fn of_sample(name: &str, input: &Tensor, target: &Tensor) -> Self {
        Self {
            name: name.to_owned(),
            contents: of_tensors(input, target),
            batches: "micro-batch 0 of step 0 stands for all".to_owned(),
            is_sample: true,
        }
    }

    /// Whether both are of the same contents, wherever these lie and however micro-batches are taken from them.
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
