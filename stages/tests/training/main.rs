//! What training needs beside a model: losses, learning rates and optimizers. And PyTorch's numbers, of
//! single calls and of whole runs.

#[path = "../common/mod.rs"]
mod common;

mod golden_calls;
mod golden_images;
mod golden_optimizers;
mod golden_plain;
mod learning_rate;
mod loss;
mod preferences;

use std::collections::HashMap;
use std::path::Path;

use pipewright_stages::loss::{CrossEntropy, Loss, Score};
use pipewright_stages::optimizer::{AdamW, Decay, Optimizer, Sgd, Update, clip_factor};
use pipewright_stages::{ForwardContext, Init, Mode, Parameter, Sequential, Stage, Tensor, Together};
use safetensors::SafeTensors;
use serde_json::Value;
