//! The sections of a config, their keys and their defaults.

use std::path::PathBuf;

use pipewright::stages::{DType, Recompute, WireFormat};
use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::key::{ABOVE_0, FROM_0, ROWS, Range, SEQUENCE, YEAR, section};
use super::memory::Memory;
use super::values::{Auto, Balanced, Partition, RecomputeBy, WarnOfStall, endpoint};
use pipewright::mesh::{MAX_RANKS, Map};
use pipewright::pipeline::STALL_LIMIT;

const RANKS: usize = MAX_RANKS as usize;
const THREADS: usize = 1024;
/// The most micro-batches of a step: with one stage, these are as many cells as a schedule may have.
const MICRO_BATCHES: usize = 1 << 23;

const SHARD_GROUPS: usize = 1024;

/// The objectives that compare answers with a reference.
const PREFERENCES: &[&str] = &["dpo", "ipo"];
const NO_MODEL: &str = "the reference is the model before the training: there is no second model";

const SOCKETS: &[&str] = &["auto", "sockets"];

const BOARD: &str = "write metrics.tensorboard = true";
const BRAIN: &str = "write pipeline.dtype = \"bf16\"";
const COUNTS: &str = "it counts steps";
const NO_F16: &str = "there is no f16: write pipeline.dtype = \"bf16\"";
const NVIDIA: &str = "there are CPUs and NVIDIA's GPUs";
const RECOMPUTE: &str = "write pipeline.recompute = \"full\" or \"selective\"";
const STEPS: &str = "it counts steps, each of all rows of a batch, and not epochs";

