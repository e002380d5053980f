//! What is computed again in backward instead of kept.

/// What a stage computes again in backward instead of keeping it from forward. The results are the same, bit
/// for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Recompute {
    /// No output of a layer.
    None,
    /// What is cheap: the outputs of norms, activations and gates, which the linear layers after them need.
    /// See [`Recomputed`](crate::layers::Recomputed).
    #[default]
    Cheap,
    /// What is cheap, and the insides of composite layers, such as a GPT's attention and MLP: each keeps only
    /// its input. This is less work than [`Recompute::Full`], because the last product of each is not
    /// computed again, but it keeps an input for each layer. After Korthikanti et al., "Reducing activation
    /// recomputation in large transformer models" (2022).
    Selective,
    /// Everything: the stage keeps only its input, and backward-input starts with another forward. After Chen
    /// et al., "Training deep nets with sublinear memory cost" (2016).
    Full,
}

impl Recompute {
    /// All, from the least work and the most memory on.
    pub const ALL: [Self; 4] = [Self::None, Self::Cheap, Self::Selective, Self::Full];
}
