//! Models of llama.cpp: one `.gguf` file with settings, weights and vocabulary.

mod blocks;
mod file;
mod import;
mod names;
mod settings;
mod tokenizer;
mod value;

pub use import::{Imported, import};
