//! All keys, and the key that was probably meant.

use super::data::Data;
use super::key::Key;
use super::model::Model;
use super::optimizer::{Lora, Optimizer};
use super::sections::{Checkpoint, Launch, Metrics, Pipeline, Privacy, Train};
use crate::error::{ConfigError, Origin};
use pipewright::nearest::nearest;

/// The table of keys: the sections, in the order in which they are written.
pub(super) const TABLE: [(&str, &[Key]); 10] = [
    ("model", Model::KEYS),
    ("lora", Lora::KEYS),
    ("data", Data::KEYS),
    ("pipeline", Pipeline::KEYS),
    ("optimizer", Optimizer::KEYS),
    ("train", Train::KEYS),
    ("privacy", Privacy::KEYS),
    ("checkpoint", Checkpoint::KEYS),
    ("metrics", Metrics::KEYS),
    ("launch", Launch::KEYS),
];

const EARLY: &str =
    "there is no early stopping: the run keeps its best checkpoint, and Ctrl-C saves and ends it";
const PROCESSES: &str = "start one process a host, by srun, mpirun, torchrun or by hand";
const STRATEGY: &str = "write pipeline.stages and pipeline.replicas: how many parts, and how many copies";
const RSLORA: &str = "adapters are scaled by alpha / rank: for rsLoRA, set lora.alpha to alpha x sqrt(rank)";
const COMPILE: &str = "nothing is compiled while a run starts: leave it out";

/// Names of what is no key here, with what to do instead.
const NO_KEYS: &[(&str, &str)] = &[
    ("early_stopping", EARLY),
    ("early_stopping_patience", EARLY),
    ("patience", EARLY),
    ("load_best_model_at_end", "`best` in the run's run.json names the best checkpoint"),
    ("metric_for_best_model", "the best checkpoint is the one of the lowest validation loss"),
    ("resume_from_checkpoint", "it is an option of the command: pipewright train CONFIG --resume"),
    ("deepspeed", "there is no second config: write pipeline, optimizer and train here"),
    ("torch_compile", COMPILE),
    ("compile", COMPILE),
    ("dataloader_num_workers", "a thread reads data ahead: leave it out"),
    ("num_workers", "a thread reads data ahead: leave it out"),
    ("shuffle", "data for training are always shuffled, with data.seed; data for validation never are"),
    ("num_nodes", PROCESSES),
    ("nnodes", PROCESSES),
    ("strategy", STRATEGY),
    ("use_rslora", RSLORA),
    ("use_dora", "DoRA is not there: leave it out for LoRA"),
    ("bias", "adapters have no biases, and other layers have what their model has: leave it out"),
    ("modules_to_save", "write optimizer.groups = [{ parameters = [\"lm_head.*\"], frozen = false }]"),
    ("eos_token", "the tokenizer's folder says it; data.end_of_text says whether one ends each text"),
    ("push_to_hub", "nothing is uploaded: `pipewright export RUN FOLDER` writes a folder of Hugging Face"),
    (
        "wandb_project",
        "nothing is sent to others: metrics.jsonl in the run directory has one JSON object a step",
    ),
];

/// All keys, each with its section.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static Key)> {
    let sections = TABLE.iter();
    sections.flat_map(|(section, keys)| keys.iter().map(move |key| (*section, key)))
}

/// The key with this name, if the section has it.
pub(super) fn find(section: &str, name: &str) -> Option<&'static Key> {
    let mut keys = all().filter(|(of, _)| *of == section);
    keys.find(|(_, key)| key.name == name).map(|(_, key)| key)
}

/// Whether there is such a section.
pub(super) fn is_section(name: &str) -> bool {
    TABLE.iter().any(|(section, _)| *section == name)
}

