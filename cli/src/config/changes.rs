//! Compares two configs: which keys differ so that training differs.

use toml::{Table, Value};

use super::{Config, LearningRateSchedule, SyncKind, keys};
use crate::error::Result;

/// Keys that change speed, memory, output or kept files, but no weight.
const HARMLESS: [&str; 16] = [
    "data.cache",
    "pipeline.stages",
    "pipeline.chunks",
    "pipeline.schedule",
    "pipeline.partition",
    "pipeline.costs",
    "pipeline.memory",
    "pipeline.recompute",
    "pipeline.offload",
    "pipeline.threads_per_rank",
    "pipeline.pin",
    "pipeline.stall_warning",
    "pipeline.stall_limit",
    "pipeline.replicas",
    "pipeline.sync",
    "optimizer.sharded",
];

impl Config {
    /// The keys whose values make training different from training with `saved`, each as `key: old -> new`.
    /// Keys that change no weight are left out: how the model is cut, scheduled and recomputed, what is
    /// printed, kept and served, and the length of a run with a constant learning rate.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn changes_from(&self, saved: &Self) -> Result<Vec<String>> {
        let (old, new) = (saved.comparable()?, self.comparable()?);
        let (old_words, new_words) = (saved.kept()?, self.kept()?);
        let mut changes = Vec::new();
        for (section, names) in keys::all() {
            for name in names {
                let value = |config: &Table| config.get(section)?.get(name).cloned();
                let key = format!("{section}.{name}");
                if value(&old) != value(&new) && self.counts(section, &key) {
                    let told =
                        |config: &Table, else_: &Table| in_words(value(config).or_else(|| value(else_)));
                    let (old, new) = (told(&old_words, &old), told(&new_words, &new));
                    changes.push(format!("{key}: {old} -> {new}"));
                }
            }
        }
        Ok(changes)
    }

    /// The settings as a table, in one form: the rows of a micro-batch under one key, GPUs without their
    /// indices, and the staleness that replicas may have.
    fn comparable(&self) -> Result<Table> {
        let mut config = self.clone();
        config.pipeline.micro_batch_size = Some(self.micro_batch_size());
        config.pipeline.batch_size = None;
        // Reductions are as a server without staleness.
        config.pipeline.max_staleness = self.max_staleness();
        config.pipeline.sync = SyncKind::Server;
        config.pipeline.devices = config.pipeline.devices.kinds();
        config.kept()
    }

    /// Whether weights depend on this key.
    fn counts(&self, section: &str, key: &str) -> bool {
        match section {
            // All others end at the run's last step.
            "train" => key == "train.steps" && self.optimizer.schedule != LearningRateSchedule::Constant,
            "checkpoint" | "metrics" | "launch" => false,
            _ => !HARMLESS.contains(&key),
        }
    }
}

fn in_words(value: Option<Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
