//! Low-rank adapters in PEFT's form: a folder with `adapter_config.json` and `adapter_model.safetensors`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::architecture::Architecture;
use super::families::{gpt2, llama};
use super::json::Json;
use super::mapped::Mapped;
use super::weights::Weights;
use super::write::{fill, write_tensors};
use crate::error::{Error, PretrainedError, Result};

/// The file that describes adapters.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// The file of their weights.
const WEIGHTS: &str = "adapter_model.safetensors";

/// What PEFT puts before the names of a model's modules.
const PREFIX: &str = "base_model.model.";

/// The head, which is in no block and has one name.
const HEAD: &str = "lm_head";

/// What `adapter_config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    /// The rank of each adapter.
    pub rank: usize,
    /// An adapter's output is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The probability of dropout of an adapter's input.
    pub dropout: f64,
    /// The layers that have one, by our names: patterns.
    pub targets: Vec<String>,
}

/// A layer with an adapter: our name, and the numbers of its inputs and outputs.
pub type Target = (String, [usize; 2]);

/// How the modules of a block are called: ours and theirs.
#[derive(Clone, Copy)]
struct Names {
    blocks: &'static str,
    linear: &'static [(&'static str, &'static str)],
}

impl Names {
    /// Of a kind of model, by its name in a config.
    fn of(kind: &str) -> Self {
        match kind {
            "gpt" => Self {
                blocks: gpt2::BLOCKS,
                linear: gpt2::LINEAR,
            },
            _ => Self {
                blocks: llama::BLOCKS,
                linear: llama::LINEAR,
            },
        }
    }

    /// Their name of a layer with our name, such as `h.0.attn.q`.
    fn theirs(self, target: &str) -> Option<String> {
        if target == HEAD {
            return Some(HEAD.to_owned());
        }
        let (block, layer) = target.strip_prefix("h.")?.split_once('.')?;
        let (_, theirs) = self.linear.iter().find(|(ours, _)| *ours == layer)?;
        Some(format!("{}{block}.{theirs}", self.blocks))
    }

    /// The patterns of our names for one of their modules: a whole name, or the end of one.
    fn patterns(self, module: &str) -> Vec<String> {
        if module == HEAD {
            return vec![HEAD.to_owned()];
        }
        let in_block = module
            .strip_prefix(self.blocks)
            .and_then(|rest| rest.split_once('.'));
        let (block, rest) = in_block.unwrap_or(("*", module));
        let ends = |theirs: &str| theirs == rest || theirs.ends_with(&format!(".{rest}"));
        let found = self.linear.iter().filter(|(_, theirs)| ends(theirs));
        found.map(|(ours, _)| format!("h.{block}.{ours}")).collect()
    }
}

/// Reads what the adapters in a folder are like. `kind` is that of their model, in a config.
///
/// # Errors
/// When the folder has no adapters, or such as this program cannot compute with.
pub fn read_adapters(folder: &Path, kind: &str) -> Result<Adapters> {
    let path = folder.join(ADAPTER_CONFIG);
    if !path.is_file() || !folder.join(WEIGHTS).is_file() {
        let folder = folder.to_owned();
        return Err(PretrainedError::NoAdapters { folder }.into());
    }
    let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|source| PretrainedError::Syntax {
        path: path.clone(),
        source,
    })?;
    let (path, value) = (&path, &value);
    let json = Json { path, value };
    json.require(json.text("peft_type")? == Some("LORA"), "peft_type", "`LORA`")?;
    let no_bias = json.text("bias")?.is_none_or(|word| word == "none");
    json.require(no_bias, "bias", "`none`")?;
    for key in ["use_rslora", "use_dora"] {
        json.require(!json.truth_or(key, false)?, key, "false")?;
    }
    let is_empty = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    for key in [
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "layers_to_transform",
    ] {
        json.require(json.get(key).is_none_or(is_empty), key, "empty")?;
    }
    let modules = json.get("target_modules").and_then(Value::as_array);
    json.require(modules.is_some(), "target_modules", "a list of names")?;
    let names = Names::of(kind);
    let mut targets = Vec::new();
    for module in modules.into_iter().flatten().filter_map(Value::as_str) {
        let patterns = names.patterns(module);
        if patterns.is_empty() {
            return Err(PretrainedError::Module {
                path: path.clone(),
                module: module.to_owned(),
                known: names.linear.iter().map(|(_, theirs)| *theirs).collect(),
            }
            .into());
        }
        targets.extend(patterns);
    }
    targets.sort();
    targets.dedup();
    let rank = json.count("r")?;
    json.require(rank > 0, "r", "1 or more")?;
    Ok(Adapters {
        rank,
        alpha: json.number_or("lora_alpha", rank as f64)?,
        dropout: json.number_or("lora_dropout", 0.0)?,
        targets,
    })
}

/// Opens the weights of the adapters in a folder.
///
/// # Errors
/// When a file is missing or damaged. When tensors are missing, left over or of another shape: all of them
/// are named.
pub fn open_adapters(
    folder: &Path,
    architecture: &Architecture,
    rank: usize,
    targets: &[Target],
) -> Result<Weights> {
    let table = table(architecture, rank, targets);
    Weights::of(folder, vec![WEIGHTS.to_owned()], table, ADAPTER_CONFIG)
}

/// Writes adapters into a folder that does not exist yet. `base`: the folder of the model that they are for.
/// `weights` gives the numbers of a parameter by our name.
///
/// # Errors
/// When there is such a folder already, when a file cannot be written, and what `weights` returns.
pub fn write_adapters(
    folder: &Path,
    architecture: &Architecture,
    adapters: &Adapters,
    targets: &[Target],
    base: Option<&Path>,
    weights: impl FnMut(&str) -> Result<Vec<f32>>,
) -> Result<()> {
    let names = Names::of(architecture.name());
    let modules = targets.iter().filter_map(|(target, _)| names.theirs(target));
    let described = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.map(|base| base.display().to_string()),
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": adapters.dropout,
        "target_modules": modules.collect::<Vec<_>>(),
        "bias": "none",
        "fan_in_fan_out": architecture.name() == "gpt",
        "inference_mode": true,
    });
    let path = folder.join(ADAPTER_CONFIG);
    let text = format!("{described:#}\n");
    let table = table(architecture, adapters.rank, targets);
    fill(folder, || {
        fs::write(&path, text).map_err(Error::io("write", &path))?;
        write_tensors(&folder.join(WEIGHTS), &table, weights)
    })
}

/// The parameters of adapters, each with its tensor there.
fn table(architecture: &Architecture, rank: usize, targets: &[Target]) -> Vec<Mapped> {
    let names = Names::of(architecture.name());
    let both = |(target, [inputs, outputs]): &Target| {
        let theirs = names.theirs(target)?;
        let one = |ours: &str, there: &str, dims: [usize; 2]| {
            let there = format!("{PREFIX}{theirs}.{there}.weight");
            Mapped::one(format!("{target}.{ours}.weight"), &dims, there)
        };
        let down = one("lora_a", "lora_A", [rank, *inputs]);
        Some([down, one("lora_b", "lora_B", [*outputs, rank])])
    };
    targets.iter().filter_map(both).flatten().collect()
}
