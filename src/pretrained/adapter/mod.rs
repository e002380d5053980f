//! Low-rank adapters in PEFT's form: a folder with `adapter_config.json` and `adapter_model.safetensors`.

mod keys;
mod targets;

use std::fs;
use std::path::Path;

use serde_json::json;

pub use keys::{ADAPTER_CONFIG, told_of_adapters};

use self::keys::{Described, WEIGHTS};
use self::targets::{HEAD, Names, targets};
use super::architecture::{Architecture, Base};
use super::head::{Head, SCORE};
use super::mapped::Mapped;
use super::weights::Weights;
use super::write::{fill, write_tensors};
use crate::error::{Error, Result};

/// The head of a reward model, as a module.
const REWARD_HEAD: &str = "score";

/// What PEFT puts before the names of a model's modules.
const PREFIX: &str = "base_model.model.";

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

/// Reads what the adapters in a folder are like.
///
/// # Errors
/// When the folder has no adapters, or such as this program cannot compute with.
pub fn read_adapters(folder: &Path, base: Base<'_>) -> Result<Adapters> {
    let described = Described::read(folder)?;
    let json = described.json();
    let targets = targets(json, base)?;
    let (rank, alpha) = (json.count("r")?, json.number("lora_alpha")?);
    json.require(rank > 0, "r", "1 or more")?;
    let alpha = match json.truth_or("use_rslora", false)? {
        // Kalajdzievski, "A rank stabilization scaling factor for fine-tuning with LoRA" (2023).
        true => alpha * (rank as f64).sqrt(),
        false => alpha,
    };
    Ok(Adapters { rank, alpha, dropout: json.number("lora_dropout")?, targets })
}

/// Opens the weights of the adapters in a folder, and of an adapted head, which PEFT saves beside them.
///
/// # Errors
/// When a file is missing or damaged, or [`ADAPTER_CONFIG`] has a key that this program refuses. When tensors
/// are missing, left over or of another shape: all of them are named.
pub fn open_adapters(
    folder: &Path,
    architecture: &Architecture,
    rank: usize,
    targets: &[Target],
) -> Result<Weights> {
    let described = Described::read(folder)?;
    let weights = Weights::listed(folder, vec![WEIGHTS.to_owned()])?.renamed(plain);
    let (with_head, gives_rewards) = (weights.lists(&head_there()), weights.lists(&score_there()));
    if gives_rewards && architecture.head() == Head::Tokens {
        return Err(Error::a_reward_model(folder));
    }
    let mut table = table(architecture, rank, targets, with_head);
    // Adapters of a model of texts are a start of a reward model, and its head starts with random numbers.
    if !gives_rewards && !described.gives_rewards() {
        table.retain(|mapped| mapped.name != SCORE);
    }
    weights.checked(table, ADAPTER_CONFIG)
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
        "task_type": match architecture.head() {
            Head::Tokens => "CAUSAL_LM",
            Head::Reward => keys::OF_REWARDS,
        },
        "modules_to_save": match architecture.head() {
            Head::Tokens => None,
            Head::Reward => Some([REWARD_HEAD]),
        },
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
    let with_head = targets.iter().any(|(target, _)| target == HEAD);
    let table = table(architecture, adapters.rank, targets, with_head);
    fill(folder, || {
        fs::write(&path, text).map_err(Error::io("write", &path))?;
        write_tensors(&folder.join(WEIGHTS), &table, weights)
    })
}

/// The parameters of adapters, each with its tensor there, and the weights of the head itself, if they are
/// there too. The head of a reward model always is.
fn table(architecture: &Architecture, rank: usize, targets: &[Target], with_head: bool) -> Vec<Mapped> {
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
    let of_head = |(target, [inputs, outputs]): &Target| {
        let ours = format!("{target}.weight");
        (target == HEAD && with_head).then(|| Mapped::one(ours, &[*outputs, *inputs], head_there()))
    };
    // A reward model's head is trained beside the adapters.
    let of_rewards = architecture.table().into_iter().filter(|mapped| mapped.name == SCORE);
    let of_rewards = of_rewards.map(|mapped| Mapped::one(mapped.name, &mapped.dims, score_there()));
    let adapters = targets.iter().filter_map(both).flatten();
    adapters.chain(targets.iter().filter_map(of_head)).chain(of_rewards).collect()
}

/// What PEFT calls the weights of a head that has an adapter.
fn head_there() -> String {
    format!("{PREFIX}{HEAD}.base_layer.weight")
}

/// What PEFT calls the head of a reward model.
fn score_there() -> String {
    format!("{PREFIX}{SCORE}")
}

/// A tensor's name as PEFT writes it, for a name without PEFT's prefix, or with the name of an adapter, as in
/// a model's own `state_dict`.
fn plain(name: &str) -> String {
    let name = name.replace(".default.weight", ".weight").replace("score.modules_to_save.weight", SCORE);
    match name.starts_with(PREFIX) {
        true => name,
        false => format!("{PREFIX}{name}"),
    }
}
