//! What is trained of a model: the section `[lora]`, and the groups of parameters of `[optimizer]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::key::{ABOVE_0, section};

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
