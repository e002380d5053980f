//! Compares two configs: which keys differ so that training differs.

use toml::{Table, Value};

use super::key::Key;
use super::{Config, LearningRateSchedule, SyncKind, keys};
use crate::error::Result;

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
        for (section, key) in keys::all().filter(|(section, key)| self.counts(section, key)) {
            let value = |config: &Table| config.get(section)?.get(key.name).cloned();
            if value(&old) != value(&new) {
                let told = |config: &Table, else_: &Table| in_words(value(config).or_else(|| value(else_)));
                let (old, new) = (told(&old_words, &old), told(&new_words, &new));
                changes.push(format!("{section}.{}: {old} -> {new}", key.name));
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
    fn counts(&self, section: &str, key: &Key) -> bool {
        match section {
            // All others end at the run's last step.
            "train" => key.name == "steps" && self.optimizer.schedule != LearningRateSchedule::Constant,
            "checkpoint" | "metrics" | "launch" => false,
            _ => key.changes_weights,
        }
    }
}

fn in_words(value: Option<Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
