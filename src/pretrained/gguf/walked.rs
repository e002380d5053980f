//! Walks the tables of keys: each key does what its row says.

use std::fs;

use pipewright_stages::layers::RopeScaling;
use pipewright_stages::models::Llama;

use super::file::Gguf;
use super::keys::{OF_FILE, OF_MODEL};
use super::settings::settings;
use crate::error::Result;
use crate::pretrained::key::{Rule, Table, named};

#[path = "../../../tests/common/gguf.rs"]
mod files;

/// What stands before the keys of a Llama.
const OF_LLAMA: &str = "llama.";

/// The kinds of values.
const U32: u32 = 4;
const F32: u32 = 6;
const TEXT: u32 = 8;

/// What a small file with one more value says.
fn with(key: &str, kind: u32, value: &[u8]) -> Result<(Llama, Vec<String>)> {
    let mut file = files::small();
    file.value(key, kind, value);
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("m.gguf");
    fs::write(&path, file.bytes()).expect("written");
    let settings = settings(&Gguf::open(&path)?)?;
    Ok((settings.model, settings.unknown))
}

fn another(key: &str) -> Result<(Llama, Vec<String>)> {
    with(key, TEXT, &files::text("another"))
}

/// Checks a key that is used: another value changes the model, or is refused by name.
fn changes(name: &str, key: &str, before: Llama) {
    let (kind, value) = match name {
        "attention.layer_norm_rms_epsilon" | "rope.freq_base" => (F32, 0.25_f32.to_le_bytes()),
        "rope.scaling.factor" | "rope.scale_linear" => (F32, 4.0_f32.to_le_bytes()),
        _ => (U32, 8_u32.to_le_bytes()),
    };
    match with(key, kind, &value) {
        Ok((after, _)) => assert_ne!(after, before, "{key}"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(&format!("{key} is 8, it must be ")), "{said}");
        }
    }
}

#[test]
fn each_key_does_what_its_table_says() {
    let (before, unknown) = with("llama.context_length", U32, &64_u32.to_le_bytes()).expect("small");
    assert_eq!(unknown, [""; 0]);
    let (of_model, of_file) =
        (Table { prefix: OF_LLAMA, keys: OF_MODEL }, Table { prefix: "", keys: OF_FILE });
    for (key, row) in named(&[of_model, of_file]) {
        match row.rule {
            Rule::Used { .. } => changes(key.trim_start_matches(OF_LLAMA), &key, before),
            Rule::Nothing => assert_eq!(another(&key).expect("read"), (before, Vec::new()), "{key}"),
            _ => {
                let said = another(&key).expect_err(&key).to_string();
                assert!(said.contains(&format!("{key} is \"another\", it must be ")), "{said}");
            }
        }
    }
}

#[test]
fn a_key_of_the_architecture_that_is_not_known_is_told() {
    let (_, unknown) = another("llama.attention.of_mine").expect("read");
    assert_eq!(unknown, ["llama.attention.of_mine"]);
}

#[test]
fn the_older_key_of_linear_scaling_counts_without_the_newer_one() {
    let (model, _) = with("llama.rope.scale_linear", F32, &4.0_f32.to_le_bytes()).expect("read");
    assert_eq!(model.rope.scaling, RopeScaling::Linear { factor: 4.0 });
}
