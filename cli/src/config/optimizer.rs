//! `[optimizer]`: how gradients change weights.

use pipewright::stages::optimizer::Decay;
use serde::{Deserialize, Serialize};

use super::training::Group;

/// `[optimizer]`: how gradients change weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Optimizer {
    /// The rule by which it changes them.
    pub kind: OptimizerKind,
    /// The learning rate. If it changes, its highest value.
    pub learning_rate: f64,
    /// How the learning rate changes over the steps.
    pub schedule: LearningRateSchedule,
    /// cosine, linear, wsd: the number of steps in which it rises from 0.
    pub warmup_steps: u64,
    /// wsd: the number of last steps in which it falls.
    pub decay_steps: u64,
    /// cosine, linear, wsd: its value at `train.steps`.
    pub min_learning_rate: f64,
    /// adamw, muon: the decay rates of AdamW's two moments. lion: the share of the mean gradient in a step,
    /// and its decay rate. Default: 0.9 and 0.95; for lion 0.9 and 0.99.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub betas: Option<(f64, f64)>,
    /// adamw, muon: the number that is added to the root of AdamW's second moment.
    pub eps: f64,
    /// sgd: the decay rate of the velocity. 0: no velocity. muon: the decay rate of the mean gradient.
    /// Default: 0.9; for muon 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// muon: the names of matrices that AdamW updates. Default: embeddings and heads of the ready models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_adamw: Option<Vec<String>>,
    /// Weight decay.
    pub weight_decay: f64,
    /// The parameters to which weight decay applies.
    pub decay: Decay,
    /// The largest norm of the whole gradient. A larger gradient is scaled down to it. 0: no clipping.
    pub clip: f64,
    /// The share of each target that is spread over all classes.
    pub label_smoothing: f64,
    /// Whether each replica updates only its part of the weights, and holds only that part of the
    /// optimizer's state (ZeRO-1).
    pub sharded: bool,
    /// Parameters that are trained in their own way. The first group whose pattern fits a parameter's name
    /// counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
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

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::AdamW,
            learning_rate: 1e-3,
            schedule: LearningRateSchedule::Constant,
            warmup_steps: 0,
            decay_steps: 100,
            min_learning_rate: 0.0,
            betas: None,
            eps: 1e-8,
            momentum: None,
            weight_decay: 0.0,
            decay: Decay::Matrices,
            clip: 1.0,
            label_smoothing: 0.0,
            sharded: false,
            by_adamw: None,
            groups: Vec::new(),
        }
    }
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

    /// Whether an update of a number depends on other numbers, so that replicas cannot share updates.
    pub(crate) fn needs_whole_parameters(&self) -> bool {
        matches!(self.kind, OptimizerKind::Adafactor | OptimizerKind::Muon)
    }

    /// Whether each replica can hold only a part of the optimizer's state.
    pub(crate) fn may_be_sharded(&self) -> bool {
        let has_state = self.kind != OptimizerKind::Sgd || self.momentum() != 0.0;
        has_state && !self.needs_whole_parameters()
    }
}
