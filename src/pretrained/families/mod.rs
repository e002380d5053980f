//! The families: their keys in `config.json`, and our names and those of their tensors.

pub(super) mod every;
pub(super) mod gpt2;
pub(super) mod llama;
#[cfg(test)]
mod walked;
