//! What low-rank adapters are like.

/// Low-rank adapters of linear layers. Hu et al., "LoRA: low-rank adaptation of large language models"
/// (2021).
///
/// An adapter adds `alpha / rank * (x A^T) B^T` to the output of a linear layer, or to some of its columns.
/// `A` is `[rank, inputs]`, named `{target}.lora_a.weight`; it starts uniform within `1 / sqrt(inputs)`, as
/// PEFT's does. `B` is `[outputs, rank]`, named `{target}.lora_b.weight`, and starts at zero. So training
/// starts with the same function as without adapters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// The number of rows of `A`.
    pub rank: usize,
    /// What the adapter's output is multiplied by, times the rank.
    pub alpha: f64,
    /// The probability of dropout of an adapter's input, from 0 to below 1.
    pub dropout: f32,
    /// The seed of the starting weights and of dropout.
    pub seed: u64,
}

impl Lora {
    /// Whether a parameter of this name belongs to an adapter.
    pub fn is_adapter(parameter: &str) -> bool {
        parameter.ends_with(".lora_a.weight") || parameter.ends_with(".lora_b.weight")
    }

    /// The factor of an adapter's output.
    pub fn scale(self) -> f32 {
        (self.alpha / self.rank as f64) as f32
    }
}

/// Says which linear layers get adapters. It is asked with the name of each: of a layer, such as
/// `h.0.attn.out`, or of a part of its columns, such as `h.0.attn.q`.
pub type ChooseLora<'a> = dyn FnMut(&str) -> Option<Lora> + 'a;
