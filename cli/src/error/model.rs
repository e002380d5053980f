//! Sizes of a model that do not fit each other.

use super::value::divisors;

/// Sizes of a model of a config that do not fit each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelProblem {
    /// The heads for keys and values do not divide the heads.
    #[error(
        "{heads} heads cannot share {kv_heads} heads for keys and values: choose from {}",
        divisors(*heads)
    )]
    KeyValueHeads {
        /// The heads.
        heads: usize,
        /// The heads for keys and values.
        kv_heads: usize,
    },
    /// Heads whose numbers cannot be turned in pairs.
    #[error("a head of {width} numbers cannot be turned by its position: the width must be even")]
    OddHead {
        /// The width of a head.
        width: usize,
    },
    /// A padding token that the vocabulary does not have.
    #[error("{token} is no token of {vocab}: choose one below {vocab}, or leave the key out")]
    PaddingToken {
        /// The token.
        token: u32,
        /// The number of tokens.
        vocab: usize,
    },
    /// More experts for a token than there are.
    #[error("a token cannot choose {chosen} of {experts} experts: lower it, or raise model.experts")]
    Experts {
        /// The experts of a token.
        chosen: usize,
        /// All experts.
        experts: usize,
    },
    /// A size of images that is not three numbers.
    #[error("give height, width and channels, such as \"28,28,1\"")]
    Image,
    /// Sequences that are longer than the model's longest.
    #[error(
        "sequences of {seq} tokens are longer than the model's {context}: lower it{}",
        if *is_given { ", or raise model.context" } else { "" }
    )]
    Context {
        /// The tokens of a sequence.
        seq: usize,
        /// The model's longest sequence.
        context: usize,
        /// Whether the config gives it, and not the folder of a model.
        is_given: bool,
    },
}
