//! A checkpoint that cannot be loaded or saved.

use std::ops::Range;
use std::path::PathBuf;

use crate::checksum::Checksum;

/// A checkpoint that cannot be loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Something that is not a checkpoint is where one should be saved or removed. It is left untouched.
    #[error(
        "{} {problem}; it is left as it is: name another folder for the checkpoint, or move this one away",
        path.display()
    )]
    NotOurs {
        /// What is there.
        path: PathBuf,
        /// Why it is no checkpoint.
        problem: PlaceProblem,
    },
    /// Another program, or another pipeline, is saving a checkpoint to the same place.
    #[error(
        "{} is being written: another program saves a checkpoint to the same place; give each its own folder",
        path.display()
    )]
    InUse {
        /// The hidden folder in which it is written.
        path: PathBuf,
    },
    /// A file of a checkpoint is damaged.
    #[error("{}: not a whole file: {damage}; use an earlier checkpoint", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A checkpoint has a format that this program does not know.
    #[error("{}: its format is {found}, this program reads 1 and 2", path.display())]
    Format {
        /// The file that says it.
        path: PathBuf,
        /// The format's number.
        found: u32,
    },
    /// A checkpoint has other tensors than the model and its optimizer.
    #[error("{}: `{tensor}` {difference}; it was saved from another model or optimizer", path.display())]
    OtherTensors {
        /// The file.
        path: PathBuf,
        /// The first tensor that differs.
        tensor: String,
        /// How it differs.
        difference: Box<Difference>,
    },
    /// This process does not see a folder that another process has made.
    #[error(
        "{} is not there, although process 0 has made it: the processes of a run need one file system for \
         its folder",
        folder.display()
    )]
    NotShared {
        /// The folder.
        folder: PathBuf,
    },
    /// Two processes have different checkpoints in a folder of one name.
    #[error(
        "{} is not one checkpoint for all processes: for process 0 it is of step {} (checksum {} of its \
         `state.json`), for process {process} of step {} ({}): give all processes one file system, or copies \
         of one checkpoint",
        folder.display(), steps[0], descriptions[0], steps[1], descriptions[1]
    )]
    SeveralCheckpoints {
        /// The folder.
        folder: PathBuf,
        /// The process that differs from process 0.
        process: usize,
        /// The step of process 0, and of that process.
        steps: [u64; 2],
        /// The checksum of `state.json` for process 0, and for that process.
        descriptions: [Checksum; 2],
    },
    /// A folder's name gives another step than its contents.
    #[error("{}: the folder's name says step {named}, the checkpoint is of step {step}", folder.display())]
    OtherStep {
        /// The folder.
        folder: PathBuf,
        /// The step in its name.
        named: u64,
        /// The step of the checkpoint.
        step: u64,
    },
    /// A run would continue with other data than before.
    #[error(
        "{} was trained on {saved}, and the data is now {given}: give the same data, or continue with other \
         data with --allow-other-data",
        folder.display()
    )]
    OtherData {
        /// The checkpoint.
        folder: PathBuf,
        /// The data that it was trained on.
        saved: Box<KnownData>,
        /// The data now.
        given: Box<KnownData>,
    },
    /// A run would train on data that it has held back so far.
    #[error(
        "{} was trained on {}..{} of {data}, and training would now be on {}..{}, so also on what was held \
         back for validation: set data.validation and data.validation_path as they were, or continue all the \
         same with --allow-other-data",
        folder.display(), before.start, before.end, now.start, now.end
    )]
    HeldBack {
        /// The checkpoint.
        folder: PathBuf,
        /// The data's name.
        data: String,
        /// The tokens, documents, images or rows that it was trained on.
        before: Range<u64>,
        /// Those that it would be trained on.
        now: Range<u64>,
    },
    /// No rank has written a tensor.
    #[error("{}: no rank has written `{tensor}`, so the checkpoint is not put in its place", path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
}

/// Data, as a message names it.
#[derive(Debug, thiserror::Error)]
#[error("{name} (fingerprint {contents})")]
pub struct KnownData {
    /// What it is called.
    pub name: String,
    /// The checksum of its contents.
    pub contents: Checksum,
}

/// Why something is not a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceProblem {
    /// The path ends in `..` or is a root.
    #[error("names no folder of its own")]
    NoName,
    /// It is a file, or a symbolic link.
    #[error("is not a folder")]
    NotAFolder,
    /// It contains a file that a checkpoint does not have.
    #[error("is not a checkpoint: it holds `{name}`")]
    Foreign {
        /// What it holds.
        name: String,
    },
    /// Its description is of another program, or cannot be read any more.
    #[error("is not a checkpoint: its `state.json` is not one of a checkpoint")]
    ForeignState,
    /// It has a file of tensors but no description.
    #[error("is not a checkpoint: it has no `state.json`")]
    NoState,
}

/// What is wrong with a file of a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Its length differs from the length in its header.
    #[error("it has {bytes} bytes, its header calls for {expected}")]
    Length {
        /// Its length.
        bytes: u64,
        /// The length by its header.
        expected: u64,
    },
    /// It does not follow its format.
    #[error("{0}")]
    Syntax(#[source] serde_json::Error),
    /// A tensor is not of 32-bit floating-point numbers.
    #[error("`{tensor}` is {found}, F32 was expected")]
    Numbers {
        /// The tensor.
        tensor: String,
        /// The type of its numbers.
        found: String,
    },
    /// A tensor does not begin where the one before it ends.
    #[error("`{tensor}` does not begin where the tensor before it ends")]
    Offsets {
        /// The tensor.
        tensor: String,
    },
    /// The description has no last line with its checksum.
    #[error("its checksum is missing")]
    NoChecksum,
    /// A part of the file has another checksum than the saved one.
    #[error("{part} has the checksum {found}, {expected} was saved")]
    Checksum {
        /// A tensor or another part.
        part: FilePart,
        /// The checksum of the bytes in the file.
        found: Checksum,
        /// The saved checksum.
        expected: Checksum,
    },
}

/// A part of a checkpoint's file that has a checksum.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilePart {
    /// The description, `state.json`.
    #[error("the description")]
    Description,
    /// The header of a safetensors file: names, dimensions and places of tensors.
    #[error("the header")]
    Header,
    /// A tensor.
    #[error("`{0}`")]
    Tensor(String),
}

/// How a tensor of a checkpoint differs from the tensor of the model or the optimizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// It is not in the checkpoint.
    #[error("is missing, {whose} has it with dimensions {expected:?}")]
    Missing {
        /// The model or the optimizer.
        whose: &'static str,
        /// Its dimensions.
        expected: Vec<usize>,
    },
    /// It has other dimensions.
    #[error("has dimensions {found:?}, {whose} has {expected:?}")]
    Dimensions {
        /// The model or the optimizer.
        whose: &'static str,
        /// Those in the checkpoint.
        found: Vec<usize>,
        /// The dimensions in the model or the optimizer.
        expected: Vec<usize>,
    },
    /// Only the checkpoint has it.
    #[error("is in it, but {whose} has no such tensor")]
    Unknown {
        /// The model or the optimizer.
        whose: &'static str,
    },
}
