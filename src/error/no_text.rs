//! Models that write no text.

/// Why a model writes no text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoText {
    /// A kind of model that reads images.
    #[error("a model of the kind \"{0}\" writes no text: it reads images")]
    Kind(&'static str),
    /// A stack that reads images.
    #[error("this stack writes no text: it reads images")]
    Images,
    /// A stack without a language head.
    #[error("this stack writes no text: its last layer is not `linear`, with a score for each token")]
    Head,
    /// A layer that needs a whole text.
    #[error("this stack writes no text: layer {layer} has a `{kind}`, which needs a whole text at a time")]
    Layer {
        /// The number of the layer, from 0.
        layer: usize,
        /// The kind of the layer, or of one inside.
        kind: &'static str,
    },
}
