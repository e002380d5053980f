//! Training: the same bits however the model is cut, what a step reports, and how it fails.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/composed.rs"]
mod composed;
#[path = "../common/divided_models.rs"]
mod divided_models;
#[path = "../common/gates.rs"]
mod gates;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/mixtral.rs"]
mod mixtral;
#[path = "../common/noted.rs"]
mod noted;
#[path = "../common/passing.rs"]
mod passing;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../schedules/random.rs"]
mod random;
#[path = "../common/text.rs"]
mod text;
#[path = "../common/worlds.rs"]
mod worlds;

mod any_schedule;
mod apart;
mod bf16;
mod bit_identical;
mod blocks;
mod by_rows;
mod convolutions;
mod errors;
mod evaluation;
mod experts;
mod failures;
mod frozen;
mod optimizers;
mod own_divided;
mod recompute;
mod recut;
mod refused_replicas;
mod replicas;
mod reschedule;
mod reshape;
mod shards;
mod short_sums;
mod steps;
mod threads;
mod ties;
mod traces;
mod varied;
mod wires;
mod without_barrier;
mod writing;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::*;
use has::has;
use mixtral::recipe_of_mixtral;
use passing::{Ones, PassOn};
use pipewright::checkpoint::Checkpoint;
use pipewright::data::DataSource;
use pipewright::id::{MicroBatch, Rank};
use pipewright::plan::{Costs, StageCost};
use pipewright::schedule::{Cell, LinkKind, Pass, Schedule};
use pipewright::stages::layers::Linear;
use pipewright::stages::loss::{CrossEntropy, Loss, MeanSquaredError, Score};
use pipewright::stages::models::{Gpt, LayerSpec, Mlp, Model, Rules};
use pipewright::stages::optimizer::{AdamW, LearningRate, Optimizer, Sgd, StateTensor, Update};
use pipewright::stages::{
    DType, Device, ForwardContext, Init, Lora, Mode, Parameter, Place, Recompute, Sequential, Shape, Stage,
    StageBuilder, Tensor, Together, Training,
};
use pipewright::{Error, Pipeline, Result, SyncMode};
use pipewright_cli::config::Config;
use proptest::prelude::*;
