//! The tensors that an optimizer keeps, and their number formats.

use std::ops::Range;

use half::bf16;

/// How many numbers share a scale in [`StateFormat::Blocks`].
pub(crate) const BLOCK: usize = 128;
/// The bytes of such a block: the scale in `f32`, and a byte for each number.
pub(crate) const BLOCK_BYTES: usize = size_of::<f32>() + BLOCK;

/// The number format of a tensor that an optimizer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StateFormat {
    /// 32 bits.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "f32"))]
    F32,
    /// 16 bits. Each update rounds at random, so that small changes are not lost: the nearer a number is to
    /// the upper neighbour, the more often it is rounded up, and the mean stays. A hash of the number itself,
    /// the gradient and the step decides, so it does not depend on how a model is cut.
    #[cfg_attr(feature = "serde", serde(rename = "bf16"))]
    Bf16,
    /// 8 bits: blocks of 128 consecutive numbers, each with a scale, 132 bytes a block. Dettmers et al.,
    /// "8-bit optimizers via block-wise quantization" (ICLR 2022), with its dynamic code.
    #[cfg_attr(feature = "serde", serde(rename = "8bit"))]
    Blocks,
}

impl StateFormat {
    /// How many words of 32 bits this many numbers take.
    pub(crate) fn words(self, numbers: usize) -> usize {
        match self {
            Self::F32 => numbers,
            Self::Bf16 => numbers.div_ceil(2),
            Self::Blocks => numbers.div_ceil(BLOCK) * (BLOCK_BYTES / size_of::<f32>()),
        }
    }

    /// The numbers of stored bytes.
    ///
    /// # Panics
    /// Of [blocks](StateFormat::Blocks), which have no number alone.
    pub fn numbers(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Self::Bf16 => {
                bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect()
            }
            Self::Blocks => panic!("blocks have no number alone"),
        }
    }

    /// The bytes of numbers that [`StateFormat::numbers`] has given.
    ///
    /// # Panics
    /// As there.
    pub fn stored(self, numbers: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Self::Bf16 => numbers.iter().flat_map(|number| bf16::from_f32(*number).to_le_bytes()).collect(),
            Self::Blocks => panic!("blocks have no number alone"),
        }
    }
}

/// A tensor that an optimizer keeps for a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTensor {
    /// Its name. Checkpoints use it.
    pub name: &'static str,
    /// The dimensions, outermost first. If they are the parameter's, an owner of a part of the parameter has
    /// only the same part of this tensor. Of [blocks](StateFormat::Blocks) they are `[blocks, 132]`, in
    /// bytes, and an owner has the blocks of its part.
    pub dims: Vec<usize>,
    /// The number format.
    pub format: StateFormat,
}

impl StateTensor {
    /// A tensor of `f32` with a number for each number of a parameter of these dimensions.
    pub fn for_each(name: &'static str, dims: &[usize]) -> Self {
        Self::in_format(StateFormat::F32, name, dims)
    }

    /// The same in this number format.
    pub fn in_format(format: StateFormat, name: &'static str, dims: &[usize]) -> Self {
        let dims = match format {
            StateFormat::F32 | StateFormat::Bf16 => dims.to_vec(),
            StateFormat::Blocks => vec![dims.iter().product::<usize>().div_ceil(BLOCK), BLOCK_BYTES],
        };
        Self { name, dims, format }
    }

    /// How many bytes all its numbers take.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.number_bytes()
    }

    fn number_bytes(&self) -> usize {
        match self.format {
            StateFormat::F32 => 4,
            StateFormat::Bf16 => 2,
            StateFormat::Blocks => 1,
        }
    }

    /// Which of its bytes the owner of these numbers of a parameter has. The parameter has these dimensions.
    ///
    /// # Panics
    /// When the numbers do not begin with a block.
    pub fn bytes_of(&self, numbers: &Range<usize>, dims: &[usize]) -> Range<usize> {
        match self.format {
            StateFormat::Blocks if numbers.is_empty() => 0..0,
            StateFormat::Blocks => {
                assert!(numbers.start.is_multiple_of(BLOCK), "they begin with a block");
                numbers.start / BLOCK * BLOCK_BYTES..numbers.end.div_ceil(BLOCK) * BLOCK_BYTES
            }
            _ if self.dims == dims => numbers.start * self.number_bytes()..numbers.end * self.number_bytes(),
            _ => 0..self.bytes(),
        }
    }
}
