//! What a rank reports while it trains.

use crossbeam_channel::Sender;
use pipewright::stages::ForwardContext;

/// Where observations go.
pub(super) type Log = Sender<Sample>;

/// An observation of a layer in a step, and how long it took.
#[derive(Debug)]
pub(super) struct Sample {
    /// The layer's place in the model, from 0.
    pub(super) layer: usize,
    pub(super) step: u64,
    pub(super) seconds: f64,
    pub(super) of: Observation,
}

/// An observation. Sizes are in bytes.
#[derive(Debug)]
pub(super) enum Observation {
    /// The names of the layer's parameters.
    Parameters(Vec<String>),
    Forward {
        at: ForwardContext,
        /// The blocks of memory that the layer keeps: address and size.
        saved: Vec<(usize, u64)>,
        output: u64,
    },
    BackwardInput {
        pending: u64,
    },
    BackwardWeight {
        /// Whether it computed gradients, and did not only add some.
        splits: bool,
    },
    Loss,
    Update {
        parameter: String,
    },
}
