//! What can go wrong inside a stage: the struct says where it happened, the kind says what happened. Each
//! part has a file.

pub(crate) mod cause;
pub(crate) mod cuda;
pub(crate) mod device;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod nccl;
pub(crate) mod partition;
pub(crate) mod setting;
pub(crate) mod shape;
pub(crate) mod value;

use std::fmt;

use crate::shape::{Kind, Shape};

pub use cause::Cause;
pub use cuda::{CudaError, CudaRemedy, LibraryError};
pub use device::DeviceError;
pub use memory::{Left, OutOfMemory, Purpose, Wanted};
pub use nccl::{NcclError, NcclRemedy};
pub use partition::PartitionError;
pub use setting::SettingError;
pub use shape::ShapeError;
pub use value::ValueError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure inside a stage, with the layer it happened in.
///
/// A layer of your own makes one with [`Error::shape`] or [`Error::other`]. The engine adds the layer's name,
/// if it is a layer of a [`Sequential`](crate::Sequential).
///
/// The operator `?` converts `std::io::Error` and `Box<dyn std::error::Error + Send + Sync>` into one. For an
/// error type of your own, write the conversion:
///
/// ```
/// use pipewright_stages::Error;
///
/// #[derive(Debug)]
/// struct NoSuchExpert(usize);
///
/// impl std::fmt::Display for NoSuchExpert {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         write!(f, "there is no expert {}", self.0)
///     }
/// }
///
/// impl std::error::Error for NoSuchExpert {}
///
/// impl From<NoSuchExpert> for Error {
///     fn from(error: NoSuchExpert) -> Self {
///         Self::other(error)
///     }
/// }
///
/// fn expert(index: usize) -> Result<usize, NoSuchExpert> {
///     if index < 8 { Ok(index) } else { Err(NoSuchExpert(index)) }
/// }
///
/// fn forward() -> pipewright_stages::Result<usize> {
///     Ok(expert(9)?)
/// }
///
/// let error = forward().unwrap_err().at("moe");
/// assert_eq!(error.to_string(), "moe: there is no expert 9");
/// let source = std::error::Error::source(&error).unwrap();
/// assert!(source.is::<NoSuchExpert>());
/// ```
///
/// `Debug` writes the message too. So a `main` that returns an error shows it to people as it should be read.
#[derive(Clone, PartialEq)]
pub struct Error {
    /// The layer or parameter, such as `h.3.attn`. Empty when the failure has no such place.
    pub place: String,
    /// What happened.
    pub kind: ErrorKind,
}

/// What went wrong inside a stage.
// In boxes, because the result of every pass is as large as the largest kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Tensors whose shapes do not fit.
    #[error(transparent)]
    Shape(Box<ShapeError>),
    /// Invalid numbers or ids.
    #[error(transparent)]
    Value(Box<ValueError>),
    /// A setting that makes no sense.
    #[error(transparent)]
    Setting(Box<SettingError>),
    /// Layers that cannot be cut into stages as asked.
    #[error(transparent)]
    Partition(Box<PartitionError>),
    /// A device that does not exist, or that cannot run something.
    #[error(transparent)]
    Device(Box<DeviceError>),
    /// One of CUDA's libraries is missing or too old.
    #[error(transparent)]
    Library(Box<LibraryError>),
    /// A call that CUDA refused.
    #[error(transparent)]
    Cuda(Box<CudaError>),
    /// Transfers between GPUs that NCCL cannot do.
    #[error(transparent)]
    Nccl(Box<NcclError>),
    /// A device with too little memory.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A stage that cannot compute the next tokens of a text.
    #[error("this stage writes no text: it lacks `Stage::forward_next` or `Stage::next_scores`")]
    WritesNoText,
    /// A block that is used several times cannot compute the next tokens of a text.
    #[error(
        "a repeated block writes no text: its layers keep the keys and values of one use; write the layers \
         once for each use, with `Parameter::tied` weights"
    )]
    RepeatedWritesNoText,
    /// A convolution cannot compute the next tokens of a text.
    #[error("a convolution writes no text: its windows see tokens that come later")]
    ConvolutionWritesNoText,
    /// A failure of a stage or layer written by the user.
    #[error(transparent)]
    Other(Cause),
}

impl Error {
    /// A failure of a stage or layer written by the user, from an error or a text. The given error is kept as
    /// the [source](std::error::Error::source) of this one.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ErrorKind::Other(Cause::new(cause)).into()
    }

    /// A shape that a layer refuses.
    pub fn shape(expected: impl Into<String>, got: &Shape) -> Self {
        let expected = expected.into();
        ShapeError::Input { expected, got: *got }.into()
    }

    /// The same failure with the layer it happened in. If the place is already known, it stays.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        if self.place.is_empty() {
            self.place = place.to_owned();
        }
        self
    }

    /// The same failure; if it is a lack of memory, with what that is for.
    #[must_use]
    pub(crate) fn wanted_for(mut self, purpose: Purpose) -> Self {
        if let ErrorKind::OutOfMemory(wanted) = &mut self.kind {
            wanted.purpose = purpose;
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, kind } = self;
        match place.as_str() {
            "" => write!(f, "{kind}"),
            place => write!(f, "{place}: {kind}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

impl From<ErrorKind> for Error {
    /// Without a place.
    fn from(kind: ErrorKind) -> Self {
        let place = String::new();
        Self { place, kind }
    }
}

impl From<std::io::Error> for Error {
    /// As [`Error::other`].
    fn from(error: std::io::Error) -> Self {
        Self::other(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    /// As [`Error::other`].
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::other(error)
    }
}

/// Each part's error becomes an [`ErrorKind`], and an [`Error`] without a place.
macro_rules! parts {
    ($($kind:ident($part:ty)),* $(,)?) => {$(
        impl From<$part> for ErrorKind {
            fn from(error: $part) -> Self {
                Self::$kind(Box::new(error))
            }
        }

        impl From<$part> for Error {
            /// Without a place.
            fn from(error: $part) -> Self {
                ErrorKind::from(error).into()
            }
        }
    )*};
}

parts! {
    Shape(ShapeError),
    Value(ValueError),
    Setting(SettingError),
    Partition(PartitionError),
    Device(DeviceError),
    Library(LibraryError),
    Cuda(CudaError),
    Nccl(NcclError),
    OutOfMemory(OutOfMemory),
}

/// Refuses sizes that must not be zero.
pub(crate) fn check_positive(sizes: &[(&'static str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some(&(what, _)) => Err(SettingError::Zero { what }.into()),
        None => Ok(()),
    }
}

/// Fails unless the input is of numbers and `width` is its innermost dimension.
pub(crate) fn check_rows(input: &Shape, width: usize) -> Result<()> {
    if input.kind() == Kind::F32 && !input.dims().is_empty() && input.last() == width && width > 0 {
        return Ok(());
    }
    Err(Error::shape(format!("f32[.., {width}]"), input))
}

/// Fails unless the input is of numbers.
pub(crate) fn check_numbers(input: &Shape) -> Result<()> {
    if input.kind() == Kind::F32 {
        return Ok(());
    }
    Err(Error::shape("f32 numbers", input))
}
