//! Walks the tables of keys: each key does what its row says.

use std::fs;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::llama;
use crate::error::Result;
use crate::pretrained::described::tables;
use crate::pretrained::key::{Key, Rule, Table, named};
use crate::pretrained::{Architecture, Family, ends, keep_keys, read_config, told_of_model};

/// Another value of each key that is used, and the keys that are beside it.
const OTHERS: &[(&str, &str, &str)] = &[
    ("head_dim", "64", "{}"),
    ("hidden_size", "512", "{}"),
    ("intermediate_size", "512", "{}"),
    ("layer_types", r#"["sliding_attention", "sliding_attention"]"#, TWO_SLIDE),
    ("max_position_embeddings", "512", "{}"),
    ("max_window_layers", "0", r#"{"use_sliding_window": true, "max_window_layers": 32}"#),
    ("n_embd", "384", "{}"),
    ("n_head", "6", "{}"),
    ("n_layer", "3", "{}"),
    ("n_positions", "512", "{}"),
    ("num_attention_heads", "64", "{}"),
    ("num_experts_per_tok", "3", "{}"),
    ("num_hidden_layers", "3", "{}"),
    ("num_key_value_heads", "4", "{}"),
    ("num_local_experts", "4", "{}"),
    ("original_max_position_embeddings", "77", OF_LLAMA3),
    ("rms_norm_eps", "0.25", "{}"),
    ("rope_parameters", LINEAR, "{}"),
    ("rope_scaling", LINEAR, "{}"),
    ("rope_theta", "77.0", "{}"),
    ("sliding_window", "77", r#"{"use_sliding_window": true, "max_window_layers": 0}"#),
    ("use_sliding_window", "true", r#"{"max_window_layers": 0}"#),
    ("vocab_size", "512", "{}"),
];

/// The same for the keys of `rope_parameters`.
const OTHERS_OF_ROPE: &[(&str, &str, &str)] = &[
    ("attention_factor", "2.0", YARN),
    ("beta_fast", "500.0", YARN),
    ("beta_slow", "0.5", YARN),
    ("factor", "2.0", LINEAR),
    ("high_freq_factor", "8.0", LLAMA3),
    ("low_freq_factor", "2.0", LLAMA3),
    ("mscale", "2.0", MSCALES),
    ("mscale_all_dim", "2.0", MSCALES),
    ("original_max_position_embeddings", "77", LLAMA3),
    ("rope_theta", "77.0", "{}"),
    ("rope_type", "\"linear\"", r#"{"factor": 4.0}"#),
    ("type", "\"linear\"", r#"{"factor": 4.0}"#),
];

const TWO_SLIDE: &str = r#"{"use_sliding_window": true, "num_hidden_layers": 2}"#;
const LINEAR: &str = r#"{"rope_type": "linear", "factor": 4.0}"#;
const YARN: &str = r#"{"rope_type": "yarn", "factor": 4.0}"#;
const MSCALES: &str = r#"{"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}"#;
const LLAMA3: &str =
    r#"{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}"#;
const OF_LLAMA3: &str = r#"{"rope_parameters":
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}"#;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A `config.json` of a family with these keys.
fn written(family: Option<Family>, keys: &Value) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = json!({"model_type": family.map_or("gpt2", Family::name)});
    let more = keys.as_object().expect("keys").clone();
    all.as_object_mut().expect("keys").extend(more);
    fs::write(folder.path().join("config.json"), all.to_string()).expect("written");
    folder
}

fn read(family: Option<Family>, keys: &Value) -> Result<Architecture> {
    read_config(written(family, keys).path())
}

/// Keys, and one more.
fn with(keys: &Value, name: &str, value: Value) -> Value {
    let mut keys = keys.clone();
    keys[name] = value;
    keys
}

/// Checks a key and its row. `place` makes a file's keys from the keys of the row's table.
fn check(family: Option<Family>, (name, key): (&str, &Key), prefix: &str, place: &dyn Fn(Value) -> Value) {
    let others = if prefix.is_empty() { OTHERS } else { OTHERS_OF_ROPE };
    let what = format!("{family:?}: {prefix}{name}");
    let other = |name: &str| {
        let row = others.iter().find(|(known, ..)| *known == name);
        let (_, value, beside) = row.unwrap_or_else(|| panic!("{what}: another value of {name} is needed"));
        (parsed(value), parsed(beside))
    };
    let changes = |name: &str, (value, beside): (Value, Value)| {
        let before = read(family, &place(beside.clone())).unwrap_or_else(|error| panic!("{what}: {error}"));
        let after = read(family, &place(with(&beside, name, value)));
        assert_ne!(before, after.unwrap_or_else(|error| panic!("{what}: {error}")), "{what}");
    };
    let another = || place(with(&json!({}), name, json!("another")));
    match key.rule {
        Rule::Used { .. } if ["architectures", "model_type"].contains(&name) => {
            let said =
                read(family, &json!({"architectures": ["x"], "model_type": "y"})).expect_err("another");
            assert!(said.to_string().contains("`x` is not known"), "{said}");
        }
        Rule::Used { .. } if name.ends_with("_token_id") => stays(family, name),
        Rule::Used { .. } if name == "tie_word_embeddings" => {
            changes(name, (json!(family.is_some()), json!({})));
        }
        Rule::Used { .. } if name == "n_inner" => {
            let said = read(family, &json!({"n_inner": 77})).expect_err("another width");
            assert!(said.to_string().contains("n_inner is 77"), "{said}");
        }
        Rule::Used { .. } => changes(name, other(name)),
        Rule::Alias(of) => changes(name, other(of)),
        Rule::Only(..) => {
            let folder = written(family, &another());
            let said = read_config(folder.path()).expect_err(&what).to_string();
            let start = format!(
                "`{}`: {prefix}{name} is \"another\", it must be ",
                folder.path().join("config.json").display()
            );
            assert!(said.starts_with(&start), "{what}: {said}");
        }
        Rule::Told(_) => {
            let folder = written(family, &another());
            let told = told_of_model(folder.path(), true).expect("readable").join("\n");
            assert!(told.contains(&format!("{name} is \"another\"")), "{what}: {told}");
        }
        Rule::Nothing => {
            let folder = written(family, &another());
            let got = read_config(folder.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(got, read(family, &json!({})).expect("defaults"), "{what}");
            let told = told_of_model(folder.path(), false).expect("readable");
            assert_eq!(told, [""; 0], "{what}");
        }
    }
}

/// A token's number goes into the folder that is written; the number of the end is used here too.
fn stays(family: Option<Family>, name: &str) {
    let source = written(family, &json!({name: 77}));
    let target = written(family, &json!({}));
    keep_keys(source.path(), target.path()).expect("written");
    let text = fs::read_to_string(target.path().join("config.json")).expect("readable");
    assert_eq!(parsed(&text)[name], json!(77), "{family:?}: {name}");
    if name == "eos_token_id" {
        assert_eq!(ends(source.path()).expect("a number"), [77]);
    }
}

#[test]
fn each_key_of_a_family_does_what_its_table_says() {
    for family in Family::ALL.map(Some).into_iter().chain([None]) {
        let mut names: Vec<String> = Vec::new();
        for (name, key) in named(&tables(family)) {
            check(family, (&name, key), "", &|keys| keys);
            names.push(name);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{family:?}: a key has one row");
    }
}

#[test]
fn each_key_of_rope_does_what_its_table_says_wherever_it_stands() {
    for place in ["rope_parameters", "rope_scaling"] {
        for (name, key) in named(&[Table { prefix: "", keys: llama::ROPE }]) {
            let inside = |keys: Value| {
                let mut all = Map::new();
                all.insert(place.to_owned(), keys);
                Value::Object(all)
            };
            check(Some(Family::Llama), (&name, key), &format!("{place}."), &inside);
        }
    }
}

#[test]
fn a_key_that_nobody_reads_is_told() {
    for family in Family::ALL.map(Some).into_iter().chain([None]) {
        let mut keys = json!({"my_key": 1});
        if family.is_some() {
            keys["rope_parameters"] = json!({"rope_type": "default", "mine": 1});
        }
        let folder = written(family, &keys);
        let told = told_of_model(folder.path(), false).expect("readable");
        let names = if family.is_some() { "my_key, rope_parameters.mine" } else { "my_key" };
        let line = format!("config.json: {names} changes nothing");
        assert!(told.len() == 1 && told[0].contains(&line), "{told:?}");
    }
}
