//! Arguments of a command that cannot be used.

use std::path::PathBuf;

use super::Error;
use pipewright::error::download;

/// Arguments of a command that cannot be used. The command has not begun its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Something failed before the command began its work.
    #[error(transparent)]
    Refused(Box<Error>),
    /// The model cannot continue a `--prompt`.
    #[error("--prompt: {0}")]
    Prompt(#[from] PromptProblem),
    /// A chat with a model that has no tokenizer.
    #[error("--chat: this model has no tokenizer, so it was not trained to chat: leave it out")]
    NoChat,
    /// A temperature that is negative or not a number.
    #[error("--temperature {0}: it must be 0 or more")]
    Temperature(f32),
    /// `--top-k 0`.
    #[error("--top-k 0: it must be 1 or more")]
    TopK,
    /// `--top-p` outside of its range.
    #[error("--top-p {0}: it must be above 0, and 1 at most")]
    TopP(f32),
    /// `--repetition-penalty` outside of its range.
    #[error("--repetition-penalty {0}: it must be above 0; 1 changes nothing")]
    RepetitionPenalty(f32),
    /// Adapters should be merged, but the run has none.
    #[error("`{}` has no adapters to merge: leave --merge out", folder.display())]
    NothingToMerge {
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// A run that trained more than adapters.
    #[error("{parameter} was trained besides the adapters, which alone are not the model: add --merge")]
    NotOnlyAdapters {
        /// The parameter.
        parameter: String,
    },
    /// A model that does not write text.
    #[error("{}: {why}", folder.display())]
    WritesNoText {
        /// The folder of the model.
        folder: PathBuf,
        /// Why it does not.
        why: String,
    },
    /// Adapters of a model that Hugging Face has no form for.
    #[error("{}: adapters of this kind of model cannot be written alone: add --merge", folder.display())]
    NeedsMerge {
        /// The checkpoint.
        folder: PathBuf,
    },
    /// There is no checkpoint at a path.
    #[error("{} is neither a checkpoint nor a run that has one: train first", path.display())]
    NoCheckpoint {
        /// The path.
        path: PathBuf,
    },
    /// There is neither a checkpoint nor a model at a path.
    #[error(
        "{} is neither a checkpoint, nor a run that has one, nor a model's folder with a config.json: train \
         first, or import a model{}",
        path.display(),
        download(path)
    )]
    NoModel {
        /// The path.
        path: PathBuf,
    },
    /// A checkpoint of a program that builds its model in Rust.
    #[error(
        "{} has no config that says what the model is: it was saved by a program that builds its model in \
         Rust. Only that program can load it (with `Pipeline::load`) and then evaluate it, write text with \
         it or save its weights",
        folder.display()
    )]
    NoConfig {
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// More runs than a page can show.
    #[error("a page compares at most {most} runs, and {named} are named: more lines cannot be told apart")]
    TooManyRuns {
        /// How many it can show.
        most: usize,
        /// How many were named.
        named: usize,
    },
    /// The user has no cache folder.
    #[error("no folder for symbolic links to CUDA's libraries: set HOME or XDG_CACHE_HOME")]
    NoCacheFolder,
    /// A folder of libraries into which other users could put theirs.
    #[error("{}: others can write there, so no libraries are loaded from it: remove it", folder.display())]
    OpenToOthers {
        /// The folder.
        folder: PathBuf,
    },
    /// The result cannot be written as JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A file of `--out` that cannot be written, or that must not be replaced.
    #[error("--out {}: {problem}", path.display())]
    Out {
        /// The file.
        path: PathBuf,
        /// Why it is not written.
        problem: OutProblem,
    },
    /// Search options of `plan`, but the schedule is not `auto`.
    #[error("--memory and --goal are for --schedule auto; {schedule} has a fixed order")]
    OnlyForAuto {
        /// The schedule.
        schedule: String,
    },
    /// Options of `plan` that need a config, but there is none.
    #[error("{option} is for the plan of a config: {advice}")]
    WithoutConfig {
        /// The option.
        option: &'static str,
        /// What to write.
        advice: &'static str,
    },
    /// A replica that does not exist.
    #[error("--replica {replica}: replicas are numbered from 0, and the last one is {}", replicas - 1)]
    NoReplica {
        /// What was asked for.
        replica: u32,
        /// How many replicas there are.
        replicas: u32,
    },
    /// A file whose content is refused.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<pipewright::schedule::Error>,
    },
    /// `--ranks 0`.
    #[error("--ranks: 0 ranks cannot train: give numbers from 1 on")]
    NoRanks,
    /// More ranks than the model has layers.
    #[error("--ranks: a model of {layers} layers has stages for {layers} ranks at most")]
    TooManyRanks {
        /// The layers of the model.
        layers: u32,
    },
    /// Another number of devices than one, or than ranks.
    #[error("--devices: {devices} devices for {ranks} ranks: name one for all, or one for each")]
    OtherDevices {
        /// The devices.
        devices: usize,
        /// The ranks.
        ranks: u32,
    },
    /// `--dtype any` with measured costs, which are of one number type.
    #[error(
        "--dtype any: the file of --costs is for one number type: leave --costs out, so that both are \
         measured"
    )]
    CostsOfOneDtype,
    /// No setting of `tune` fits the memory.
    #[error("nothing fits{limit}: {advice}")]
    NothingFits {
        /// The limit as text, such as ` into 1.00 MiB on a rank`. Empty without `--memory`.
        limit: String,
        /// What would work.
        advice: Advice,
    },
}

