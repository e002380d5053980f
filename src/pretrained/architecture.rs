//! The models that can be read and written.

use pipewright_stages::models::{Gpt, Llama, Model};

use super::families::{gpt2, llama};
use super::head::Head;
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
    Gpt2(Gpt, Head),
    /// Llama and its kin.
    Llama(Family, Llama, Head),
}

impl Architecture {
    /// The name of its kind in a config.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gpt2(..) => "gpt",
            Self::Llama(family, ..) => family.name(),
        }
    }

    /// What adapters have to know of it.
    pub fn base(&self) -> Base<'static> {
        let (blocks, tied) = match self {
            Self::Gpt2(gpt, _) => (gpt.layers, gpt.tied),
            Self::Llama(_, llama, _) => (llama.layers, llama.tied),
        };
        let kind = self.name();
        Base { kind, blocks, tied }
    }

    /// The same with another end.
    #[must_use]
    pub fn ending_with(self, head: Head) -> Self {
        match self {
            Self::Gpt2(gpt, _) => Self::Gpt2(gpt, head),
            Self::Llama(family, llama, _) => Self::Llama(family, llama, head),
        }
    }

    /// What it ends with.
    pub fn head(&self) -> Head {
        match *self {
            Self::Gpt2(_, head) | Self::Llama(.., head) => head,
        }
    }

    /// The number of tokens that it knows.
    pub fn vocab(&self) -> usize {
        match self {
            Self::Gpt2(gpt, _) => gpt.vocab,
            Self::Llama(_, llama, _) => llama.vocab,
        }
    }

    /// The longest text that it is made for, in tokens.
    pub fn context(&self) -> usize {
        match self {
            Self::Gpt2(gpt, _) => gpt.context,
            Self::Llama(_, llama, _) => llama.context,
        }
    }

    /// The model, before it is cut.
    ///
    /// # Errors
    /// When its sizes are impossible.
    pub fn model(&self) -> Result<Model> {
        Ok(match self {
            Self::Gpt2(gpt, Head::Tokens) => gpt.model()?,
            Self::Gpt2(gpt, Head::Reward) => gpt.reward_model()?,
            Self::Llama(_, llama, Head::Tokens) => llama.model()?,
            Self::Llama(_, llama, Head::Reward) => llama.reward_model()?,
        })
    }

    /// Its parameters, and from which tensors of a checkpoint each is made.
    pub fn table(&self) -> Vec<Mapped> {
        match self {
            Self::Gpt2(gpt, head) => gpt2::table(gpt, *head),
            Self::Llama(_, model, head) => llama::table(model, *head),
        }
    }
}
