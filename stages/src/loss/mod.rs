//! Losses: what training minimises.

pub(crate) mod absolute_error;
pub(crate) mod any;
pub(crate) mod base;
pub(crate) mod binary_cross_entropy;
pub(crate) mod cross_entropy;
pub(crate) mod cuda;
pub(crate) mod divided_cross_entropy;
pub(crate) mod groups_on_gpu;
pub(crate) mod huber;
pub(crate) mod mean_squared_error;
pub(crate) mod metric;
pub(crate) mod micro_batch;
pub(crate) mod pair;
pub(crate) mod pairwise_reward;
pub(crate) mod preference;
pub(crate) mod score;
pub(crate) mod some_rows;

pub use absolute_error::AbsoluteError;
pub use any::AnyLoss;
pub use base::Loss;
pub use binary_cross_entropy::BinaryCrossEntropy;
pub use cross_entropy::CrossEntropy;
pub use huber::Huber;
pub use mean_squared_error::MeanSquaredError;
pub use metric::{Measured, Metric};
pub use micro_batch::MicroBatchLoss;
pub use pairwise_reward::PairwiseReward;
pub use preference::Preference;
pub use score::{Metrics, Score};
pub use some_rows::SomeRows;
