//! The sections of a config, their keys and what these are when nobody sets them.

use std::path::PathBuf;

use pipewright_stages::optimizer::Decay;
use pipewright_stages::{DType, Recompute};
use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::memory::Memory;
use super::values::{Balanced, Partition, Paths, RecomputeBy, Sizes};
use crate::data::{Share, Width};
use crate::pipeline::STALL_LIMIT;

/// `[model]`: what is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// A GPT-2 or a multi-layer perceptron.
    pub kind: ModelKind,
    /// gpt: the number of tokens; 256 for bytes.
    pub vocab: usize,
    /// gpt: the width.
    pub dim: usize,
    /// gpt: the number of blocks.
    pub layers: usize,
    /// gpt: attention heads in a block; they divide `dim`.
    pub heads: usize,
    /// gpt: whether the output projection is the token embedding.
    pub tied: bool,
    /// mlp: the widths, input and output included.
    pub sizes: Sizes,
    /// The probability of dropout, from 0 to below 1.
    pub dropout: f64,
    /// The seed of the first weights and of dropout.
    pub seed: u64,
}

/// The models a config can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// A GPT-2 over tokens.
    Gpt,
    /// A multi-layer perceptron over images.
    Mlp,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            kind: ModelKind::Gpt,
            vocab: 256,
            dim: 128,
            layers: 4,
            heads: 4,
            tied: false,
            sizes: Sizes(vec![784, 128, 10]),
            dropout: 0.0,
            seed: 1,
        }
    }
}

/// `[data]`: what it is trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Text as bytes, token files or labelled images.
    pub kind: DataKind,
    /// text: files and folders, or [`Paths::BUILT_IN`]; tokens: files; idx: the file of images, or a folder
    /// with one pair. Relative paths start at the current directory.
    pub path: Paths,
    /// idx: the file of labels, when its name does not follow from that of the images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,
    /// text, tokens: the length of a training sequence.
    pub seq: usize,
    /// tokens: the width of a token.
    pub dtype: Width,
    /// What is set aside for validation, from the end of the data: a fraction, or a whole number of tokens or
    /// rows.
    pub validation: Share,
    /// The seed of the order in which the data is taken.
    pub seed: u64,
}

/// The kinds of data a config can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataKind {
    /// Text, one byte a token.
    Text,
    /// Files of tokens.
    Tokens,
    /// A pair of IDX files, as MNIST.
    Idx,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            kind: DataKind::Text,
            path: Paths::default(),
            labels: None,
            seq: 128,
            dtype: Width::U16,
            validation: Share::Fraction(0.1),
            seed: 1,
        }
    }
}

/// `[pipeline]`: how the model is cut and a step is divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pipeline {
    /// The number of stages in all.
    pub stages: usize,
    /// Stages on each rank; when nobody sets it, as many as the schedule has by itself. There are `stages /
    /// chunks` ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u32>,
    /// The schedule's name, or `auto` for the shortest, or `file:` and the path of a CSV file with one.
    pub schedule: String,
    /// The number of micro-batches in a step.
    pub micro_batches: u32,
    /// Rows of a micro-batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch_size: Option<usize>,
    /// Rows of a step, in place of `micro_batch_size`: the micro-batches divide them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// How layers are spread over stages.
    pub partition: Partition,
    /// Measured costs, as the command `profile` writes them: what a balanced partition balances, what
    /// schedules that fit their order to costs fit it to, and what a run is predicted from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<PathBuf>,
    /// The most bytes of activations that a rank may hold: a limit for balanced partitions and for schedule
    /// `auto`. Needs measured costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What stages make again in backward instead of keeping it: less memory, more time, the same weights.
    pub recompute: RecomputeBy,
    /// Where ranks run: one device for all, or one for each.
    pub devices: Devices,
    /// The numbers that ranks on GPUs compute in.
    pub dtype: DType,
    /// How many threads a rank uses inside layers: for more cores than ranks.
    pub threads_per_rank: usize,
    /// Whether each thread of each rank on the CPU is pinned to a core of its own, where there are as many
    /// cores as threads. Two runs on one machine would be pinned to the same cores: `false` lets them share
    /// all.
    pub pin: bool,
    /// Seconds that one action of a rank may take before it counts as a stall; 0 for any time.
    pub stall_limit: u64,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            stages: 2,
            chunks: None,
            schedule: "1f1b".to_owned(),
            micro_batches: 4,
            micro_batch_size: None,
            batch_size: None,
            partition: Partition::Named(Balanced::Balanced),
            costs: None,
            memory: None,
            recompute: RecomputeBy::All(Recompute::None),
            devices: Devices::default(),
            dtype: DType::F32,
            threads_per_rank: 1,
            pin: true,
            stall_limit: STALL_LIMIT.as_secs(),
        }
    }
}

