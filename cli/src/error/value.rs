//! A value of a config that does not fit its key, or does not fit other values.

use super::command::PromptProblem;
use super::model::ModelProblem;
use super::optimizer::OptimizerProblem;
use super::rule::RuleProblem;
use super::stack::StackProblem;
use super::{Error, ScheduleFileProblem};
use pipewright::error::NoText;

/// What is wrong with a value of a config.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// A value of the wrong type.
    #[error("expected {expected}, got {got}{advice}")]
    WrongType {
        /// What the key takes.
        expected: String,
        /// The value.
        got: toml::Value,
        /// What was probably meant, or what to write in its place; empty if neither is known.
        advice: String,
    },
    /// 0 where there must be at least one.
    #[error("is 0: set it to 1 or more")]
    Zero,
    /// A number outside of its range.
    #[error("{value} is not allowed: {must}")]
    OutOfRange {
        /// The number.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// A dropout probability outside of its range.
    #[error("{0} is not a probability below 1: choose from 0 to 0.9")]
    NoProbability(f64),
    /// A share of the data for validation that is neither a fraction nor a count.
    #[error("{0} is neither a fraction from 0 to below 1 nor a whole number of tokens or rows")]
    NoShare(f64),
    /// A size beyond what is supported.
    #[error("{value} is too large: at most {limit} {unit} are supported, lower it")]
    TooLarge {
        /// The size.
        value: usize,
        /// The largest that is supported.
        limit: usize,
        /// The unit of the size.
        unit: &'static str,
    },
    /// A tensor with more numbers than are supported.
    #[error(
        "{what} would have {} numbers: at most {limit} are supported, lower one of these",
        times(dims)
    )]
    TooManyNumbers {
        /// Which tensor.
        what: &'static str,
        /// Its sizes.
        dims: Vec<usize>,
        /// The most numbers that are supported.
        limit: usize,
    },
    /// A model with more weights than are supported.
    #[error("the model would have more than {limit} weights: make it narrower or shallower")]
    TooManyWeights {
        /// The most weights that are supported.
        limit: usize,
    },
    /// The model's width is not divisible by the number of heads.
    #[error("model.dim {dim} is not divisible by {heads} heads: choose from {}", divisors(*dim))]
    Heads {
        /// The width.
        dim: usize,
        /// The heads.
        heads: usize,
    },
    /// Sizes of a model that do not fit each other.
    #[error(transparent)]
    Sizes(#[from] ModelProblem),
    /// A rule about what is trained that cannot be followed.
    #[error(transparent)]
    Rule(#[from] RuleProblem),
    /// A layer of the model that cannot be made.
    #[error(transparent)]
    Stack(#[from] StackProblem),
    /// A text that the model cannot go on from.
    #[error(transparent)]
    Prompt(#[from] PromptProblem),
    /// A model that writes no text should do so.
    #[error("{0}; set it to 0")]
    NoText(#[from] NoText),
    /// A setting of the optimizer that cannot be.
    #[error(transparent)]
    Optimizer(#[from] OptimizerProblem),
    /// Too few widths for a perceptron, or a width of 0.
    #[error("{0:?}: give the widths of input and output at least, each 1 or more")]
    Widths(Vec<usize>),
    /// Data that the model cannot use.
    #[error("a model of kind \"{model}\" takes {takes}: set data.kind {to}")]
    OtherData {
        /// The kind of the model.
        model: &'static str,
        /// What it can use.
        takes: &'static str,
        /// What to set.
        to: &'static str,
    },
    /// Built-in data that does not exist, or that is combined with other data.
    #[error("the only built-in data is \"{0}\": give it alone, with data.kind = \"text\"")]
    BuiltInData(&'static str),
    /// Documents, but no tokenizer.
    #[error("documents become tokens: name the tokenizer.json of the model, or the folder that has it")]
    NoTokenizer,
    /// Something that this program was built without.
    #[error(
        "this program was built without the cargo feature `{0}`: build it with `cargo build --release \
         --features {0}`, or write the data as JSON lines (\"jsonl\")"
    )]
    NoFeature(&'static str),
    /// The user has no folder in which tokens could be kept.
    #[error("no folder for tokens: name one, or set HOME or XDG_CACHE_HOME")]
    NoCacheFolder,
    /// No data.
    #[error("there are no data: name a file or a folder")]
    NoData,
    /// Nothing to evaluate a model on.
    #[error("nothing is set aside: choose a share above 0, or name other data in data.validation_path")]
    NothingHeldOut,
    /// Several paths for labelled images.
    #[error("labelled images are one file, or a folder with one pair")]
    SeveralImages,
    /// A batch that the micro-batches do not divide.
    #[error(
        "a batch of {batch} cannot be divided into {micro_batches} micro-batches: take {} or {} rows, or \
         another pipeline.micro_batches",
        (batch / micro_batches).max(1) * micro_batches,
        (batch / micro_batches + 1) * micro_batches
    )]
    Batch {
        /// Rows of a step.
        batch: usize,
        /// Micro-batches of a step.
        micro_batches: usize,
    },
    /// The rows of a micro-batch do not fit the batch.
    #[error(
        "a batch of {batch} over pipeline.micro_batches {micro_batches} makes {} each: set this or \
         pipeline.batch_size",
        batch / micro_batches
    )]
    MicroBatch {
        /// Rows of a step.
        batch: usize,
        /// Micro-batches of a step.
        micro_batches: usize,
    },
    /// More replicas than gradient groups.
    #[error(
        "{replicas} replicas cannot share {groups} gradient groups, because a replica has whole groups: set \
         pipeline.gradient_groups to {replicas} or more, which adds in another \
         order, or use at most {groups} replicas"
    )]
    Replicas {
        /// The replicas.
        replicas: u32,
        /// The gradient groups.
        groups: u32,
    },
    /// Weights that may not be stale, with the reason.
    #[error("weights may not be stale {0}: set this to 0, or take pipeline.sync = \"reduce\"")]
    NotStale(&'static str),
    /// A list for another number of stages.
    #[error("the list has {has}, pipeline.stages is {stages}: give {advice}")]
    OtherStages {
        /// How many the list is for.
        has: usize,
        /// How many stages there are.
        stages: usize,
        /// What to give.
        advice: &'static str,
    },
    /// A list of devices for another number of ranks.
    #[error(
        "the list has {has}, and there are {}: give one device for all, or one for each",
        ranks_in_words(*ranks, *replicas)
    )]
    OtherRanks {
        /// How many devices there are.
        has: usize,
        /// How many ranks a replica has.
        ranks: usize,
        /// How many replicas there are.
        replicas: u32,
    },
    /// A run's name that cannot be the name of a folder.
    #[error("\"{0}\" cannot name a folder: use a name without slashes that does not start with a dot")]
    RunName(String),
    /// An address without a host or a port.
    #[error("\"{0}\" is not a host and port: write \"host:port\", such as \"127.0.0.1:29500\"")]
    Address(String),
    /// A model that cannot be made, or cannot be cut into these stages.
    #[error(transparent)]
    Model(#[from] pipewright::stages::Error),
    /// Lists of layers that do not add up to the model.
    #[error("{0}")]
    Partition(pipewright::stages::ErrorKind),
    /// A schedule that does not exist.
    #[error(
        "there is no schedule {name:?}{} (known: {}; or auto, or file:PATH)",
        nearest.map_or(String::new(), |nearest| format!(", did you mean {nearest}?")),
        known.join(", ")
    )]
    NoSchedule {
        /// The name.
        name: String,
        /// The schedule that was probably meant.
        nearest: Option<&'static str>,
        /// The names of all schedules.
        known: Vec<&'static str>,
    },
    /// A schedule that cannot be made for these ranks, stages and micro-batches, or for these costs.
    #[error("{0}")]
    Schedule(#[source] Box<pipewright::schedule::Error>),
    /// A schedule in a file that cannot be used.
    #[error(transparent)]
    ScheduleFile(#[from] ScheduleFileProblem),
    /// A number of stages a rank that the schedule cannot have.
    #[error(
        "{chunks}, but schedule {schedule} has {} on each rank: change this or leave it out",
        between(*least, *most)
    )]
    Chunks {
        /// Stages of each rank.
        chunks: u32,
        /// The schedule.
        schedule: String,
        /// The smallest number that it can have.
        least: u32,
        /// The largest number that it can have.
        most: u32,
    },
    /// A number of stages that cannot be divided evenly among the ranks.
    #[error("{stages}, but schedule {schedule} wants {each} on each rank: use {}", multiples(*stages, *each))]
    UnevenStages {
        /// The stages.
        stages: usize,
        /// The schedule.
        schedule: String,
        /// Stages of each rank.
        each: usize,
    },
    /// A memory limit in bytes, but the layers' bytes are not known.
    #[error(
        "a limit in bytes needs measured costs{}",
        if *mixed {
            ", and none can be measured for ranks on both the CPU and GPUs: leave it out"
        } else {
            ": run `pipewright profile` and set pipeline.costs"
        }
    )]
    NoCosts {
        /// Whether some ranks are on GPUs and others are not.
        mixed: bool,
    },
    /// No cut fits the memory limit.
    #[error(
        "{limit} is less than any cut of {layers} layers into {stages} stages holds with {schedule}; the \
         least found is {least}"
    )]
    NoCut {
        /// The limit, as text.
        limit: String,
        /// The layers of the model.
        layers: usize,
        /// The stages.
        stages: usize,
        /// The schedule.
        schedule: String,
        /// The smallest memory of a cut, as text.
        least: String,
    },
    /// The stages of a listed partition do not fit the memory limit.
    #[error("{limit} is less than the stages of pipeline.partition hold with {schedule}, {least}")]
    ListedCut {
        /// The limit, as text.
        limit: String,
        /// The schedule.
        schedule: String,
        /// What the stages hold, as text.
        least: String,
    },
    /// Training that needs more memory than a device has.
    #[error(
        "training needs about {needed} of memory{}, and {whose} {limit}{}: {of_model} for weights, gradients \
         and the optimizer, {of_batch} for activations and buffers{}; {advice}",
        in_processes(*processes), still_free(free, limit), copied(copies.as_deref())
    )]
    TooMuchMemory {
        /// All the memory that is needed. All sizes here are texts.
        needed: String,
        /// Whose limit it is.
        whose: String,
        /// The limit.
        limit: String,
        /// How much of it is free.
        free: String,
        /// How many processes need it together.
        processes: usize,
        /// What weights, gradients and the optimizer need.
        of_model: String,
        /// What activations and buffers need.
        of_batch: String,
        /// What copies for checkpoints need, if there are some.
        copies: Option<String>,
        /// What to do.
        advice: &'static str,
    },
    /// No rank is on a GPU, so there is nothing to offload.
    #[error("all ranks are on the CPU, and only GPUs offload: remove it, or name GPUs in pipeline.devices")]
    NothingToOffload,
    /// Stages recompute differently, but costs are for one way.
    #[error("costs are for stages that all recompute the same: give one word for all")]
    MixedRecompute,
    /// Ranks on which costs cannot be measured.
    #[error("{0}")]
    Unmeasurable(#[source] Box<Error>),
    /// It is not known how long this takes on a GPU that is not here.
    #[error("for a GPU that is not here (--device), only this can be planned: {what}")]
    Unmodelled {
        /// What can be planned.
        what: &'static str,
    },
    /// Costs would be measured on a GPU that is missing.
    #[error(
        "the costs of layers are measured where they run, and {0}. Plan by the published figures of a kind \
         of GPU (--device), with a file that was measured there (--costs), or, with the costs on the CPU, \
         with --set pipeline.devices=cpu"
    )]
    NoGpu(#[source] pipewright::stages::Error),
}

