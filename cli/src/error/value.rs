//! A value of a config that does not fit its key, or does not fit other values.

use std::error::Error;

/// What is wrong with a value of a config, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// 0 where there must be at least one.
    #[error("is 0: set it to 1 or more")]
    Zero,
    /// Training that needs more memory than a device has.
    #[error("{0}")]
    TooMuchMemory(String),
    /// Another mistake.
    #[error("{text}")]
    Other {
        /// The sentence.
        text: String,
        /// The error that says so, if there is one.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl ValueProblem {
    /// What the error of a part says.
    pub(crate) fn caused(source: impl Error + Send + Sync + 'static) -> Self {
        Self::because(source.to_string(), source)
    }

    /// A sentence about an error.
    pub(crate) fn because(text: String, source: impl Error + Send + Sync + 'static) -> Self {
        let source = Some(source.into());
        Self::Other { text, source }
    }
}

impl<T: Into<String>> From<T> for ValueProblem {
    fn from(text: T) -> Self {
        Self::Other { text: text.into(), source: None }
    }
}
