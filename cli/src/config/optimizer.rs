//! What is trained of a model, and how gradients change its weights: `[optimizer]` and `[lora]`.

use std::path::PathBuf;

use pipewright::stages::optimizer::{self as engine, Adafactor, AdamW, Decay, Lion, Muon, Sgd, StateFormat};
use serde::{Deserialize, Serialize};

use super::key::{ABOVE_0, BELOW_1, FROM_0, Range, is_below_1, section};

/// The schedules with a warm-up.
const RISING: &[&str] = &["cosine", "linear", "wsd"];

const ADAMW: &str = "write \"adamw\"";
const BETAS: &str = "write both, such as optimizer.betas = [0.9, 0.95]";
const COUNTS: &str = "it counts steps";
const ON_HOST: &str =
    "`true` keeps the optimizer's state on the host; for activations there is pipeline.offload";
const SHARDED: &str = "with replicas, `true` divides the optimizer's state among them";
const WARMUP: &str = "give the steps of the warm-up by optimizer.warmup_steps, and what follows them here";

section! {
    /// `[optimizer]`: how gradients change weights.
    pub struct Optimizer {
        /// The rule for a step: `"adamw"`, `"adafactor"`, `"lion"`, `"muon"` or `"sgd"`.
        kind: OptimizerKind = OptimizerKind::AdamW => [
            page("#optimizers"), also("name type optim optimizer"),
            values(&[
                ("adam", "\"adamw\" with optimizer.weight_decay = 0 is the same"), ("adamw_torch", ADAMW),
                ("adamw_torch_fused", ADAMW), ("fusedadam", ADAMW),
            ]),
        ],
        /// The learning rate. If it changes, its highest value.
        learning_rate: f64 = 1e-3 => [within(ABOVE_0), also("lr")],
        /// How the learning rate changes: `"constant"`, `"cosine"`, `"linear"`, or `"wsd"` (warm-up, stable,
        /// decay).
        schedule: LearningRateSchedule = LearningRateSchedule::Constant => [
            also("lr_scheduler lr_scheduler_type scheduler"),
            values(&[("constant_with_warmup", WARMUP), ("cosine_with_warmup", WARMUP)]),
        ],
        /// cosine, linear, wsd: steps over which it rises from 0 in a straight line.
        warmup_steps: u64 = 0 => [
            only("schedule", RISING), noted(&[("warmup warmup_ratio", COUNTS)]),
        ],
        /// wsd: the last steps, over which it falls in a straight line; 0: it stays constant after the
        /// warm-up.
        decay_steps: u64 = 100 => [only("schedule", &["wsd"]), noted(&[("decay_ratio", COUNTS)])],
        /// cosine, linear, wsd: its value at `train.steps`.
        min_learning_rate: f64 = 0.0 => [only("schedule", RISING), also("min_lr")],
        /// adamw, muon: the decay rates of AdamW's two moments, `[0.9, 0.95]`. lion: the share of the mean
        /// gradient in a step, and its decay rate, `[0.9, 0.99]`.
        betas: Option<(f64, f64)> = None => [
            only("kind", &["adamw", "lion", "muon"]),
            within(Range(is_below_1, "both must be from 0 to below 1")),
            unset("by kind"), noted(&[("adam_beta1 adam_beta2 beta1 beta2", BETAS)]),
        ],
        /// adamw, muon: added to the root of AdamW's second moment.
        eps: f64 = 1e-8 => [only("kind", &["adamw", "muon"]), within(ABOVE_0), also("adam_epsilon epsilon")],
        /// adamw: how its two moments are stored: `"f32"`, `"bf16"` (rounded at random), or `"8bit"` (blocks
        /// of 128 numbers with a scale).
        state: StateFormat = StateFormat::F32 => [
            only("kind", &["adamw"]), page("#fewer-bits-for-moments"), also("optim_bits state_dtype"),
        ],
        /// sgd: the decay rate of the velocity, `0.9`; 0 for none. muon: the decay rate of the mean gradient,
        /// `0.95`.
        momentum: Option<f64> = None => [only("kind", &["muon", "sgd"]), within(BELOW_1), unset("by kind")],
        /// muon: the names of matrices that AdamW updates; by default `wte.weight`, `wpe.weight` and
        /// `lm_head.weight`, their names in the ready models. In a stack, name the last layer too.
        by_adamw: Option<Vec<String>> = None => [only("kind", &["muon"]), unset("embeddings and heads")],
        /// The weight decay. It is decoupled, except for sgd.
        weight_decay: f64 = 0.0 => [within(FROM_0), also("wd")],
        /// Which parameters have weight decay, also one of a group's own: `"matrices"` (no biases, no norms)
        /// or `"all"`.
        decay: Decay = Decay::Matrices,
        /// The largest norm of the whole gradient; larger ones are scaled down to it; 0 for none.
        clip: f64 = 1.0 => [
            within(Range(|value| value >= 0.0, "it must be 0 (no clipping) or more")),
            also("gradient_clip gradient_clip_val gradient_clipping max_grad_norm max_norm"),
        ],
        /// The share of each target that is spread over all classes: for training, and for the losses that
        /// are shown. With `train.objective = "dpo"`, the share of pairs whose answers are assumed to be
        /// swapped, below 0.5.
        label_smoothing: f64 = 0.0 => [within(BELOW_1), also("label_smoothing_factor")],
        /// Whether each replica updates only its part of the weights, and holds only that part of the
        /// optimizer's state (ZeRO-1), and with `looped-bfs` of the gradients too (ZeRO-2).
        sharded: bool = false => [
            harmless, noted(&[("fsdp zero_optimization zero_stage data_parallel_shard_degree", SHARDED)]),
        ],
        /// Whether ranks on GPUs keep the optimizer's state in page-locked memory of the host. Each update
        /// brings it to the GPU part by part, and back.
        state_on_host: bool = false => [
            harmless, page("offload.md#the-state-of-the-optimizer"),
            noted(&[("offload_optimizer cpu_offload optimizer_offload", ON_HOST)]),
        ],
        /// Groups of parameters that are trained in their own way.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        groups: Vec<Group> = Vec::new() => [page("#groups-of-parameters")],
    }
}

