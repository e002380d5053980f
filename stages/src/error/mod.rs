//! What can go wrong inside a stage: the struct says where it happened, the kind says what happened.

pub(crate) mod memory;

use std::fmt;
use std::sync::Arc;

use crate::shape::{Kind, Shape};

pub use memory::OutOfMemory;
pub(crate) use memory::Purpose;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure inside a stage, with the layer it happened in.
///
/// A layer of your own makes one with [`Error::new`], [`Error::shape`] or [`Error::other`]. The engine adds
/// the layer's name, if it is a layer of a [`Sequential`](crate::Sequential).
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
#[derive(Clone)]
pub struct Error {
    /// The layer or parameter, such as `h.3.attn`. Empty when the failure has no such place.
    pub place: String,
    /// What happened.
    pub kind: ErrorKind,
}

/// What went wrong inside a stage. Callers decide by the first three kinds.
// The result of every pass is as large as the largest kind.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device with too little memory.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A parameter of this name with a number that is NaN or infinite.
    #[error("parameter `{0}` is not finite (NaN or infinite)")]
    ParameterNotFinite(Box<str>),
    /// An output with a number that is NaN or infinite.
    #[error("its output is not finite (NaN or infinite)")]
    OutputNotFinite,
    /// Any other failure, in words: what was expected, what there is, and what to do.
    #[error("{0}")]
    Problem(Box<str>),
    /// An error of another library, or of the user.
    #[error("{0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// A failure in words: what was expected, what there is, and what to do.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        ErrorKind::Problem(text.into()).into()
    }

    /// A failure of a stage or layer written by the user, from an error. That is kept as the
    /// [source](std::error::Error::source) of this one.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ErrorKind::Other(cause.into().into()).into()
    }

    /// A shape that a layer refuses.
    pub fn shape(expected: impl fmt::Display, got: &Shape) -> Self {
        Self::new(format!("expected an input of {expected}, got {got}"))
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
        if let ErrorKind::OutOfMemory(lack) = self.kind {
            self.kind = ErrorKind::OutOfMemory(Box::new(lack.wanted_for(purpose)));
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
        match &self.kind {
            ErrorKind::Other(cause) => Some(cause.as_ref()),
            _ => None,
        }
    }
}

impl PartialEq for Error {
    /// Two errors are equal if their texts are. Other libraries' errors cannot be compared in another way.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
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

impl From<OutOfMemory> for Error {
    /// Without a place.
    fn from(error: OutOfMemory) -> Self {
        ErrorKind::OutOfMemory(Box::new(error)).into()
    }
}

/// Refuses sizes that must not be zero.
pub(crate) fn check_positive(sizes: &[(&str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some((what, _)) => Err(Error::new(format!("{what} is 0: it must be at least 1"))),
        None => Ok(()),
    }
}

/// Fails unless each token or class is one of the `limit` that the layer knows.
pub(crate) fn check_ids(what: &str, ids: impl IntoIterator<Item = u32>, limit: usize) -> Result<()> {
    match ids.into_iter().find(|&id| id as usize >= limit) {
        Some(id) => Err(Error::new(format!("{what} {id} is outside 0..{limit}"))),
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
