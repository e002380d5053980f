//! The section `[data]`, its keys and their defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::key::{FROM_0, SEQUENCE, section};
use super::values::Paths;
use pipewright::data::{Longer, LossOn, Share, Template, Width};
use pipewright::tokenizer::Date;

/// Kinds of data.
const DOCUMENTS: &[&str] = &["jsonl", "parquet"];
const WITH_TOKENIZER: &[&str] = &["text", "jsonl", "parquet"];
const OF_TOKENS: &[&str] = &["text", "tokens", "jsonl", "parquet"];

const NO_DOWNLOAD: &str = "it names files or a folder; nothing is downloaded";
const ANSWERS: &str = "write \"answers\"";

section! {
    /// `[data]`: the data for training.
    pub struct Data {
        /// What the files hold: `"text"`, `"tokens"`, `"jsonl"`, `"parquet"`, `"idx"` or `"cifar10"`.
        kind: DataKind = DataKind::Text => [
            also("type"),
            values(&[
                ("csv", "a program of your own reads it, by `data::Table`"), ("mnist", "write \"idx\""),
            ]),
        ],
        /// Text: files and folders, or `"builtin:shakespeare"`, a text in the program itself; tokens: files;
        /// jsonl, parquet: files, and folders of them; idx: the file of images, or a folder with one pair;
        /// cifar10: a file, or the folder of all. One, or a list.
        path: Paths = Paths::default() => [
            also("data_path dataset_path"),
            noted(&[("dataset dataset_name", NO_DOWNLOAD)]),
        ],
        /// A `tokenizer.json`, or a folder that has one; jsonl and parquet need it.
        tokenizer: Option<PathBuf> = None => [
            only("kind", OF_TOKENS), unset("bytes"), page("tokenizers.md"),
            also("tokenizer_path"), noted(&[("tokenizer_name", "it names a file or a folder")]),
        ],
        /// With a tokenizer: the token that ends a document, by its text.
        end_of_text: Option<String> = None => [
            only("kind", WITH_TOKENIZER), unset("the tokenizer's"),
        ],
        /// With a tokenizer: the folder in which tokens are kept.
        cache: Option<PathBuf> = None => [
            only("kind", WITH_TOKENIZER), harmless, unset("in the user's cache folder"),
        ],
        /// jsonl: the field with the text, or with the messages of a chat; parquet: the column.
        field: String = "text".to_owned() => [
            only("kind", DOCUMENTS), page("documents.md#json-lines"),
            also("dataset_text_field text_column"),
        ],
        /// jsonl, parquet: how messages become text: `"chatml"` or `"llama3"`.
        template: Option<Template> = None => [
            only("kind", DOCUMENTS), unset("the tokenizer's own, or `\"chatml\"`"),
            also("chat_template"),
        ],
        /// jsonl, parquet: the date that a chat template may ask for, such as `"2026-03-07"`.
        date: Option<Date> = None => [
            only("kind", DOCUMENTS), unset("none: the template does without, or the chat is refused"),
            page("documents.md#json-lines"),
        ],
        /// jsonl, parquet: which tokens are targets: `"all"`, or only the tokens of `"answers"`.
        loss_on: LossOn = LossOn::default() => [
            only("kind", DOCUMENTS),
            noted(&[
                ("assistant_only_loss completion_only_loss", "write data.loss_on = \"answers\""),
                ("train_on_inputs", "for `false`, write data.loss_on = \"answers\""),
            ]),
            values(&[("assistant", ANSWERS), ("completion", ANSWERS)]),
        ],
        /// All but idx and cifar10: how documents become sequences. `"joined"` (or `true`): they follow each
        /// other. `"single"` (or `false`): each has one of its own. `"apart"`: a sequence has several whole
        /// ones, and they do not see each other.
        packing: Option<PackingBy> = None => [
            only("kind", OF_TOKENS),
            unset(
                "text, tokens: sequences at random places; else `\"joined\"`, with `loss_on = \"answers\"` \
                 `\"apart\"`, but not for a `stack`",
            ),
            page("documents.md#documents-apart"),
        ],
        /// packing `"apart"`: what becomes of a document that is longer than `seq`. `"cut"`: several
        /// documents. `"leave-out"`: nothing. `"refuse"`: the data is refused.
        longer: Longer = Longer::Cut => [only("kind", OF_TOKENS)],
        /// idx: the file of labels, when its name does not follow from the name of the images.
        labels: Option<PathBuf> = None => [only("kind", &["idx"]), unset("by name")],
        /// cifar10: training images are moved and flipped at random.
        augment: bool = true => [only("kind", &["cifar10"]), page("data.md#images")],
        /// All but idx and cifar10: the length of a sequence, in tokens.
        seq: usize = 128 => [
            only("kind", OF_TOKENS), positive, at_most(SEQUENCE, "tokens"),
            also("block_size context max_length max_seq_length n_ctx seq_len"),
        ],
        /// tokens: the type of a token, `"u16"` or `"u32"`, little endian, in files that have neither an
        /// `.idx` nor a `.bin.json` beside them.
        dtype: Option<Width> = None => [
            only("kind", &["tokens"]), unset("the narrowest for the model's vocabulary"),
        ],
        /// The part at the end that is kept for validation: a fraction, or a whole number of tokens,
        /// documents (jsonl, parquet) or images.
        validation: Share = Share::Fraction(0.1) => [also("test_size validation_split")],
        /// Data of the same kind for validation. All of it is used, and nothing of `path` is kept back.
        #[serde(skip_serializing_if = "Paths::is_empty")]
        validation_path: Paths = Paths::default() => [
            page("data.md#data-for-validation"), also("validation_file"),
        ],
        /// The seed for the order in which data is taken.
        seed: u64 = 1 => [also("data_seed")],
        /// Tables `[[data.sources]]`: several sources, which are mixed. Each has the keys of this section;
        /// what it does not set is as in `[data]`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        sources: Vec<Data> = Vec::new() => [
            page("data.md#several-sources"), also("datasets data_mix"),
        ],
        /// In `[[data.sources]]`: how many sequences it gives, beside the other sources. Shares need not add
        /// up to 1. With 0, it is only for validation.
        #[serde(skip_serializing_if = "Option::is_none")]
        share: Option<f64> = None => [
            within(FROM_0), unset("1"), page("data.md#several-sources"), also("weight probability"),
        ],
        /// In `[[data.sources]]`: its name, in the run's metrics and on the page of the run.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String> = None => [
            unset("the name of its first file or folder"), page("data.md#several-sources"),
        ],
    }
}

