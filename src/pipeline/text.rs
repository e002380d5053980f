//! What a pipeline knows of the text that it writes.

use std::sync::Arc;

use crate::worker::Forwards;

/// The text that a pipeline writes.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// How many of its tokens the stages have had, and keep keys and values of.
    pub(super) had: usize,
    /// The forward passes of all stages, once they were needed.
    pub(super) forwards: Option<Arc<Forwards>>,
}

impl Text {
    /// The next text is a new one: the weights are others.
    pub(super) fn end(&mut self) {
        self.had = 0;
    }
}
