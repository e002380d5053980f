//! Data that cannot be used.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Error, FileProblem, FolderProblem, RecordProblem, TokenizerProblem};
use crate::id::MicroBatch;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file or folder that cannot be opened.
    #[error("cannot read `{}`: {source}{}", path.display(), place_of(path))]
    Unreadable {
        /// The path, as it was given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that is not what was expected.
    #[error("`{}` {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// A line of a file, or a row of a table, that is no document.
    #[error("`{}` {unit} {line} {problem}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Line or row.
        unit: &'static str,
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        problem: RecordProblem,
    },
    /// Files of different forms.
    #[error(
        "`{}` is {} and `{}` is {}: name files of one form at a time",
        first.0.display(), first.1, other.0.display(), other.1
    )]
    Forms {
        /// The first path, and its form.
        first: (PathBuf, &'static str),
        /// The first of another form, and that.
        other: (PathBuf, &'static str),
    },
    /// There is no document for this purpose.
    #[error(
        "{data}: none of its {count} documents is for {purpose}, or they have no tokens; data.validation \
         says how many are kept for validation"
    )]
    NoDocuments {
        /// The data's name.
        data: String,
        /// The documents that it has.
        count: u64,
        /// Training or validation.
        purpose: &'static str,
    },
    /// No token of any document is a target.
    #[error(
        "{data}: no token is a target: with data.loss_on = \"answers\", a message of the role \"assistant\" \
         has to begin within data.seq = {seq} tokens"
    )]
    NoTargets {
        /// The data's name.
        data: String,
        /// The length of a sequence.
        seq: usize,
    },
    /// Parquet, without the cargo feature for it.
    #[error(
        "this program was built without the cargo feature `parquet`: build it with `cargo build --release \
         --features parquet`, or write the data as JSON lines"
    )]
    NoParquet,
    /// A tokenizer that cannot be used, or that does not fit the model.
    #[error("the tokenizer `{}` {problem}", path.display())]
    Tokenizer {
        /// Its file or folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: TokenizerProblem,
    },
    /// A folder without the expected files.
    #[error("the folder `{}` {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: FolderProblem,
    },
    /// A token that the model does not know.
    #[error(
        "`{}`: token {token} at position {position} is outside the model's vocabulary of {vocabulary} \
         (0..={})",
        path.display(), vocabulary.saturating_sub(1)
    )]
    TokenOutside {
        /// The file.
        path: PathBuf,
        /// The token.
        token: u32,
        /// Its position in the file, in tokens.
        position: u64,
        /// How many tokens the model knows.
        vocabulary: usize,
    },
    /// A model that knows fewer tokens than the tokenizer that made a token file.
    #[error(
        "`{}` was made with a tokenizer of {made_with} tokens, and model.vocab is {vocabulary}: set \
         model.vocab to {made_with}",
        path.display()
    )]
    SmallVocabulary {
        /// The file.
        path: PathBuf,
        /// The tokens that its tokenizer has.
        made_with: usize,
        /// How many tokens the model knows.
        vocabulary: usize,
    },
    /// A type of tokens that cannot hold the model's vocabulary.
    #[error(
        "data.dtype = \"u16\" holds tokens up to 65,535, and model.vocab is {vocabulary}: set \"u32\", or \
         leave it out"
    )]
    NarrowTokens {
        /// How many tokens the model knows.
        vocabulary: usize,
    },
    /// A token file that another tokenizer has made.
    #[error(
        "`{}` was made with another tokenizer than `{}`: name that one as data.tokenizer, or write the \
         tokens again",
        path.display(), tokenizer.display()
    )]
    OtherTokenizer {
        /// The file.
        path: PathBuf,
        /// The tokenizer that was given.
        tokenizer: PathBuf,
    },
    /// Token files that two tokenizers have made.
    #[error(
        "`{}` and `{}` were made with two tokenizers: write both with one, by `pipewright tokenize`",
        files[0].display(), files[1].display()
    )]
    TwoTokenizers {
        /// A file of each.
        files: [PathBuf; 2],
    },
    /// A label that the model does not know.
    #[error(
        "`{}`: label {label} of image {image} is outside the model's {classes} classes (0..={})",
        path.display(),
        classes.saturating_sub(1)
    )]
    LabelOutside {
        /// The file of labels.
        path: PathBuf,
        /// The label.
        label: u8,
        /// The image it belongs to, from 0.
        image: usize,
        /// How many classes the model knows.
        classes: usize,
    },
    /// The counts of images and labels differ.
    #[error(
        "`{}` holds {} images and `{}` {} labels: they are not a pair",
        images.0.display(), images.1, labels.0.display(), labels.1
    )]
    NotAPair {
        /// The file of images and their count.
        images: (PathBuf, usize),
        /// The file of labels and their count.
        labels: (PathBuf, usize),
    },
    /// A part of the data is shorter than one window.
    #[error(
        "{data} is too short: of its {count} tokens {held} are for {purpose}, and one window needs {needed} \
         (the sequence length {} and the token after it); take shorter sequences (data.seq), more text, or \
         another share for validation (data.validation)",
        needed - 1
    )]
    TooShort {
        /// The data's name.
        data: String,
        /// The tokens it has.
        count: u64,
        /// The tokens for this purpose.
        held: u64,
        /// Training or validation.
        purpose: &'static str,
        /// The tokens of one window.
        needed: u64,
    },
    /// There is no image for this purpose.
    #[error("`{}`: none of its {count} images is for {purpose}", path.display())]
    NoImages {
        /// The file of images.
        path: PathBuf,
        /// The images it has.
        count: u64,
        /// Training or validation.
        purpose: &'static str,
    },
    /// Inputs and targets that are not rows of one table.
    #[error("{inputs} rows of inputs and {targets} of targets: both need the same number, 1 or more")]
    Rows {
        /// The rows of inputs.
        inputs: usize,
        /// The rows of targets.
        targets: usize,
    },
    /// A part of a table without rows.
    #[error("{data}: no row is in this part of it")]
    EmptyPart {
        /// The data's name.
        data: String,
    },
    /// Rows with numbers as targets that do not fill their micro-batches.
    #[error(
        "{data}: {count} rows do not fill micro-batches of {rows}, and targets that are numbers cannot be \
         left out: take a part, or micro-batches, of other sizes"
    )]
    UnfilledRows {
        /// The data's name.
        data: String,
        /// The rows.
        count: u64,
        /// The rows of a micro-batch.
        rows: usize,
    },
    /// A range that is not within the data.
    #[error("{start}..{end} is not a part of {data}, which has 0..{count}")]
    OutsideData {
        /// The data's name.
        data: String,
        /// Where the range begins.
        start: u64,
        /// Where it ends.
        end: u64,
        /// The tokens or images that the data has.
        count: u64,
    },
    /// A micro-batch would be empty.
    #[error("a micro-batch of {data} needs at least one {what}, 0 were asked for")]
    EmptyMicroBatch {
        /// The data's name.
        data: String,
        /// Row, or token of a row.
        what: &'static str,
    },
    /// A source returned an error for a micro-batch.
    #[error("{source}")]
    Source {
        /// The step, from 0.
        step: u64,
        /// The micro-batch.
        micro_batch: MicroBatch,
        /// The source's error. The rank that takes inputs and the one that takes targets share it.
        source: Arc<Error>,
    },
    /// A source panicked while it read a micro-batch.
    #[error("the data source panicked: {message}")]
    Panicked {
        /// The step, from 0.
        step: u64,
        /// The micro-batch.
        micro_batch: MicroBatch,
        /// The panic's message.
        message: String,
    },
    /// An error of your own source.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The thread that reads a pipeline's data has ended.
    #[error("the data loader has ended before it gave micro-batch {micro_batch} of step {step}")]
    LoaderEnded {
        /// The step, from 0.
        step: u64,
        /// The micro-batch.
        micro_batch: MicroBatch,
    },
    /// The system cannot start a thread.
    #[error("cannot start the data loader's thread: {source}")]
    Thread {
        /// The system's reason.
        source: std::io::Error,
    },
}

impl DataError {
    /// The failure of your own source, from a message or from another error.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(cause.into())
    }
}

/// The absolute path of a relative one.
fn place_of(path: &std::path::Path) -> String {
    match std::path::absolute(path) {
        Ok(absolute) if path.is_relative() => format!(
            "; relative paths start at the current directory, so this is `{}`",
            absolute.display()
        ),
        _ => String::new(),
    }
}
