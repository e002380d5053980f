//! Models in Hugging Face's form: read, trained, written and refused. `scripts/hf_golden.py` makes the
//! folders in `tests/golden/hf`.

#[path = "../common/batches.rs"]
mod batches;
#[path = "../common/gguf.rs"]
mod files;
#[path = "../common/has.rs"]
mod has;

mod adapter_keys;
mod equal;
mod family;
mod gguf;
mod keys;
mod lora;
mod losses;
mod next;
mod optimizers;
mod preferences;
mod qlora;
mod quantised;
mod recorder;
mod refused;
mod written;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use family::{FAMILIES, Golden, assert_near, changed, folder, stages};
use has::has;
use pipewright::Pipeline;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::pretrained::{Architecture, Weights, import, read_config};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::optimizer::{LearningRate, Optimizer, StateTensor, Update};
use pipewright::stages::{ForwardContext, Init, Mode, Parameter, Result, Stage, Together};
use pipewright_cli::config::Config;
use recorder::Recorder;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;
