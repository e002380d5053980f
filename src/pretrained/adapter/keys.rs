//! The keys of `adapter_config.json`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::pretrained::json::{self, Json};
use crate::pretrained::key::{Key, Table, completed, may_be_null, nothing, only, unknown, used};

/// The file that describes adapters.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// The file of their weights.
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";

/// Those that PEFT 0.19 to 0.21 reads for low-rank adapters, with its defaults. The other ways to start
/// adapters also change the weights of the model, or train one of the two matrices only.
const KEYS: &[Key] = &[
    used("peft_type", "null"),
    may_be_null("task_type", "null"),
    used("r", "8"),
    used("lora_alpha", "8"),
    used("lora_dropout", "0.0"),
    used("use_rslora", "false"),
    may_be_null("target_modules", "null"),
    may_be_null("exclude_modules", "null"),
    may_be_null("layers_to_transform", "null"),
    may_be_null("layers_pattern", "null"),
    only("bias", &["\"none\""], "`none`"),
    only(
        "init_lora_weights",
        &["true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\""],
        "true, false, `gaussian`, `eva` or `orthogonal`: other starts change the model's own weights or \
         freeze a matrix",
    ),
    only("rank_pattern", &["{}", "null"], "empty: all adapters have one rank"),
    only("alpha_pattern", &["{}", "null"], "empty: all adapters have one alpha"),
    only(
        "modules_to_save",
        &["null", "[]", "{}", "[\"score\"]", "[\"classifier\",\"score\"]"],
        "empty, or [\"score\"] for a reward model: add other modules to the weights of the model first",
    ),
    only("trainable_token_indices", NONE, "empty: adapters are of linear layers only"),
    only("target_parameters", NONE, "empty: adapters are of linear layers only"),
    only("layer_replication", NONE, "empty: there is one of each block"),
    only("alora_invocation_tokens", &["null"], "null: an adapter counts for all tokens"),
    only("use_dora", NOT, "false"),
    only("lora_bias", NOT, "false"),
    only("use_qalora", NOT, "false"),
    only("use_bdlora", &["null"], "null"),
    only("arrow_config", &["null"], "null"),
    only("kasa_config", &["null"], "null"),
    only("megatron_config", &["null"], "null"),
    only("monteclora_config", &["null"], "null"),
    only("velora_config", &["null"], "null"),
    nothing(
        "auto_mapping base_model_name_or_path corda_config ensure_weight_tying eva_config \
         fan_in_fan_out inference_mode loftq_config lora_ga_config megatron_core peft_version \
         qalora_group_size revision runtime_config",
    ),
];

/// What PEFT calls the task of a reward model.
pub(super) const OF_REWARDS: &str = "SEQ_CLS";

const NONE: &[&str] = &["null", "[]", "{}"];
const NOT: &[&str] = &["false", "null"];

const TABLE: Table<'_> = Table { prefix: "", keys: KEYS };

/// What a folder says of its adapters.
pub(super) struct Described {
    path: PathBuf,
    found: Value,
    /// With PEFT's defaults.
    all: Value,
}

impl Described {
    /// Reads it.
    ///
    /// # Errors
    /// When there are no adapters, or such as this program cannot compute with.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(ADAPTER_CONFIG);
        if !path.is_file() || !folder.join(WEIGHTS).is_file() {
            let folder = folder.display();
            return Err(Error::pretrained(format!(
                "`{folder}` has no adapters: PEFT's folders have adapter_config.json and \
                 adapter_model.safetensors (files of PyTorch, adapter_model.bin, are not read)"
            )));
        }
        let found: Value = json::read(&path)?;
        // Another type has other keys.
        let json = Json { path: &path, value: &found };
        json.require(json.text("peft_type")? == Some("LORA"), "peft_type", "`LORA`")?;
        let all = completed(&path, &found, &[TABLE])?;
        Ok(Self { path, found, all })
    }

    /// Its values.
    pub(super) fn json(&self) -> Json<'_> {
        Json { path: &self.path, value: &self.all }
    }

    /// Whether they are of a reward model.
    pub(super) fn gives_rewards(&self) -> bool {
        self.all["task_type"] == OF_REWARDS
            || self.all["modules_to_save"].as_array().is_some_and(|modules| !modules.is_empty())
    }
}

/// A line about keys of a folder's `adapter_config.json` that nobody knows.
///
/// # Errors
/// As for [`super::read_adapters`].
pub fn told_of_adapters(folder: &Path) -> Result<Vec<String>> {
    let Described { path, found, .. } = Described::read(folder)?;
    let names = unknown(&found, &[TABLE]).join(", ");
    let line = format!(
        "{}: {names}: neither PEFT 0.21 nor this program knows it, so it changes nothing; in a newer PEFT it \
         may",
        path.display()
    );
    Ok(Some(line).filter(|_| !names.is_empty()).into_iter().collect())
}
