//! Settings of an optimizer that cannot be.

/// A setting of `[optimizer]` that does not fit the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerProblem {
    /// A warm-up that is longer than the training.
    #[error("{warmup} steps of warm-up do not fit into train.steps = {steps}: lower it or train longer")]
    WarmUp {
        /// The steps of warm-up.
        warmup: u64,
        /// The steps of the training.
        steps: u64,
    },
    /// A decay that does not fit between the warm-up and the end of the training.
    #[error(
        "{decay} steps of decay after {warmup} of warm-up do not fit into train.steps = {steps}: lower it or \
         train longer"
    )]
    Decay {
        /// The steps of decay.
        decay: u64,
        /// The steps of warm-up.
        warmup: u64,
        /// The steps of the training.
        steps: u64,
    },
    /// A sharded optimizer that has no state.
    #[error(
        "sgd without momentum has no state to divide among replicas: set this to false, or \
         optimizer.momentum above 0"
    )]
    NothingToShard,
    /// An optimizer whose updates replicas cannot share.
    #[error(
        "adafactor and muon update whole parameters only, so replicas cannot divide their updates: take \
         pipeline.sync = \"reduce\" and optimizer.sharded = false, or optimizer.kind \"adamw\", \"lion\" or \
         \"sgd\""
    )]
    WholeParameters,
}
