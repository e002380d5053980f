//! Layers: their gradients, blocks of them, the same bits for any number of threads, and what they refuse.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/apart.rs"]
mod documents;

mod apart;
mod block_shapes;
mod blocks;
mod by_rows;
mod convolution;
mod dropout;
mod experts;
mod gradient_shapes;
mod gradients;
mod heads;
mod held_halves;
mod image_norms;
mod products;
mod quantised;
mod testing;

use common::{pass, shuffle, tensor, train};
use pipewright_stages::testing::check_gradients;
use pipewright_stages::{
    Bytes, ForwardContext, Init, Layer, Mode, Parameter, Recompute, Result, Shape, Tensor,
};
