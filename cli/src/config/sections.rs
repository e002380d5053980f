//! The sections of a config, their keys and their defaults.

use std::path::PathBuf;

use pipewright::stages::{DType, Recompute};
use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::endpoint::endpoint;
use super::memory::Memory;
use super::values::{Auto, Balanced, Partition, RecomputeBy, WarnOfStall};
use pipewright::mesh::Map;
use pipewright::pipeline::STALL_LIMIT;

/// `[pipeline]`: how the model is cut and how a step is divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pipeline {
    /// The number of stages in total.
    pub stages: usize,
    /// Stages on each rank. Default: as the schedule needs. There are `stages / chunks` ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u32>,
    /// The schedule: a name, `auto` for the shortest one, or `file:` and the path of a CSV file.
    pub schedule: String,
    /// The number of micro-batches in a step, over all replicas.
    pub micro_batches: u32,
    /// Copies of the pipeline. Each has a share of the micro-batches, and their gradients are summed.
    pub replicas: u32,
    /// How replicas come to the same weights: by reductions, or by a parameter server.
    pub sync: SyncKind,
    /// server: of how many steps updates may be missing in the weights of a step.
    pub max_staleness: u32,
    /// Into how many groups a batch's micro-batches are divided, to add up their gradients. A replica has
    /// whole groups. Default: [`Groups::usual`](pipewright::groups::Groups::usual) for the replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_groups: Option<u32>,
    /// Rows of a micro-batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch_size: Option<usize>,
    /// Rows of a step, instead of `micro_batch_size`. The number of micro-batches must divide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// How layers are distributed over stages.
    pub partition: Partition,
    /// A file of measured costs, from the command `profile`. A balanced partition uses them, so do schedules
    /// whose order depends on costs, and so does the prediction of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<PathBuf>,
    /// The most bytes of activations that a rank may hold. It limits balanced partitions and the schedule
    /// `auto`, and needs measured costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What stages recompute in backward instead of keeping it: less memory, more time, the same weights.
    pub recompute: RecomputeBy,
    /// The most bytes of host memory that a rank on a GPU uses to offload activations between forward and
    /// backward: less memory of the GPU, the same weights. Default: nothing is offloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<Memory>,
    /// Where ranks run: one device for all, or one for each.
    pub devices: Devices,
    /// The type of the numbers with which ranks compute.
    pub dtype: DType,
    /// How many threads a rank uses inside layers. Useful if there are more cores than ranks.
    pub threads_per_rank: usize,
    /// Whether each thread of the ranks on the CPU is pinned to a core of its own, if there are enough cores.
    /// Two runs on one machine would be pinned to the same cores: with `false` they share all cores.
    pub pin: bool,
    /// After how many seconds without a move a stall is told; by default, the times seen so far decide.
    pub stall_warning: WarnOfStall,
    /// Seconds that nothing may move before the run ends; 0 for any time.
    pub stall_limit: u64,
}

/// How the replicas of a config come to the same weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncKind {
    /// Their gradients are reduced in each step.
    #[default]
    Reduce,
    /// They push gradients to a parameter server, and take weights from it.
    Server,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            stages: 2,
            chunks: None,
            schedule: "1f1b".to_owned(),
            micro_batches: 4,
            replicas: 1,
            sync: SyncKind::default(),
            max_staleness: 0,
            gradient_groups: None,
            micro_batch_size: None,
            batch_size: None,
            partition: Partition::Named(Balanced::Balanced),
            costs: None,
            memory: None,
            recompute: RecomputeBy::All(Recompute::None),
            offload: None,
            devices: Devices::default(),
            dtype: DType::F32,
            threads_per_rank: 1,
            pin: true,
            stall_warning: WarnOfStall::Named(Auto::Auto),
            stall_limit: STALL_LIMIT.as_secs(),
        }
    }
}

/// `[train]`: how long to train, and what to print.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// The run's name: it is kept in `runs/NAME`.
    pub name: String,
    /// The number of steps.
    pub steps: u64,
    /// Steps between validations. 0: none.
    pub validate_every: u64,
    /// Micro-batches of a validation. Default: all images, or 128 windows of text or tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_micro_batches: Option<u32>,
    /// Steps between texts that the model writes. 0: none.
    pub sample_every: u64,
    /// The beginning of these texts. Default: a line break, or the token that ends a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_prompt: Option<String>,
    /// How many tokens follow it.
    pub sample_tokens: usize,
    /// How random the choice of each token is: 0 always takes the most likely one.
    pub sample_temperature: f64,
    /// The seed of these choices.
    pub sample_seed: u64,
    /// Steps between printed lines, if there is no progress bar.
    pub print_every: u64,
    /// How often a rank that fails in a step is built again, and how often in the run a process that dies is
    /// replaced. 0: a failure ends the run.
    pub restarts: u32,
    /// With restarts: the most steps between two snapshots of a rank's weights. A rank that is built again
    /// repeats the steps since the last one; if a process dies, all do.
    pub snapshot_every: u32,
}

impl Default for Train {
    fn default() -> Self {
        Self {
            name: "run".to_owned(),
            steps: 1000,
            validate_every: 100,
            validation_micro_batches: None,
            sample_every: 0,
            sample_prompt: None,
            sample_tokens: 100,
            sample_temperature: 0.8,
            sample_seed: 1,
            print_every: 10,
            restarts: 0,
            snapshot_every: 10,
        }
    }
}

/// `[checkpoint]`: when the run is saved. It is always saved at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints. 0: only at the end.
    pub every: u64,
    /// How many of the newest checkpoints are kept. The newest one whose weights a later step has shown to be
    /// good is always kept.
    pub keep: usize,
    /// Steps between checkpoints that are kept for ever. 0: none.
    pub keep_every: u64,
    /// Whether checkpoints are written while the next steps run, from copies.
    pub beside: bool,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            every: 100,
            keep: 3,
            keep_every: 0,
            beside: true,
        }
    }
}

/// `[metrics]`: what others can read during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Port of a Prometheus endpoint, which only this machine reaches, or address and port. Default: none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub listen: Option<std::net::SocketAddr>,
    /// Whether the numbers of each step are written for TensorBoard too.
    pub tensorboard: bool,
}

/// What connects the processes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricKind {
    /// MPI, if the program is built with it and an MPI launcher has started it; otherwise sockets.
    #[default]
    Auto,
    /// Sockets.
    Sockets,
    /// The system's MPI.
    Mpi,
}

/// `[launch]`: how the processes of a run find and reach each other, if there are several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Launch {
    /// What connects them.
    pub fabric: FabricKind,
    /// Host and port at which process 0 listens. Default: what the launcher's variables say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The seconds in which all processes must have connected.
    pub deadline: u64,
    /// The file with the secret that all processes know. Default: what `PIPEWRIGHT_TOKEN` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Whether connections between machines are encrypted.
    pub tls: bool,
    /// Which ranks stay together inside of a host: the ranks of a pipeline, or the replicas of a pipeline
    /// rank.
    pub map: Map,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            fabric: FabricKind::Auto,
            address: None,
            deadline: 60,
            token_file: None,
            tls: false,
            map: Map::Pipeline,
        }
    }
}
