//! How `config.json` says that positions turn queries and keys.

use std::path::Path;

use pipewright_stages::layers::{Rope, RopeLayout, RopeScaling};
use serde_json::{Map, Value, json};

use super::families::llama::ROPE;
use super::json::Json;
use super::key::{Table, completed};
use crate::error::{Error, Result};

/// Older files have `rope_theta` and `rope_scaling`, newer ones both in `rope_parameters`. If a file has two
/// of these objects, the older one counts, and the other with its `rope_theta` does not.
const PLACES: [&str; 2] = ["rope_scaling", "rope_parameters"];

/// The keys of the object that counts, with its name before each: `rope_scaling.factor`. Without such an
/// object there are none.
pub(super) struct Flat {
    /// The object's name and a point.
    pub(super) prefix: String,
    pub(super) keys: Value,
}

impl Flat {
    /// What a file has.
    pub(super) fn of(path: &Path, found: &Value) -> Result<Self> {
        let mut flat = Self { prefix: format!("{}.", PLACES[1]), keys: Value::Object(Map::new()) };
        for place in PLACES {
            let object = Json { path, value: found }.inside(place)?;
            let keys = object.and_then(|json| json.value.as_object());
            if let Some(keys) = keys.filter(|keys| !keys.is_empty()) {
                let named = keys.iter().map(|(key, value)| (format!("{place}.{key}"), value.clone()));
                flat.keys = named.collect::<Map<String, Value>>().into();
                flat.prefix = format!("{place}.");
                break;
            }
        }
        Ok(flat)
    }

    /// The table of its keys.
    pub(super) fn table(&self) -> Table<'_> {
        let (prefix, keys) = (self.prefix.as_str(), ROPE);
        Table { prefix, keys }
    }
}

/// The angles of a file. `whole` has all keys of the file's own level.
pub(super) fn read(path: &Path, found: &Value, whole: Json<'_>) -> Result<Rope> {
    let flat = Flat::of(path, found)?;
    let value = &completed(path, &flat.keys, &[flat.table()])?;
    let own = Json { path, value };
    let key = |name: &str| format!("{}{name}", flat.prefix);
    let number = |name: &str| own.number(&key(name));
    let theta = match own.get(&key("rope_theta")) {
        Some(_) => number("rope_theta")?,
        None => whole.number("rope_theta")?,
    };
    let (newer, older) = (key("rope_type"), key("type"));
    let named = match own.text(&newer)? {
        Some(kind) => Some((kind, newer)),
        None => own.text(&older)?.map(|kind| (kind, older)),
    };
    let (kind, named_by) = named.unwrap_or(("default", key("rope_type")));
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: original(own, &key("original_max_position_embeddings"), whole)?,
        },
        "yarn" => yarn(own, &flat.prefix, whole)?,
        _ => {
            return Err(Error::wrong_key(
                path,
                &named_by,
                "`default`, `linear`, `llama3` or `yarn`",
                Some(format_args!("{kind:?}")),
            ));
        }
    };
    Ok(Rope { theta, scaling, layout: RopeLayout::Halves })
}

/// YaRN, with the paper's numbers where the object has none.
fn yarn(own: Json<'_>, prefix: &str, whole: Json<'_>) -> Result<RopeScaling> {
    let key = |name: &str| format!("{prefix}{name}");
    let or = |name: &str, default| own.number_or(&key(name), default);
    let original = original(own, &key("original_max_position_embeddings"), whole)?;
    let factor = own.number(&key("factor"))?;
    let of = |scale: f64| 1.0 + 0.1 * scale * factor.max(1.0).ln();
    let (one, all) = (or("mscale", 0.0)?, or("mscale_all_dim", 0.0)?);
    let usual = if one != 0.0 && all != 0.0 { of(one) / of(all) } else { of(1.0) };
    Ok(RopeScaling::Yarn {
        factor,
        original,
        fast: or("beta_fast", 32.0)?,
        slow: or("beta_slow", 1.0)?,
        attention: or("attention_factor", usual)?,
    })
}

/// The length before the scaling: a key of the file, else one of the object, else the longest text.
fn original(own: Json<'_>, key: &str, whole: Json<'_>) -> Result<usize> {
    let outside = "original_max_position_embeddings";
    match (whole.get(outside), own.get(key)) {
        (Some(_), _) => whole.count(outside),
        (None, Some(_)) => own.count(key),
        (None, None) => whole.count("max_position_embeddings"),
    }
}

/// The value of `rope_parameters`.
pub(super) fn described(rope: Rope) -> Value {
    let mut map = Map::new();
    let mut set = |key: &str, value: Value| map.insert(key.to_owned(), value);
    set("rope_theta", json!(rope.theta));
    match rope.scaling {
        RopeScaling::None => {
            set("rope_type", json!("default"));
        }
        RopeScaling::Linear { factor } => {
            set("rope_type", json!("linear"));
            set("factor", json!(factor));
        }
        RopeScaling::Llama3 { factor, low, high, original } => {
            set("rope_type", json!("llama3"));
            set("factor", json!(factor));
            set("low_freq_factor", json!(low));
            set("high_freq_factor", json!(high));
            set("original_max_position_embeddings", json!(original));
        }
        RopeScaling::Yarn { factor, original, fast, slow, attention } => {
            set("rope_type", json!("yarn"));
            set("factor", json!(factor));
            set("original_max_position_embeddings", json!(original));
            set("beta_fast", json!(fast));
            set("beta_slow", json!(slow));
            set("attention_factor", json!(attention));
        }
    }
    Value::Object(map)
}
