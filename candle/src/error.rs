//! What can go wrong between candle and the engine.

use candle_core::DType;
use pipewright_stages::{Error, MAX_DIMS};

/// Operations of candle without a gradient, and what to use instead.
const CUTTING: &str = "candle_nn's LayerNorm, RmsNorm, softmax_last_dim and rope have none: use \
                       `layer_norm_slow` and the like of `candle_nn::ops`";

/// What can go wrong between candle and the engine. It is the [source](std::error::Error::source) of an
/// [`Error`] that names the layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CandleError {
    /// An error of candle.
    #[error("candle: {0}")]
    Candle(#[from] candle_core::Error),
    /// Numbers of another format than `f32`.
    #[error("{what} is in {dtype:?}: only F32 is trained; convert it with `to_dtype(DType::F32)`")]
    NotF32 {
        /// Which tensor, in words.
        what: String,
        /// Its number format.
        dtype: DType,
    },
    /// A tensor on a GPU.
    #[error("{what} is on a GPU: only the CPU trains models of candle; give them `Device::Cpu`")]
    NotOnCpu {
        /// Which tensor, in words.
        what: String,
    },
    /// A tensor with too many dimensions to leave the layer.
    #[error(
        "the output has the dimensions {0:?}: at most {MAX_DIMS} can leave a layer; reshape it, or put what \
         follows into the same layer"
    )]
    TooManyDims(Vec<usize>),
    /// A weight that candle's tape does not reach.
    #[error(
        "candle's tape gives no gradient for the weight `{0}`: it is not used, or an operation on the way \
         has none ({CUTTING}); freeze it if that is meant"
    )]
    NoGradient(String),
    /// An input that candle's tape does not reach.
    #[error(
        "candle's tape gives no gradient for the input: the output does not depend on it, or an operation \
         on the way has none ({CUTTING})"
    )]
    NoInputGradient,
}

impl From<CandleError> for Error {
    fn from(error: CandleError) -> Self {
        Self::other(error)
    }
}

/// A result of this crate.
pub(crate) type Result<T, E = CandleError> = std::result::Result<T, E>;
