//! The models that can be read and written.

use pipewright_stages::models::{Gpt, Llama, Model};

use super::families::{gpt2, llama};
use super::mapped::Mapped;
use crate::error::Result;

/// The families of models that are built as Llama is. They differ in a few settings, and in how
/// `config.json` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 1 to 3, SmolLM.
    Llama,
    /// Llama with a sliding window.
    Mistral,
    /// Mistral with a mixture of experts.
    Mixtral,
    /// Qwen 2 and 2.5: biases on queries, keys and values.
    Qwen2,
    /// Qwen 3: norms of queries and keys.
    Qwen3,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Llama, Self::Mistral, Self::Mixtral, Self::Qwen2, Self::Qwen3];

    /// The name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Mixtral => "mixtral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// The model that adapters are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base<'a> {
    /// Its kind, by its name in a config.
    pub kind: &'a str,
    /// The number of its blocks.
    pub blocks: usize,
    /// Whether its head has the weights of the token embedding.
    pub tied: bool,
}

/// A model with all its sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Architecture {
    /// GPT-2.
    Gpt2(Gpt),
    /// Llama and its kin.
    Llama(Family, Llama),
}

impl Architecture {
    /// The name of its kind in a config.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gpt2(_) => "gpt",
            Self::Llama(family, _) => family.name(),
        }
    }

    /// What adapters have to know of it.
    pub fn base(&self) -> Base<'static> {
        let (blocks, tied) = match self {
            Self::Gpt2(gpt) => (gpt.layers, gpt.tied),
            Self::Llama(_, llama) => (llama.layers, llama.tied),
        };
        let kind = self.name();
        Base { kind, blocks, tied }
    }

    /// The number of tokens that it knows.
    pub fn vocab(&self) -> usize {
        match self {
            Self::Gpt2(gpt) => gpt.vocab,
            Self::Llama(_, llama) => llama.vocab,
        }
    }

    /// The longest text that it is made for, in tokens.
    pub fn context(&self) -> usize {
        match self {
            Self::Gpt2(gpt) => gpt.context,
            Self::Llama(_, llama) => llama.context,
        }
    }

    /// The model, before it is cut.
    ///
    /// # Errors
    /// When its sizes are impossible.
    pub fn model(&self) -> Result<Model> {
        Ok(match self {
            Self::Gpt2(gpt) => gpt.model()?,
            Self::Llama(_, llama) => llama.model()?,
        })
    }

    /// Its parameters, and from which tensors of a checkpoint each is made.
    pub fn table(&self) -> Vec<Mapped> {
        match self {
            Self::Gpt2(gpt) => gpt2::table(gpt),
            Self::Llama(_, model) => llama::table(model),
        }
    }
}