/// The optimizers a config can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    AdamW,
    /// AdamW with a mean square for each row and column only, and no mean gradient.
    Adafactor,
    /// The sign of a mean gradient.
    Lion,
    /// The orthogonal matrix that is nearest to a mean gradient; AdamW for embeddings, heads and vectors.
    Muon,
    /// Stochastic gradient descent.
    Sgd,
}

/// How the learning rate changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearningRateSchedule {
    /// It stays constant.
    Constant,
    /// It rises in a straight line, then falls along half a cosine.
    Cosine,
    /// It rises in a straight line, then falls in one.
    Linear,
    /// It rises in a straight line, stays, and falls in a straight line in the last steps.
    Wsd,
}

impl Optimizer {
    /// The decay rates, as given or the kind's own.
    pub fn betas(&self) -> (f64, f64) {
        self.betas.unwrap_or(match self.kind {
            OptimizerKind::Lion => (0.9, 0.99),
            _ => (0.9, 0.95),
        })
    }

    /// The momentum, as given or the kind's own.
    pub fn momentum(&self) -> f64 {
        self.momentum.unwrap_or(match self.kind {
            OptimizerKind::Muon => 0.95,
            _ => 0.9,
        })
    }

    /// The optimizer itself.
    pub(crate) fn made(&self) -> Box<dyn engine::Optimizer> {
        let (betas, momentum) = (self.betas(), self.momentum());
        let (weight_decay, decay) = (self.weight_decay, self.decay);
        let adamw = AdamW { betas, eps: self.eps, weight_decay, decay, state: self.state };
        match self.kind {
            OptimizerKind::AdamW => Box::new(adamw),
            OptimizerKind::Adafactor => Box::new(Adafactor { weight_decay, decay, ..Adafactor::default() }),
            OptimizerKind::Lion => Box::new(Lion { betas, weight_decay, decay }),
            OptimizerKind::Muon => Box::new(Muon {
                momentum,
                adamw,
                by_adamw: self.by_adamw.clone().unwrap_or(Muon::default().by_adamw),
            }),
            OptimizerKind::Sgd => Box::new(Sgd { momentum, weight_decay, decay }),
        }
    }

    /// Whether an update of a number depends on other numbers, so that replicas cannot share updates.
    pub(crate) fn needs_whole_parameters(&self) -> bool {
        !self.made().updates_parts()
    }

    /// Whether each replica can hold only a part of the optimizer's state.
    pub(crate) fn may_be_sharded(&self) -> bool {
        let optimizer = self.made();
        optimizer.updates_parts() && !optimizer.states("", &[1]).is_empty()
    }
}

/// The largest rank of an adapter. Larger ones are no low ranks.
const RANK: usize = 1 << 12;

section! {
    /// `[lora]`: low-rank adapters of linear layers. With them, nothing else is trained, unless a group of
    /// `optimizer.groups` says so.
    pub struct Lora {
        /// The rank of each adapter; 0 for none.
        rank: usize = 0 => [at_most(RANK, "rows"), also("r lora_r lora_rank")],
        /// An adapter's output is multiplied by `alpha / rank`.
        alpha: f64 = 16.0 => [within(ABOVE_0), also("lora_alpha")],
        /// The probability of dropout of an adapter's input, from 0 to below 1.
        dropout: f64 = 0.0 => [probability, also("lora_dropout")],
        /// Which linear layers have one: patterns, where `*` is any text.
        targets: Vec<String> = vec!["*.attn.*".to_owned()] => [
            also("target_modules lora_target_modules"),
            values(&[("all-linear", "write [\"*.attn.*\", \"*.mlp.*\"]")]),
        ],
        /// A folder with adapters in PEFT's form, to start from; the keys above come from it, so none of them
        /// may be set. It needs `model.path`.
        path: Option<PathBuf> = None => [also("adapter_name_or_path")],
    }
}

/// A group of parameters that are trained in their own way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "groups such as [{ parameters = [\"h.0.*\"], frozen = true }]"
)]
pub struct Group {
    /// The names of the parameters: patterns with `*`.
    pub parameters: Vec<String>,
    /// Whether they stay as they are. Default: no. With adapters, parameters that are in no group and are no
    /// adapters are frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<bool>,
    /// The factor for the learning rate. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The weight decay, where `optimizer.decay` applies it. Default: `optimizer.weight_decay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
}
