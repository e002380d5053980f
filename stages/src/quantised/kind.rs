//! Kinds of blocks.

/// How numbers are stored: in blocks, each with its own scale.
///
/// The blocks whose names begin with `Q` are those of `ggml`, as `.gguf` files have them
/// (`ggml-quants.c` of llama.cpp is the definition). [`Quantisation::Nf4`] is "4-bit NormalFloat" of Dettmers
/// et al., "QLoRA" (2023), with blocks of 64 numbers: the largest size of a number of the block in `f32`, and
/// for each number the index of one of 16 levels.
///
/// ```
/// use pipewright_stages::Quantisation;
///
/// // A block of 32 numbers in 18 bytes: 4.5 bits a number.
/// assert_eq!(Quantisation::Q4_0.block(), (32, 18));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "these are the names in ggml")]
pub enum Quantisation {
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// 4 bits and a scale.
    Q4_0,
    /// 4 bits, a scale and the least value.
    Q4_1,
    /// 5 bits and a scale.
    Q5_0,
    /// 5 bits, a scale and the least value.
    Q5_1,
    /// 8 bits and a scale.
    Q8_0,
    /// 2 bits; in blocks of 256 with scales of 4 bits for 16 numbers each.
    Q2_K,
    /// 3 bits; in blocks of 256 with scales of 6 bits for 16 numbers each.
    Q3_K,
    /// 4 bits; in blocks of 256 with scales of 6 bits for 32 numbers each.
    Q4_K,
    /// 5 bits; in blocks of 256 with scales of 6 bits for 32 numbers each.
    Q5_K,
    /// 6 bits; in blocks of 256 with scales of 8 bits for 16 numbers each.
    Q6_K,
    /// One of 16 levels, and the largest size in the block.
    Nf4,
}

impl Quantisation {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::Nf4,
    ];
}