/// How documents become sequences: a word, or a flag as other programs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "PackingForm")]
pub enum PackingBy {
    /// They follow each other.
    Joined,
    /// Each has a sequence of its own.
    Single,
    /// Several in a sequence, and none sees another.
    Apart,
}

impl PackingBy {
    /// Its word in a config.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Single => "single",
            Self::Apart => "apart",
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "\"joined\", \"single\", \"apart\", true or false")]
enum PackingForm {
    Flag(bool),
    Word(PackingWord),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum PackingWord {
    Joined,
    Single,
    Apart,
}

impl From<PackingForm> for PackingBy {
    fn from(form: PackingForm) -> Self {
        match form {
            PackingForm::Flag(true) | PackingForm::Word(PackingWord::Joined) => Self::Joined,
            PackingForm::Flag(false) | PackingForm::Word(PackingWord::Single) => Self::Single,
            PackingForm::Word(PackingWord::Apart) => Self::Apart,
        }
    }
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
    /// Its name in a config.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Tokens => "tokens",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
            Self::Idx => "idx",
            Self::Cifar10 => "cifar10",
        }
    }

    /// Whether it always is documents.
    pub fn has_documents(self) -> bool {
        matches!(self, Self::Jsonl | Self::Parquet)
    }

    /// Whether it is labelled images.
    pub fn has_images(self) -> bool {
        matches!(self, Self::Idx | Self::Cifar10)
    }
}
