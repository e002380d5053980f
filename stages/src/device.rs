//! Where a stage runs, and in which number format.

use std::fmt;

/// What a stage runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The cores of this machine.
    #[default]
    Cpu,
    /// The GPU with this index. CUDA counts the GPUs; `CUDA_VISIBLE_DEVICES` hides and reorders them.
    Cuda(u32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Written as text: `cpu`, `cuda:0`.
#[cfg(feature = "serde")]
impl serde::Serialize for Device {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Device {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The number format of activations and of the operands of matrix products. Weights, their gradients and the
/// optimizer's state are always `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum DType {
    /// 32-bit floating point.
    #[default]
    F32,
    /// 16-bit "brain" floating point: the exponent range of `f32` with a mantissa of 7 bits.
    Bf16,
}

impl DType {
    /// The size of a number in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// A device and the number format to use there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// The device.
    pub device: Device,
    /// The number format.
    pub dtype: DType,
}
