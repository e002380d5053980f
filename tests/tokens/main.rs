//! Text as tokens: the tokenizers and the sources that use them.

use std::fs;
use std::path::{Path, PathBuf};

use has::has;
use pipewright::data::{Corpus, Documents, Form, LossOn, Recipe, Template, TokenWriter, Width};
use pipewright::tokenizer::{Chat, TextStream, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

fn golden(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/golden/tokenizer").join(name)
}

fn small() -> Tokenizer {
    Tokenizer::read(&golden("tokenizer.json")).unwrap()
}

/// What Python's `tokenizers` encoded with this tokenizer.
fn encoded() -> Value {
    serde_json::from_slice(&fs::read(golden("encoded.json")).unwrap()).unwrap()
}

fn tokens_of(value: &Value) -> Vec<u32> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|number| number.as_u64().unwrap() as u32).collect()
}

fn message<T>(result: pipewright::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

mod around;
mod cache;
mod chats;
mod encoding;
mod files;
mod forms;
#[path = "../common/has.rs"]
mod has;
mod jsonl;
mod kinds;
mod messages;
mod mixture;
mod pairs;
mod parquet;
mod preferences;
mod prompts;
mod sequences;
mod streams;
mod templates;
mod tokenizers;
