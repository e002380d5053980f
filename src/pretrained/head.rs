//! What a model ends with.

/// What a model ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A score for each token that can come next.
    Tokens,
    /// One number, a reward.
    Reward,
}

/// The weights of a reward model's head, by our name and by Hugging Face's.
pub const SCORE: &str = "score.weight";