section! {
    /// `[pipeline]`: how the model is cut and how a step is divided.
    pub struct Pipeline {
        /// The number of stages in all, into which the model is cut.
        stages: usize = 2 => [
            positive, at_most(RANKS, "stages"), harmless, also("num_stages pipeline_parallel_degree"),
        ],
        /// Stages on each rank; there are `stages / chunks` ranks.
        chunks: Option<u32> = None => [
            positive, at_most(RANKS, "stages a rank"), harmless, unset("the schedule's own"),
        ],
        /// A schedule's name, `"auto"` for the shortest that fits, or `"file:my.csv"`: one of your own, as
        /// `plan --format csv` prints it.
        schedule: String = "1f1b".to_owned() => [harmless, also("pipeline_parallel_schedule")],
        /// The number of micro-batches in a step, over all replicas.
        micro_batches: u32 = 4 => [
            positive, at_most(MICRO_BATCHES, "micro-batches"),
            also("accumulate_grad_batches gradient_accumulation_steps"),
        ],
        /// Copies of the pipeline (data parallelism). Each has a share of the micro-batches, and their
        /// gradients are summed. The weights are the same, bit for bit, for any number with the same
        /// `gradient_groups`.
        replicas: u32 = 1 => [
            positive, at_most(RANKS, "replicas"), harmless, also("data_parallel_replicate_degree"),
        ],
        /// How replicas come to the same weights: `"reduce"` adds up their gradients in each step, `"server"`
        /// is a parameter server.
        sync: SyncKind = SyncKind::default() => [harmless, page("parameter-server.md")],
        /// server: how many steps' updates the weights of a step may not have yet. With 0 the weights are the
        /// same as with `"reduce"`, bit for bit; with more they depend on chance.
        max_staleness: u32 = 0 => [only("sync", &["server"])],
        /// Into how many groups the micro-batches of a step are divided, to add up their gradients. A replica
        /// has whole groups, so there are at most as many replicas. Another number gives weights with other
        /// rounding. A run keeps its number: `--resume` adds in the same order, also with fewer replicas. For
        /// equal bits with 1 and 8 replicas set `8`, which needs memory.
        gradient_groups: Option<u32> = None => [
            positive, unset("`replicas`, up to a power of two"),
            page("replicas.md#the-same-weights-however-many"),
        ],
        /// Parts of each rank of a replica (tensor parallelism): a power of two. Each has a part of the
        /// weights of a layer, and a part of the rows of a micro-batch. The weights are the same, bit for
        /// bit, for any number with the same `shard_groups`. Models of tokens and `mlp`.
        shards: u32 = 1 => [
            positive, at_most(RANKS, "shards"), harmless, page("tensor-parallelism.md"),
            also("tensor_parallel_degree tensor_parallel_size tensor_model_parallel_size tp_size"),
        ],
        /// The number of groups in which sums over divided weights are added up: a power of two, and at
        /// least `shards`. Another number gives weights with other rounding. A run keeps its number. For
        /// equal bits with 1 and 4 shards set `4`.
        shard_groups: Option<u32> = None => [
            positive, at_most(SHARD_GROUPS, "groups"), unset("`shards`"), page("tensor-parallelism.md"),
        ],
        /// Rows of a micro-batch.
        micro_batch_size: Option<usize> = None => [
            positive, at_most(ROWS, "rows"), unset("8, where there is no `batch_size`"),
            also("per_device_train_batch_size train_micro_batch_size_per_gpu local_batch_size \
                  pipeline_parallel_microbatch_size"),
        ],
        /// Rows of a step, instead of `micro_batch_size`; the number of micro-batches has to divide it.
        batch_size: Option<usize> = None => [positive, also("train_batch_size global_batch_size")],
        /// Where the model is cut. `"balanced"` goes by `costs` where they are given, and otherwise by
        /// estimated cost. Or a list of units for each stage: `[["embed", "h.0"], ["h.1..h.3", "head"]]`.
        partition: Partition = Partition::Named(Balanced::Balanced) => [harmless],
        /// Whether the run cuts the model elsewhere while it goes on. `"auto"`: when its steps say that
        /// another cut is faster, for example because a rank has become slow. With `costs` it may go on by
        /// another schedule too, and with more or fewer replicas and shards. The weights stay the same, bit
        /// for bit. `"off"`: only when `pipewright replan` asks for it.
        replan: ReplanBy = ReplanBy::Off => [harmless, page("replanning.md")],
        /// Whether all ranks wait for each other at the end of a step. With `false`, a rank begins the next
        /// step while others still finish this one: `zb-2p`, `zb-v` and `v-half` are then faster, with one
        /// replica. A step that has to be clipped is taken back with the next one, and both run again; so a
        /// step begins early only while none is clipped. The weights stay the same, bit for bit. Each rank
        /// keeps a second copy of its trained weights and their optimizer state. Ranks are on the CPU.
        barrier: bool = true => [harmless, page("bubbles-end.md#steps-without-a-barrier")],
        /// A file of measured costs, which `pipewright profile` writes. A balanced partition goes by them. So
        /// do schedules that fit their order to costs, and the prediction of `train`.
        costs: Option<PathBuf> = None => [harmless, page("tuning.md")],
        /// The most bytes that a rank may hold for later backwards, as `"200MiB"`. A balanced partition and
        /// schedule `auto` stay within it. What would hold more is refused, with the least that works. Needs
        /// `costs`.
        memory: Option<Memory> = None => [harmless],
        /// What is made again in backward instead of kept: `"none"`, `"cheap"` (outputs of norms and
        /// activations before linear layers), `"selective"` (also what is inside of a GPT's attention and
        /// MLP), `"full"` (all but a stage's input); or a list with one word for each stage.
        recompute: RecomputeBy = RecomputeBy::All(Recompute::Cheap) => [
            harmless, page("recompute.md"),
            noted(&[("gradient_checkpointing activation_checkpoint activation_checkpointing", RECOMPUTE)]),
            values(&[("true", RECOMPUTE), ("false", "write \"cheap\" or \"none\"")]),
        ],
        /// The most bytes of host memory that a rank on a GPU uses to offload activations between forward and
        /// backward, as `"8GiB"`. Ranks on the CPU keep theirs.
        offload: Option<Memory> = None => [harmless, page("offload.md")],
        /// Where ranks run: `"cpu"`, or a GPU as `"cuda:0"` (also `"cuda"`). One for all ranks, or a list
        /// with one for each (as text: `"cuda:0,cuda:1"`). Several ranks may share a GPU, and CPU and GPUs
        /// may be mixed. `pipewright devices` lists what is there.
        devices: Devices = Devices::default() => [
            page("gpus.md"), also("device"),
            noted(&[("num_gpus", "write a list, such as pipeline.devices = [\"cuda:0\", \"cuda:1\"]")]),
            values(&[("gpu", "write \"cuda\""), ("mps", NVIDIA), ("rocm", NVIDIA)]),
        ],
        /// The numbers to compute in: `"f32"` or `"bf16"`. Weights, their gradients and the optimizer's state
        /// are `f32`, unless `model.base` and `optimizer.state` say otherwise.
        dtype: DType = DType::F32 => [
            page("bf16.md"), also("torch_dtype"),
            noted(&[("bf16 mixed_precision mixed_precision_param precision", BRAIN), ("fp16", NO_F16)]),
            values(&[
                ("16-mixed", NO_F16), ("bfloat16", BRAIN), ("bf16-mixed", BRAIN), ("f16", NO_F16),
                ("float16", NO_F16), ("float32", "write \"f32\""), ("fp16", NO_F16), ("half", NO_F16),
            ]),
        ],
        /// In which format activations and their gradients go between processes: `"f32"`, `"bf16"`, or
        /// `"8bit"`, in blocks of 128 numbers with a scale. They are rounded to it after each unit of the
        /// model, so the weights are the same, bit for bit, wherever the model is cut. For slow links.
        wires: WireFormat = WireFormat::Whole => [
            page("short-wires.md"), values(&[("int8", "write \"8bit\""), ("f16", "write \"bf16\"")]),
        ],
        /// The number format of sums of gradients: `"f32"`, or `"bf16"`, with which replicas send each other
        /// half as many bytes of gradients. The sum of each gradient group, and each sum of two sums, is
        /// rounded to it, so the weights are the same, bit for bit, for any number of replicas.
        sums: DType = DType::F32 => [page("short-wires.md#sums-over-replicas")],
        /// How many threads a rank on the CPU has inside its layers, for more cores than ranks. The weights
        /// are the same, bit for bit.
        threads_per_rank: usize = 1 => [
            positive, at_most(THREADS, "threads"), harmless, page("launch-threads.md#threads-and-cores"),
        ],
        /// Whether each thread of each rank on the CPU is pinned to a core of its own, where there are as
        /// many cores as threads. With `false`, two runs on one machine can share the cores, and threads can
        /// leave a core that others use.
        pin: bool = true => [harmless],
        /// The seconds after which a stall is reported, if nothing moves; 0 for never. `"auto"`: five times
        /// the longest time for which a rank has stayed where it was in earlier calls of the kind, 5 at
        /// least, and 30 in the first call of a kind.
        stall_warning: WarnOfStall = WarnOfStall::Named(Auto::Auto) => [
            within(Range(
                |value| (0.0..=YEAR as f64).contains(&value),
                "it must be 0 (never) or more seconds, up to a year",
            )),
            harmless, page("stalls.md"),
        ],
        /// The seconds that nothing may move. After them the run ends and says who waits for whom, or
        /// replaces the process that holds the others up. 0 allows any time.
        stall_limit: u64 = STALL_LIMIT.as_secs() => [harmless, page("stalls.md")],
    }
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

section! {
    /// `[train]`: how long to train, and what to print.
    pub struct Train {
        /// The run's name. Its directory is `runs/NAME`.
        name: String = "run".to_owned() => [
            harmless, also("run_name experiment_name"),
            noted(&[("output_dir dump_folder", "the run is in runs/NAME; --run-dir names another folder")]),
        ],
        /// The number of steps.
        steps: u64 = 1000 => [
            positive, also("max_steps"),
            noted(&[("epochs max_epochs n_epochs num_epochs num_train_epochs", STEPS)]),
        ],
        /// What training minimises. `"cross-entropy"`: of the next token, or of an image's class. `"dpo"` and
        /// `"ipo"`: the loss of preferences, from pairs of answers in the fields `chosen` and `rejected`; two
        /// rows are a pair. `"reward"`: from such pairs, a model that gives an answer one number.
        objective: Objective = Objective::CrossEntropy => [page("preferences.md"), also("loss_type")],
        /// dpo, ipo: with a larger one, the model stays nearer to the reference.
        beta: f64 = 0.1 => [only("objective", PREFERENCES), within(ABOVE_0)],
        /// dpo, ipo: what answers are compared with. `"start"`: the model before the training. `"none"`:
        /// nothing.
        reference: ReferenceBy = ReferenceBy::Start => [
            only("objective", PREFERENCES), page("preferences.md#the-reference"),
            noted(&[("reference_free", "write train.reference = \"none\""), ("ref_model", NO_MODEL)]),
        ],
        /// Steps between validations; 0 for none.
        validate_every: u64 = 100 => [
            harmless, noted(&[(
                "eval_interval eval_steps eval_strategy evaluation_strategy val_check_interval", COUNTS,
            )]),
        ],
        /// The micro-batches of a validation.
        validation_micro_batches: Option<u32> = None => [
            harmless, positive, unset("all images, or 128 sequences; `evaluate`: all documents"),
        ],
        /// Steps between texts that the model writes; 0 for none.
        sample_every: u64 = 0 => [harmless, page("watching.md#texts-that-the-model-writes")],
        /// The beginning of these texts; for token files without a tokenizer token numbers, such as `"17 4"`.
        sample_prompt: Option<String> = None => [
            harmless, unset("a line break, or the token that begins or ends a document"),
        ],
        /// The number of tokens that follow it.
        sample_tokens: usize = 100 => [harmless, positive, at_most(SEQUENCE, "tokens")],
        /// How random the choice of each token is; 0 always takes the most likely one.
        sample_temperature: f64 = 0.8 => [
            harmless, within(Range(|value| (0.0..=1000.0).contains(&value), "it must be from 0 to 1000")),
        ],
        /// The seed of these choices, the same for each text.
        sample_seed: u64 = 1 => [harmless],
        /// Steps between printed lines, where there is no progress bar.
        print_every: u64 = 10 => [
            harmless, positive, also("log_freq log_interval logging_steps steps_per_print"),
        ],
        /// How often a rank that fails in a step is built again, and how often in the run a process that dies
        /// is replaced; 0: a failure ends the run.
        restarts: u32 = 0 => [harmless, page("restarts.md")],
        /// With restarts: the most steps between two snapshots of a rank's weights. A rank that is built
        /// again repeats the steps since the last one; if a process dies, all do.
        snapshot_every: u32 = 10 => [harmless, positive],
    }
}

section! {
    /// `[privacy]`: differential privacy, with `clip`.
    pub struct Privacy {
        /// The largest norm of a sample's gradient over the whole model; larger ones are scaled down to it.
        /// It turns privacy on. A micro-batch has one sample, and ranks are on the CPU.
        clip: Option<f64> = None => [
            within(ABOVE_0), unset("no privacy"), page("privacy.md"), also("max_per_sample_grad_norm"),
        ],
        /// The standard deviation of the noise that is added to the sum of the gradients, as a multiple of
        /// `clip`. 0: no noise, and no privacy.
        noise: f64 = 1.0 => [within(FROM_0), page("privacy.md#epsilon"), also("noise_multiplier")],
        /// The probability with which the bound may fail: much less than one over the number of samples.
        delta: f64 = 1e-5 => [
            within(Range(|value| value > 0.0 && value < 1.0, "it must be above 0 and below 1")),
            harmless, also("target_delta"),
        ],
        /// The file with the secret from which the noise follows, the same for all processes; nobody but its
        /// owner may read it. Noise needs it.
        secret_file: Option<PathBuf> = None => [local, page("privacy.md#the-secret"), unset("no secret")],
    }
}

section! {
    /// `[checkpoint]`: when the run is saved. It is always saved at its end.
    pub struct Checkpoint {
        /// Steps between checkpoints; with 0 only the last one is saved, and each one with the lowest
        /// validation loss so far.
        every: u64 = 100 => [harmless, noted(&[("save_interval save_steps save_strategy interval", COUNTS)])],
        /// How many of the newest checkpoints are kept; the best one and the newest good one always stay.
        keep: usize = 3 => [
            harmless, positive, page("checkpoints.md#when-a-run-saves"), also("save_total_limit"),
        ],
        /// Steps between checkpoints that are kept for ever; 0 for none.
        keep_every: u64 = 0 => [harmless],
        /// Where each checkpoint is copied to, while steps run: `"s3://BUCKET/PATH"`, `"gs://BUCKET/PATH"`,
        /// `"az://CONTAINER/PATH"`, or a folder. The cloud needs the feature `cloud`.
        copy_to: Option<String> = None => [harmless, page("object-stores.md"), unset("no copies")],
        /// The file with the key with which checkpoints are encrypted, the same for all processes; nobody but
        /// its owner may read it. `openssl rand -hex 32` makes a key.
        key_file: Option<PathBuf> = None => [
            local, page("privacy.md#encrypted-checkpoints"),
            unset("what `PIPEWRIGHT_KEY` says; else they are not encrypted"),
        ],
        /// Whether checkpoints are written while the next steps run; with `false` the steps wait, and the
        /// memory for copies is not needed.
        beside: bool = true => [harmless, page("checkpoints-written.md#written-while-the-next-steps-run")],
    }
}

section! {
    /// `[metrics]`: what others can read during the run.
    pub struct Metrics {
        /// The port of a Prometheus endpoint, such as `9400`: only this machine reaches it. Or address and
        /// port, such as `"10.0.0.1:9400"`: everybody who reaches that address can read it.
        #[serde(deserialize_with = "endpoint")]
        listen: Option<std::net::SocketAddr> = None => [local],
        /// Whether the numbers of each step are written for TensorBoard too, into the folder `tensorboard` of
        /// the run.
        tensorboard: bool = false => [
            local, page("watching.md#tensorboard"), also("enable_tensorboard"),
            noted(&[("logging_dir report_to", BOARD)]),
        ],
    }
}

/// What training minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Cross-entropy, of tokens or classes.
    CrossEntropy,
    /// Direct preference optimization.
    Dpo,
    /// Identity preference optimization.
    Ipo,
    /// The loss of reward models.
    Reward,
}

