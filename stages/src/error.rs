//! What can go wrong inside a stage: where it happened in the struct, what happened in the kind.

use crate::device::Device;
use crate::shape::Shape;
use crate::units::in_words;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure inside a stage, with the layer it happened in.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{kind}", if place.is_empty() { String::new() } else { format!("{place}: ") })]
pub struct Error {
    /// The layer or parameter, such as `h.3.attn`; empty when the failure has no such place.
    pub place: String,
    /// What happened.
    pub kind: ErrorKind,
}

/// What went wrong inside a stage.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A tensor of another shape than the layer works on.
    #[error("expected an input of {expected}, got {got}")]
    Shape {
        /// What the layer accepts, in words.
        expected: String,
        /// The shape that arrived.
        got: Shape,
    },
    /// An input gradient of another shape than the input.
    #[error(
        "backward_input gave an input gradient of {got}, and the input was {expected}: they must have one shape"
    )]
    GradientShape {
        /// The shape of the input.
        expected: Box<Shape>,
        /// The shape of its gradient.
        got: Box<Shape>,
    },
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
    /// A number that is NaN or infinite.
    #[error("{0} is not finite (NaN or infinite)")]
    NotFinite(String),
    /// A setting that makes no sense; says which and what to do.
    #[error("{0}")]
    Invalid(String),
    /// A device that is not there, or a call that it or its driver refused.
    #[error("{0}")]
    Device(String),
    /// A device that has not as much memory as is wanted, whatever is given back before.
    #[error(
        "out of memory on {device}: {} wanted, {} free of {}; {}",
        in_words(*wanted as f64), in_words(*free as f64), in_words(*total as f64),
        if *lasting {
            "what stays with each stage (weights, their gradients, the optimizer's state, room for matrix products) needs less on each \
             of more devices: more stages, fewer on this one"
        } else {
            "less is needed with a smaller micro-batch (pipeline.micro_batch_size), recomputation (pipeline.recompute) or more stages \
             on other devices"
        }
    )]
    OutOfMemory {
        /// The device.
        device: Device,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that nobody uses.
        free: u64,
        /// Bytes of the device.
        total: u64,
        /// Whether it is for what stays for as long as the stage: its parameters, room for its matrix products.
        lasting: bool,
    },
    /// A failure of a stage or layer written by the user.
    #[error("{0}")]
    Other(String),
}

impl From<ErrorKind> for Error {
    /// Without a place.
    fn from(kind: ErrorKind) -> Self {
        Self {
            place: String::new(),
            kind,
        }
    }
}

impl Error {
    /// A setting that makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            place: String::new(),
            kind: ErrorKind::Invalid(message.into()),
        }
    }

    /// A failure of a stage or layer of the user's own.
    pub fn other(message: impl std::fmt::Display) -> Self {
        Self {
            place: String::new(),
            kind: ErrorKind::Other(message.to_string()),
        }
    }

    /// A shape that a layer refuses.
    pub fn shape(expected: impl Into<String>, got: &Shape) -> Self {
        Self {
            place: String::new(),
            kind: ErrorKind::Shape {
                expected: expected.into(),
                got: *got,
            },
        }
    }

    /// The same failure with the layer it happened in; a place that is already known stays.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        if self.place.is_empty() {
            self.place = place.to_owned();
        }
        self
    }
}

/// Refuses sizes that must not be zero.
pub(crate) fn check_positive(sizes: &[(&str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some((name, _)) => Err(Error::invalid(format!("{name} is 0: it must be at least 1"))),
        None => Ok(()),
    }
}
