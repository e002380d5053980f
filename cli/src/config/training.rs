//! What is trained of a model: the section `[lora]`, and the groups of parameters of `[optimizer]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[lora]`: low-rank adapters of linear layers. With them, nothing else is trained, unless a group of
/// `optimizer.groups` says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lora {
    /// The rank of each adapter. 0: no adapters.
    pub rank: usize,
    /// An adapter's output is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The probability of dropout of an adapter's input.
    pub dropout: f64,
    /// Which linear layers have an adapter: patterns with `*`.
    pub targets: Vec<String>,
    /// A folder with adapters in PEFT's form, to start from. It decides the keys above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

impl Default for Lora {
    fn default() -> Self {
        Self {
            rank: 0,
            alpha: 16.0,
            dropout: 0.0,
            targets: vec!["*.attn.*".to_owned()],
            path: None,
        }
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
