//! The families: their keys in `config.json`, and the names of tensors, ours and theirs.

pub(super) mod every;
pub(super) mod gpt2;
pub(super) mod llama;
#[cfg(test)]
mod walked;
