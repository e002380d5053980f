//! Measured costs that cannot be used.

use std::path::{Path, PathBuf};

/// Measured costs that cannot be used, or ranks whose costs cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Some ranks are on the CPU and others on GPUs, or they compute in different numbers.
    #[error(
        "one cost of a layer is for all ranks, and these ranks are not all on the CPU, or all on GPUs with \
         the same numbers: put them on one kind of device, or train without costs"
    )]
    MixedRanks,
    /// A file with costs that cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file with costs that cannot be used.
    #[error("{}: {problem}", file.display())]
    Costs {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: CostsProblem,
    },
}

/// What is wrong with a file with costs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostsProblem {
    /// It is not JSON.
    #[error("no JSON: {source}; {}: {AGAIN}", likely(*has_nan))]
    NoJson {
        /// Where and why.
        source: serde_json::Error,
        /// Whether a number in it is NaN or infinite, which JSON cannot say.
        has_nan: bool,
    },
    /// It has no version.
    #[error("not a file of costs, because it has no version: {AGAIN}")]
    NoVersion,
    /// It was written by another version of Pipewright.
    #[error("costs of version {found}, and this pipewright reads version {read}: {AGAIN}")]
    Version {
        /// The version in the file.
        found: serde_json::Value,
        /// The version that this program reads.
        read: u64,
    },
    /// A key is missing, unknown or has a value of another type.
    #[error("{place}{source}: {AGAIN}")]
    Key {
        /// The layer and the key, with a colon after them. Empty for the file itself.
        place: String,
        /// The reason.
        source: serde_json::Error,
    },
    /// A number that is not a possible cost.
    #[error("{0}: {AGAIN}")]
    Number(#[source] Box<pipewright::schedule::Error>),
    /// All times are 0.
    #[error("all times of its layers are 0: {AGAIN}")]
    NoTimes,
    /// It was measured for another model, other data or another micro-batch.
    #[error("measured for other settings ({differences}): {AGAIN}")]
    OtherSettings {
        /// Each setting with both values.
        differences: String,
    },
    /// A layer of the model is not in the file.
    #[error("layer `{layer}` is missing: {AGAIN}")]
    LayerMissing {
        /// The layer.
        layer: String,
    },
    /// A layer of the file is not in the model.
    #[error("the model has no layer `{layer}`: {AGAIN}")]
    LayerUnknown {
        /// The layer.
        layer: String,
    },
    /// Its layers are in another order than the model's.
    #[error("its layers are not in the model's order: {AGAIN}")]
    LayerOrder,
}

impl CostsProblem {
    /// The error for this file.
    pub(crate) fn of(self, file: &Path) -> ProfileError {
        ProfileError::Costs { file: file.to_owned(), problem: self }
    }
}

const AGAIN: &str = "measure again with `pipewright profile`";

fn likely(has_nan: bool) -> &'static str {
    match has_nan {
        true => "JSON has no NaN and no Infinity",
        false => "was it cut short or edited?",
    }
}
