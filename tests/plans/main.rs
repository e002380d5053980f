//! What a config is planned to take and to hold, against what it takes and holds.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/worlds.rs"]
mod worlds;

mod gpu_model;
mod memory;
mod offload;
mod replanning;
mod sizes;
mod stack;

use common::*;
use has::has;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::plan::Gpu;
use pipewright::schedule::Schedule;
use pipewright::stages::{Bytes, ForwardContext, Mode, Stage};
use pipewright_cli::compose;
use pipewright_cli::config::Config;
