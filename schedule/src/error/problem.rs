//! A failure in words.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A failure by which neither code nor a caller decides, in words: where it is, what was expected, and what
/// to do.
///
/// `Debug` writes the message too. Clones share the source.
#[derive(Clone)]
pub struct Problem {
    text: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A failure with this message.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { text, source: None }
    }

    /// The same, with the error that it comes from. The message includes that error's message.
    pub fn because(text: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = Some(source.into().into());
        Self { source, ..Self::new(text) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref()?.as_ref())
    }
}
