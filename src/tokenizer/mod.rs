//! Text as tokens and back, by the `tokenizer.json` of a model from Hugging Face and the files beside it.
//!
//! The crate `tokenizers` does the work, and only this module knows it. Chats become text by templates, with
//! the crate `minijinja`.

mod about;
mod added;
mod between;
mod chat;
mod class;
mod decoder;
mod entries;
mod files;
mod of_model;
mod own_template;
mod rebuilt;
mod stream;

pub(crate) use between::{head, tail};
pub use chat::{Chat, ChatTemplate, Date, Template};
pub use of_model::Tokenizer;
pub use rebuilt::told_of_tokenizer;
pub use stream::TextStream;
