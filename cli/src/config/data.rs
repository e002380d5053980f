//! The section `[data]`, its keys and their defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::values::Paths;
use pipewright::data::{LossOn, Share, Template, Width};

/// `[data]`: the data for training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Text, token files, documents or labelled images.
    pub kind: DataKind,
    /// text: files and folders, or [`Paths::BUILT_IN`]; tokens: files; jsonl, parquet: files, and folders of
    /// them; idx: the file of images, or a folder with one pair; cifar10: a file, or the folder of all.
    /// Relative paths start at the current directory.
    pub path: Paths,
    /// A `tokenizer.json`, or a folder that has one. text: without it, a byte is a token. tokens: the one
    /// that made them, so that `sample` can write text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The token that ends a document, by its text. Default: the one that the tokenizer usually has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<String>,
    /// The folder in which tokens are kept. Default: `pipewright/tokens` in the user's cache folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// jsonl: the field with the text, or with the messages of a chat; parquet: the column.
    pub field: String,
    /// jsonl, parquet: how messages become text. Default: the tokenizer's own template, or ChatML if it has
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// jsonl, parquet: which tokens are targets.
    pub loss_on: LossOn,
    /// jsonl, parquet: whether documents follow each other in a sequence. Otherwise each has one of its own.
    pub packing: bool,
    /// idx: the file of labels, if its name does not follow from the name of the images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,
    /// cifar10: whether images are moved and flipped at random in training.
    pub augment: bool,
    /// All but idx and cifar10: the length of a training sequence.
    pub seq: usize,
    /// tokens: the type of a token in files that do not say it themselves. Default: the narrowest that holds
    /// the model's vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Width>,
    /// How much is set aside for validation, from the end of the data: a fraction, or a whole number of
    /// tokens, documents or images.
    pub validation: Share,
    /// Data of the same kind for validation. All of it is used, and nothing of `data.path` is set aside.
    #[serde(skip_serializing_if = "Paths::is_empty")]
    pub validation_path: Paths,
    /// The seed for the order of the data.
    pub seed: u64,
}

/// The kinds of data a config can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// Text.
    Text,
    /// Files of tokens.
    Tokens,
    /// JSON lines: a text or a chat in each.
    Jsonl,
    /// Tables with a column of text.
    Parquet,
    /// A pair of IDX files, as MNIST.
    Idx,
    /// CIFAR-10 in its binary form.
    Cifar10,
}

impl DataKind {
    /// Whether it is labelled images.
    pub fn has_images(self) -> bool {
        matches!(self, Self::Idx | Self::Cifar10)
    }
}

impl Default for Data {
    fn default() -> Self {
        Self {
            kind: DataKind::Text,
            path: Paths::default(),
            tokenizer: None,
            end_of_text: None,
            cache: None,
            field: "text".to_owned(),
            template: None,
            loss_on: LossOn::default(),
            packing: true,
            labels: None,
            augment: true,
            seq: 128,
            dtype: None,
            validation: Share::Fraction(0.1),
            validation_path: Paths::default(),
            seed: 1,
        }
    }
}