/// `[optimizer]`: how gradients become new weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Optimizer {
    /// AdamW, or SGD with momentum.
    pub kind: OptimizerKind,
    /// The learning rate; its highest value when it changes.
    pub learning_rate: f64,
    /// How it changes over the steps.
    pub schedule: LearningRateSchedule,
    /// cosine: the steps over which it rises from 0.
    pub warmup_steps: u64,
    /// cosine: what it has fallen to at `train.steps`.
    pub min_learning_rate: f64,
    /// adamw: the decay of the two moments.
    pub betas: (f64, f64),
    /// adamw: what is added to the root of the second moment.
    pub eps: f64,
    /// sgd: the decay of the velocity; 0 for none.
    pub momentum: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// The parameters it takes.
    pub decay: Decay,
    /// The largest norm of the whole gradient; larger ones are scaled down to it. 0 for no clipping.
    pub clip: f64,
}

/// The optimizers a config can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    AdamW,
    /// Stochastic gradient descent.
    Sgd,
}

/// How the learning rate changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearningRateSchedule {
    /// Not at all.
    Constant,
    /// Up in a straight line, then down along half a cosine.
    Cosine,
}

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::AdamW,
            learning_rate: 1e-3,
            schedule: LearningRateSchedule::Constant,
            warmup_steps: 0,
            min_learning_rate: 0.0,
            betas: (0.9, 0.95),
            eps: 1e-8,
            momentum: 0.9,
            weight_decay: 0.0,
            decay: Decay::Matrices,
            clip: 1.0,
        }
    }
}

/// `[train]`: how long, and what is said on the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// The run's name: it is kept in `runs/NAME`.
    pub name: String,
    /// The number of steps.
    pub steps: u64,
    /// Steps between validations; 0 for none.
    pub validate_every: u64,
    /// Micro-batches of a validation. When nobody sets it: all images, or 128 windows of text or tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_micro_batches: Option<u32>,
    /// Steps between printed lines, where there is no progress bar.
    pub print_every: u64,
}

impl Default for Train {
    fn default() -> Self {
        Self {
            name: "run".to_owned(),
            steps: 1000,
            validate_every: 100,
            validation_micro_batches: None,
            print_every: 10,
        }
    }
}

/// `[checkpoint]`: when the run is saved. It is always saved at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0 for the last one only.
    pub every: u64,
    /// How many are kept, the newest; the newest whose weights a later step has shown to be good stays
    /// whatever it is.
    pub keep: usize,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every: 100, keep: 3 }
    }
}

/// `[metrics]`: what others can read while the run goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address and port of a Prometheus endpoint, such as `127.0.0.1:9400`; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<std::net::SocketAddr>,
}

/// `[launch]`: where the processes of a run find each other, when there are several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Launch {
    /// Host and port at which process 0 listens; what `MASTER_ADDR` and `MASTER_PORT` say when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Seconds in which all have to have come.
    pub deadline: u64,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            address: None,
            deadline: 60,
        }
    }
}