/// Why a model cannot continue a prompt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptProblem {
    /// A model for token files needs a prompt.
    #[error("this model reads tokens: give the numbers that the text begins with, such as \"17 4\"")]
    Missing,
    /// It has no tokens.
    #[error("it is empty: a text begins with one token at least")]
    Empty,
    /// It is longer than any text that the model is made for.
    #[error(
        "it has {tokens} tokens, and the model's context is {context}: shorten it by {} or more",
        tokens - context
    )]
    LongerThanContext {
        /// The tokens of the prompt.
        tokens: usize,
        /// The tokens of the longest text that the model is made for.
        context: usize,
    },
    /// A part of it is not the number of a token.
    #[error("`{0}` is no token: give numbers such as \"17 4\"")]
    NotANumber(String),
    /// The model does not know a token.
    #[error("token {token} is outside the model's vocabulary of {vocab}")]
    OutsideVocabulary {
        /// The token.
        token: u32,
        /// The tokens that the model knows: those below this number.
        vocab: usize,
    },
}

impl From<PromptProblem> for Error {
    fn from(problem: PromptProblem) -> Self {
        CommandError::from(problem).into()
    }
}

/// Why a file of `--out` is not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutProblem {
    /// It is a folder.
    #[error("this is a folder: name a file")]
    Folder,
    /// The folder to write into does not exist.
    #[error("there is no folder {}: make it, or name another", .0.display())]
    NoFolder(PathBuf),
    /// A token file whose name has another ending.
    #[error("a token file has a name that ends in `.bin`")]
    NotBin,
    /// The file exists.
    #[error("this file exists: name another, or remove it")]
    Exists,
    /// The file exists, and `profile` did not write it.
    #[error("this file exists and is no file of costs, so it is not replaced: name another, or remove it")]
    NoCosts,
    /// The file exists, and `report` did not write it.
    #[error("this file exists and is no page of a run, so it is not replaced: name another, or remove it")]
    NoPage,
    /// The system refuses.
    #[error("cannot be written: {0}")]
    Unwritable(#[source] std::io::Error),
}

/// What would work, if nothing fits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Advice {
    /// A device ran out of memory. The error says what to do.
    #[error(transparent)]
    OutOfMemory(Box<Error>),
    /// A larger `--memory`.
    #[error("the least that works is {least}: raise --memory")]
    RaiseMemory {
        /// The least memory, and for what.
        least: String,
    },
    /// A larger `--device-memory`.
    #[error("the least that was found is {least}: raise --device-memory, or take more --devices")]
    RaiseDeviceMemory {
        /// The least memory, and for what.
        least: String,
    },
    /// More GPUs, or recomputation.
    #[error(
        "a rank has to hold at least {least}, more than its GPU has: take more GPUs (pipeline.devices), or \
         recompute (pipeline.recompute)"
    )]
    MoreGpus {
        /// The least memory, and for what.
        least: String,
    },
    /// Other numbers of ranks or micro-batches.
    #[error(
        "no schedule works with these numbers: take at most {layers} ranks, one for each layer, and at most \
         {micro_batches} replicas, one for each micro-batch"
    )]
    OtherNumbers {
        /// The layers of the model.
        layers: u32,
        /// The most micro-batches that are tried.
        micro_batches: usize,
    },
}

impl CommandError {
    /// The same failure, marked as one before the command began its work.
    pub(crate) fn refused(error: impl Into<Error>) -> Error {
        Self::Refused(Box::new(error.into())).into()
    }
}
