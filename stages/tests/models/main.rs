//! Models and their stages: parameters, cuts, recomputing, adapters, and errors.

#[path = "../common/mod.rs"]
mod common;

mod adapters;
mod errors;
mod exchanges;
mod identity;
mod partition;
mod ready;
mod recompute;

use common::{ids, tensor};
use pipewright_stages::models::{Gpt, LayerSpec, Mlp, Model};
use pipewright_stages::{
    Bytes, Device, ForwardContext, Init, Layer, Mode, Parameter, Sequential, Shape, Stage, Tensor,
};
