//! Models of llama.cpp: one `.gguf` file with settings, weights and vocabulary.

mod blocks;
mod file;
mod import;
mod keys;
mod names;
mod scaling;
mod settings;
mod tokenizer;
mod value;
#[cfg(test)]
mod walked;

pub use import::{Imported, import, import_blocks};
