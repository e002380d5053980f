//! Fingerprints: a few bytes that differ between the data of different sources.

use std::fmt;
use std::ops::Range;

use pipewright_stages::{Kind, Shape, Tensor};
use serde::{Deserialize, Serialize};

use super::Course;
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
    /// Which part of the contents is used: tokens, documents, images or rows. `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Range<u64>>,
    /// Which samples each step takes, if they are taken one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// Of data from several sources: the name of each, and which part of it is used, if that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<(String, Option<Range<u64>>)>,
}

/// Samples that are taken one after the other, in some order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// What a sample is, and the order, in words: it differs for other samples and for another order.
    pub order: String,
    /// Which of them each step takes.
    pub course: Course,
}

impl Fingerprint {
    /// The fingerprint of a source from one sample: the input and the target of micro-batch 0 of step 0.
    pub fn of_sample(name: &str, input: &Tensor, target: &Tensor) -> Self {
        Self {
            name: name.to_owned(),
            contents: of_tensors([input, target]),
            batches: "known by micro-batch 0 of step 0".to_owned(),
            is_sample: true,
            part: None,
            samples: None,
            sources: Vec::new(),
        }
    }

    /// Whether both have the same contents, even if their names and micro-batches differ.
    pub fn same_contents(&self, other: &Self) -> bool {
        self.contents == other.contents
    }

    /// What a person has to know of a training that goes on with this data after `step` steps with `saved`,
    /// which has the same contents.
    pub(crate) fn going_on(&self, saved: &Self, step: u64) -> Vec<String> {
        let mut notes = Vec::new();
        for (name, before, now) in self.parts_since(saved) {
            if now.start > before.start || now.end < before.end {
                notes.push(format!(
                    "training was on {}..{} of {name} and is now on {}..{}: what is held back for validation \
                     now was trained on before",
                    before.start, before.end, now.start, now.end
                ));
            }
        }
        let (Some(before), Some(now)) = (&saved.samples, &self.samples) else {
            return notes;
        };
        let (used, next) = (before.course.first(step), now.course.first(step));
        if before.order != now.order {
            notes.push(format!(
                "the data goes on in another order ({}; it was {}): some of this epoch is used again, and \
                 some is left out",
                now.order, before.order
            ));
        } else if used != next {
            let what = if next < used { "used again" } else { "left out" };
            notes.push(format!(
                "{used} samples were used, and the data goes on with sample {next}: {} are {what}",
                used.abs_diff(next)
            ));
        } else if before.course != now.course {
            notes
                .push(format!("the data goes on with sample {next}: none is repeated, and none is left out"));
        }
        notes
    }

    /// Which part of the data, or of each of its sources, `saved` used and which is used now, with its name,
    /// where both are known. Both have the same contents, so their sources are in the same order.
    pub(crate) fn parts_since<'a>(
        &'a self,
        saved: &'a Self,
    ) -> impl Iterator<Item = (&'a str, &'a Range<u64>, &'a Range<u64>)> {
        let whole = [(&self.name, &saved.part, &self.part)].into_iter();
        let sources = saved.sources.iter().zip(&self.sources);
        let all = whole.chain(sources.map(|((_, before), (name, now))| (name, before, now)));
        all.filter_map(|(name, before, now)| Some((name.as_str(), before.as_ref()?, now.as_ref()?)))
    }

    /// Whether both give the same micro-batches.
    pub fn same_batches(&self, other: &Self) -> bool {
        self.same_contents(other) && self.batches == other.batches
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fingerprint {}; {})", self.name, self.contents, self.batches)
    }
}

/// The checksum of a micro-batch.
pub(super) fn of_tensors<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Checksum {
    let mut checksum = ChecksumBuilder::new();
    tensors.into_iter().for_each(|tensor| add(&mut checksum, tensor));
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
