//! How the layers of a model are divided among shards (tensor parallelism).
//!
//! What is divided belongs to the model, and not to the number of shards: see [`Sharding::groups`]. So the
//! sums of a model have the same bits for any number of shards.

pub(crate) mod division;
pub(crate) mod sharding;
pub(crate) mod team;
pub(crate) mod tree;

pub use division::Division;
pub use sharding::{Shard, Sharding};
pub use team::{Coming, Exchange, Team};
