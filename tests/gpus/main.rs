//! Training on GPUs, or on emulated ones. It learns what the CPU learns, with the same bits for every cut.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/failing.rs"]
mod failing;
#[path = "../common/mixtral.rs"]
mod mixtral;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/text.rs"]
mod text;
#[path = "../common/worlds.rs"]
mod worlds;

mod convolutions;
mod failures;
mod offload;
mod orders;
mod profile;
mod refusals;
mod replicas;
mod restarts;
mod training;
mod writing;
