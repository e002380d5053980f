//! Text as tokens and back, by the `tokenizer.json` of a model from Hugging Face.
//!
//! The crate `tokenizers` does the work, and only this module knows it.

mod of_model;
mod stream;

pub use of_model::Tokenizer;
pub use stream::TextStream;
