//! All keys, and the key that was probably meant.

use serde::de::value::Error as NoValue;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::data::Data;
use super::model::Model;
use super::optimizer::Optimizer;
use super::sections::{Checkpoint, Launch, Metrics, Pipeline, Train};
use super::training::Lora;
use crate::error::{ConfigError, MeantKey, Origin};
use crate::nearest::nearest;

/// The sections and their keys, in the order in which they are written.
pub(super) fn all() -> [(&'static str, &'static [&'static str]); 9] {
    [
        ("model", of::<Model>()),
        ("lora", of::<Lora>()),
        ("data", of::<Data>()),
        ("pipeline", of::<Pipeline>()),
        ("optimizer", of::<Optimizer>()),
        ("train", of::<Train>()),
        ("checkpoint", of::<Checkpoint>()),
        ("metrics", of::<Metrics>()),
        ("launch", of::<Launch>()),
    ]
}

/// The names of a struct's fields.
pub(super) fn of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &[&str] = &[];
    let _ = T::deserialize(Fields(&mut fields));
    fields
}

/// Records the fields that a struct asks for, without giving it values.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> std::result::Result<V::Value, NoValue> {
        Err(NoValue::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Other programs' names for a key.
const ELSEWHERE: [(&str, &str, &str); 36] = [
    ("d_model", "model", "dim"),
    ("embedding_dim", "model", "dim"),
    ("hidden_dim", "model", "dim"),
    ("hidden_size", "model", "dim"),
    ("n_embd", "model", "dim"),
    ("n_layer", "model", "layers"),
    ("num_hidden_layers", "model", "layers"),
    ("num_layers", "model", "layers"),
    ("n_head", "model", "heads"),
    ("num_attention_heads", "model", "heads"),
    ("num_heads", "model", "heads"),
    ("num_key_value_heads", "model", "kv_heads"),
    ("head_dim", "model", "head_width"),
    ("intermediate_size", "model", "ffn"),
    ("max_position_embeddings", "model", "context"),
    ("rms_norm_eps", "model", "norm_epsilon"),
    ("num_local_experts", "model", "experts"),
    ("num_experts_per_tok", "model", "experts_per_token"),
    ("router_aux_loss_coef", "model", "auxiliary"),
    ("sliding_window", "model", "window"),
    ("r", "lora", "rank"),
    ("lora_r", "lora", "rank"),
    ("lora_alpha", "lora", "alpha"),
    ("lora_dropout", "lora", "dropout"),
    ("target_modules", "lora", "targets"),
    ("block_size", "data", "seq"),
    ("context", "data", "seq"),
    ("max_length", "data", "seq"),
    ("n_ctx", "data", "seq"),
    ("gradient_accumulation_steps", "pipeline", "micro_batches"),
    ("num_stages", "pipeline", "stages"),
    ("gradient_clip", "optimizer", "clip"),
    ("max_grad_norm", "optimizer", "clip"),
    ("lr", "optimizer", "learning_rate"),
    ("epochs", "train", "steps"),
    ("max_steps", "train", "steps"),
];

/// Whether there is such a section.
pub(super) fn is_section(name: &str) -> bool {
    all().iter().any(|(section, _)| *section == name)
}

/// Refuses a section that does not exist.
pub(super) fn check_section(section: &str, origin: &Origin) -> Result<(), ConfigError> {
    if is_section(section) {
        return Ok(());
    }
    let known: Vec<_> = all().iter().map(|(name, _)| *name).collect();
    Err(ConfigError::UnknownSection {
        origin: origin.clone(),
        section: section.to_owned(),
        nearest: nearest(section, known.iter().copied()),
        known,
    })
}

/// The error for a key that its section does not have.
pub(super) fn unknown(
    section: &str,
    key: &str,
    origin: Origin,
    known: &'static [&'static str],
) -> ConfigError {
    let named = ELSEWHERE
        .into_iter()
        .find(|(name, ..)| *name == key.to_lowercase());
    let near = nearest(key, known.iter().copied());
    let meant = match (named, sections_with(key).as_slice(), near) {
        (Some((_, home, meant)), ..) if home == section => MeantKey::Nearest(meant),
        (_, [other], _) => MeantKey::InSection(other),
        (Some((_, section, key)), ..) => MeantKey::Elsewhere { section, key },
        (.., Some(near)) => MeantKey::Nearest(near),
        _ => MeantKey::None {
            section: section.to_owned(),
            known,
        },
    };
    ConfigError::UnknownKey {
        origin,
        section: section.to_owned(),
        key: key.to_owned(),
        meant: Box::new(meant),
    }
}

/// The error for a key outside of all sections.
pub(super) fn outside_section(key: &str, origin: Origin) -> ConfigError {
    ConfigError::NoSection {
        origin,
        key: key.to_owned(),
        sections: sections_with(key),
    }
}

fn sections_with(key: &str) -> Vec<&'static str> {
    all()
        .into_iter()
        .filter(|(_, keys)| keys.contains(&key))
        .map(|(section, _)| section)
        .collect()
}
