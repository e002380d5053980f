//! The secret of a run.

use std::fmt;
use std::sync::Arc;

use crate::error::{FabricError, Result};

/// A text that all processes of a run know, and nobody else. It never goes over a connection: each process
/// proves that it knows it. `openssl rand -hex 32` makes a good one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// The fewest bytes of a secret. Anyone who hears a proof can try out shorter ones.
    pub const SHORTEST: usize = 16;

    /// The most bytes of a secret.
    pub const LONGEST: usize = 4096;

    /// This text as a secret, without the spaces and line ends around it.
    ///
    /// # Errors
    /// [`FabricError::Refused`] when it is too short or too long.
    pub fn new(text: &str) -> Result<Self> {
        Self::of("the secret", text)
    }

    /// The same, for a text that comes from there.
    ///
    /// # Errors
    /// [`FabricError::Refused`].
    pub fn of(from: &str, text: &str) -> Result<Self> {
        let text = text.trim();
        match text.len() {
            Self::SHORTEST..=Self::LONGEST => Ok(Self(text.into())),
            bytes => {
                let (shortest, longest) = (Self::SHORTEST, Self::LONGEST);
                let text = format!(
                    "{from} has {bytes} bytes, and a secret has {shortest} to {longest}: make one by \
                     `openssl rand -hex 32`, and give it to all processes"
                );
                Err(FabricError::refused(text).into())
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// It does not show the text.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
