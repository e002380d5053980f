//! The tables: our names and those of Hugging Face's checkpoints, a file for each family.

pub(super) mod gpt2;
pub(super) mod llama;
