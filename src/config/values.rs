//! Settings with a form of their own in a config.

use std::path::PathBuf;

use pipewright_stages::Recompute;
use serde::{Deserialize, Serialize};

use crate::data::Share;

/// Files and folders: one, or a list. Relative ones start at the current directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "OneOrMany", into = "OneOrMany")]
pub struct Paths(pub Vec<PathBuf>);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a path in quotes or a list of them")]
enum OneOrMany {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

impl From<OneOrMany> for Paths {
    fn from(paths: OneOrMany) -> Self {
        match paths {
            OneOrMany::One(path) => Self(vec![path]),
            OneOrMany::Many(paths) => Self(paths),
        }
    }
}

impl From<Paths> for OneOrMany {
    fn from(mut paths: Paths) -> Self {
        if paths.0.len() == 1 {
            Self::One(paths.0.remove(0))
        } else {
            Self::Many(paths.0)
        }
    }
}

/// The widths of a multi-layer perceptron, as `"784,128,10"` or a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SizesForm", into = "SizesForm")]
pub struct Sizes(pub Vec<usize>);

const SIZES: &str = "widths such as \"784,128,10\" or [784, 128, 10]";

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "widths such as \"784,128,10\" or [784, 128, 10]")]
enum SizesForm {
    Text(String),
    List(Vec<usize>),
}

impl TryFrom<SizesForm> for Sizes {
    type Error = String;

    fn try_from(form: SizesForm) -> Result<Self, String> {
        match form {
            SizesForm::List(sizes) => Ok(Self(sizes)),
            SizesForm::Text(text) => {
                let sizes = text
                    .split(',')
                    .map(|size| size.trim().parse())
                    .collect::<Result<_, _>>();
                sizes.map(Self).map_err(|_| SIZES.to_owned())
            }
        }
    }
}

impl From<Sizes> for SizesForm {
    fn from(sizes: Sizes) -> Self {
        Self::List(sizes.0)
    }
}

/// What is set aside for validation: a fraction below 1 (`0.1`), or a whole number of tokens or rows
/// (`2000`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a fraction from 0 to below 1, or a whole number of tokens or rows"
)]
pub enum Validation {
    /// Tokens or rows.
    Count(u64),
    /// A fraction of the data.
    Fraction(f64),
}

impl From<Validation> for Share {
    fn from(validation: Validation) -> Self {
        match validation {
            Validation::Count(count) => Self::Count(count),
            Validation::Fraction(fraction) => Self::Fraction(fraction),
        }
    }
}

/// How layers are spread over stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "\"balanced\" or a list of layer names for each stage, such as [[\"embed\"], [\"head\"]]"
)]
pub enum Partition {
    /// By estimated cost.
    Named(Balanced),
    /// A list of layers for each stage.
    Lists(Vec<Vec<String>>),
}

/// The word `balanced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balanced {
    /// The largest cost of a stage is as small as it can be.
    Balanced,
}

/// What is recomputed in backward: one word for all stages, or a list with one for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`none`, `selective`, `full` or a list of these with one for each stage"
)]
pub enum RecomputeBy {
    /// The same for all stages.
    All(RecomputeWord),
    /// A word for each stage.
    Each(Vec<RecomputeWord>),
}

/// What a stage recomputes in backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecomputeWord {
    /// Nothing.
    None,
    /// The interiors of a GPT's attention and MLP.
    Selective,
    /// Everything.
    Full,
}

impl From<RecomputeWord> for Recompute {
    fn from(word: RecomputeWord) -> Self {
        match word {
            RecomputeWord::None => Self::None,
            RecomputeWord::Selective => Self::Selective,
            RecomputeWord::Full => Self::Full,
        }
    }
}