/// When a model is cut elsewhere while it is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplanBy {
    /// When somebody asks for it.
    Off,
    /// When it is faster.
    Auto,
}

/// What answers are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReferenceBy {
    /// The model before the training.
    Start,
    /// Nothing.
    None,
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

section! {
    /// `[launch]`: how the processes of a run find and reach each other, if there are several.
    pub struct Launch {
        /// What connects the processes: `"sockets"`, or `"mpi"`, for which the program has to be built.
        /// `"auto"` takes MPI if the program has it and an MPI launcher has started it, otherwise sockets;
        /// `train` prints what it took and why.
        fabric: FabricKind = FabricKind::Auto => [local, page("links.md#by-mpi")],
        /// Not with fabric `"mpi"`: host and port where process 0 listens, such as `"10.0.0.1:29500"`; comes
        /// before the environment's. More of them, after commas, are for a spare that takes its place.
        address: Option<String> = None => [
            only("fabric", SOCKETS), local,
            unset("what the launcher says"), page("launchers.md#with-a-launcher"),
            noted(&[("master_addr", "write host and port, or set MASTER_ADDR and MASTER_PORT")]),
        ],
        /// The seconds in which all processes have to come and to be connected, a year at most; also when one
        /// is replaced.
        deadline: u64 = 60 => [
            positive, at_most(YEAR, "seconds"), local, page("lost-processes.md#processes-that-die"),
        ],
        /// With restarts: the fewest processes with which the run goes on if nobody takes the place of lost
        /// ones before the deadline, and when some are asked to end by SIGTERM. The others then hold their
        /// ranks.
        fewest: Option<u32> = None => [
            positive, only("fabric", SOCKETS), local, unset("all"),
            page("lost-processes.md#with-fewer-processes"),
        ],
        /// Not with fabric `"mpi"`: the file with the secret that all processes know; nobody but its owner
        /// may read it.
        token_file: Option<PathBuf> = None => [
            only("fabric", SOCKETS), local, unset("what `PIPEWRIGHT_TOKEN` says"),
            page("who-gets-in.md#who-gets-in"),
        ],
        /// Not with fabric `"mpi"`: whether connections between hosts are encrypted; needs a secret, and a
        /// program that was built with the feature `tls`.
        tls: bool = false => [only("fabric", SOCKETS), local, page("who-gets-in.md#encryption")],
        /// Which ranks are together in a process and on a host: `"pipeline"` (the ranks of one pipeline) or
        /// `"replicas"` (the replicas of a rank).
        map: Map = Map::Pipeline => [harmless, page("processes.md#which-ranks-are-where")],
    }
}
