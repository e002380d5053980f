//! Invalid numbers or ids.

/// Invalid numbers or ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A token or class outside the range the layer knows.
    #[error("{what} {id} is outside 0..{limit}")]
    OutOfRange {
        /// "token" or "class".
        what: &'static str,
        /// The number that was found.
        id: u32,
        /// The number of known tokens or classes.
        limit: usize,
    },
    /// A parameter with a number that is NaN or infinite.
    #[error("parameter `{name}` is not finite (NaN or infinite)")]
    Parameter {
        /// The parameter's name.
        name: String,
    },
    /// Tokens that should follow others which a layer has not had.
    #[error("tokens cannot follow {past} others of the text: it has had {had}")]
    Past {
        /// How many they should follow.
        past: usize,
        /// How many it has had.
        had: usize,
    },
    /// A target of yes and no that is no probability.
    #[error("a target is {found}, and must be from 0 to 1: 0 for no, 1 for yes")]
    NoProbability {
        /// The target.
        found: String,
    },
    /// An output with a number that is NaN or infinite.
    #[error("its output is not finite (NaN or infinite)")]
    Output,
}