/// Refuses a section that does not exist.
pub(super) fn check_section(section: &str, origin: &Origin) -> Result<(), ConfigError> {
    if is_section(section) {
        return Ok(());
    }
    let known = TABLE.map(|(name, _)| name);
    let meant = nearest(section, known).map_or(String::new(), |name| format!(": did you mean [{name}]?"));
    Err(ConfigError::Other(format!(
        "{origin}: unknown section [{section}]{meant} (sections: {})",
        known.join(", ")
    )))
}

/// The error for a key that its section does not have.
pub(super) fn unknown(section: &str, key: &str, origin: &Origin) -> ConfigError {
    let meant = match (named(section, key), sections_with(key).as_slice()) {
        (Some((of, key, "")), _) if of == section => format!("did you mean `{key}`?"),
        (Some(found), _) if found.0 == section => elsewhere(found),
        (_, [other]) => format!("it belongs to [{other}]"),
        (Some(found), _) => elsewhere(found),
        _ => unnamed(section, key),
    };
    ConfigError::Other(format!("{origin}: unknown key {section}.{key}: {meant}"))
}

/// A key's section, its name, and how it differs from what another program calls so.
type Named = (&'static str, &'static str, &'static str);

/// The key that another program calls so: of this section if there is one, else the first.
fn named(section: &str, called: &str) -> Option<Named> {
    let called = called.to_lowercase();
    let notes = |key: &'static Key| key.names().find(|(name, _)| *name == called);
    let rows = || all().filter_map(|(section, key)| Some((section, key.name, notes(key)?.1)));
    rows().find(|row| row.0 == section).or_else(|| rows().next())
}

fn elsewhere((section, key, note): Named) -> String {
    match note {
        "" => format!("did you mean {section}.{key}?"),
        note => format!("did you mean {section}.{key} ({note})?"),
    }
}

/// What to say of a key that has no other name.
fn unnamed(section: &str, key: &str) -> String {
    let instead = NO_KEYS.iter().find(|(name, _)| *name == key.to_lowercase());
    let known = all().filter(|(of, _)| *of == section);
    let known: Vec<&str> = known.map(|(_, key)| key.name).collect();
    match (instead, nearest(key, known.iter().copied())) {
        (Some((_, instead)), _) => (*instead).to_owned(),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => format!("keys of [{section}]: {}", known.join(", ")),
    }
}

/// The error for a key outside of all sections.
pub(super) fn outside_section(key: &str, origin: &Origin) -> ConfigError {
    let sections = sections_with(key);
    let mut names: Vec<String> = sections.iter().map(|section| format!("{section}.{key}")).collect();
    if names.is_empty() {
        names.extend(named("", key).map(|(section, key, _)| format!("{section}.{key}")));
    }
    let meant = match names.is_empty() {
        true => "every key belongs to a section, as in train.steps".to_owned(),
        false => format!("did you mean {}?", names.join(" or ")),
    };
    ConfigError::Other(format!("{origin}: `{key}` is in no section: {meant}"))
}

fn sections_with(name: &str) -> Vec<&'static str> {
    let with = all().filter(|(_, key)| key.name == name);
    with.map(|(section, _)| section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_another_program_leads_to_one_key() {
        for (section, key) in all() {
            for (name, _) in key.names() {
                let is_key = find(section, name).is_some() && name != key.name;
                assert!(!is_key, "{section}.{name} is a key");
                let same = all().filter(|(of, _)| *of == section);
                let twice = same.flat_map(|(_, key)| key.names()).filter(|other| other.0 == name);
                assert_eq!(twice.count(), 1, "{name}");
                assert_eq!(name, name.to_lowercase());
            }
            for (value, _) in key.values {
                let twice = key.values.iter().filter(|(other, _)| other == value);
                assert_eq!((twice.count(), value.to_lowercase().as_str()), (1, *value));
            }
        }
        for (name, _) in NO_KEYS {
            assert_eq!(sections_with(name), [""; 0], "{name} is a key");
            assert!(named("", name).is_none(), "{name} is in both lists");
        }
    }
}
