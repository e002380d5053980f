//! Layers that cannot be cut into stages as asked.

/// Layers that cannot be cut into stages as asked. The layers are a model's units, by their names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// No stages.
    #[error("0 stages: a pipeline has at least 1")]
    NoStages,
    /// More stages than layers.
    #[error("{stages} stages for {layers} layers: use at most {layers} stages or a deeper model")]
    TooManyStages {
        /// The stages.
        stages: usize,
        /// The layers of the model.
        layers: usize,
    },
    /// Counts of layers that do not add up to the model's.
    #[error("stages of {counts:?} layers do not make up the model's {layers}")]
    Counts {
        /// The layers of each stage.
        counts: Vec<usize>,
        /// The layers of the model.
        layers: usize,
    },
    /// A stage without a layer.
    #[error("stage {stage} is empty: give it a layer or leave it out")]
    EmptyStage {
        /// The stage, from 0.
        stage: usize,
    },
    /// No stage has the model's last layers. This is the first of them.
    #[error("layer `{layer}` is missing: add it to a stage")]
    MissingAtEnd {
        /// The layer.
        layer: String,
    },
    /// No stage has this layer. The next layer of the model is in its place.
    #[error("layer `{layer}` is missing before `{next}` in stage {stage}: keep the model's order")]
    Missing {
        /// The layer that is missing.
        layer: String,
        /// The layer that comes in its place.
        next: String,
        /// The stage that has that layer, from 0.
        stage: usize,
    },
    /// A layer that is listed twice.
    #[error("layer `{layer}` comes again in stage {stage}: name it once, in the model's order")]
    Again {
        /// The layer.
        layer: String,
        /// The stage of the second one, from 0.
        stage: usize,
    },
    /// A range whose end comes before its start.
    #[error("`{entry}` runs backwards: turn it round")]
    Backwards {
        /// The range.
        entry: String,
    },
    /// A name that no layer has.
    #[error("unknown layer `{entry}`: did you mean `{nearest}`?")]
    Unknown {
        /// The name.
        entry: String,
        /// The layer that was probably meant.
        nearest: String,
    },
}