fn times(dims: &[usize]) -> String {
    let dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
    dims.join(" x ")
}

pub(super) fn divisors(dim: usize) -> String {
    let heads = (1..=dim.min(64)).filter(|heads| dim.is_multiple_of(*heads));
    let heads: Vec<_> = heads.map(|heads| heads.to_string()).collect();
    heads.join(", ")
}

/// How much of a limit is free, where that is not all of it.
fn copied(copies: Option<&str>) -> String {
    copies.map_or_else(String::new, |copies| {
        format!(", {copies} for copies from which checkpoints are written")
    })
}

fn still_free(free: &str, limit: &str) -> String {
    match free == limit {
        true => String::new(),
        false => format!(", of which {free} is free"),
    }
}

fn in_processes(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" in the {count} processes of this machine"),
    }
}

fn between(least: u32, most: u32) -> String {
    match most {
        u32::MAX => format!("{least} or more"),
        most if most == least => least.to_string(),
        most => format!("{least} to {most}"),
    }
}

/// The multiples of `each` just below and above.
fn multiples(stages: usize, each: usize) -> String {
    let above = stages.next_multiple_of(each);
    match stages / each * each {
        0 => above.to_string(),
        below => format!("{below} or {above}"),
    }
}

fn ranks_in_words(ranks: usize, replicas: u32) -> String {
    match replicas {
        1 => format!("{ranks} ranks"),
        _ => format!("{replicas} replicas of {ranks} ranks"),
    }
}
