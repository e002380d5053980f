//! Training and kernels on a GPU. `compare.py` in this folder compares the training with PyTorch.
//!
//! `cargo bench --bench gpu -- [--size gpt2] [--f32] [kernels [PART_OF_A_NAME] | train [--stages 1 2 4]]`
//!
//! The default is both. `gpt2`: 12 layers, dim 768, 12 heads, 50,304 tokens, 8 micro-batches of 16 x 1,024;
//! all stages on one GPU. Without a GPU it says why and succeeds. `--size tiny` is for an emulated GPU.

mod images;
mod kernels;
mod layers;
#[path = "../compare_torch/products.rs"]
mod products;
#[path = "../compare_torch/run.rs"]
mod run;
#[path = "../compare_torch/sizes.rs"]
mod sizes;
mod timer;
mod train;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pipewright::groups::Groups;
use pipewright::stages::devices::probe;
use pipewright::stages::{DType, Device, Place};

use crate::run::Given;
use crate::sizes::{Result, named};

#[derive(Debug, Parser)]
struct Arguments {
    /// gpt2 or tiny.
    #[arg(long, default_value = "gpt2")]
    size: String,
    /// The GPU; `train` also runs on `cpu`, in f32.
    #[arg(long, default_value = "cuda:0")]
    device: Device,
    /// Use f32 instead of bf16.
    #[arg(long)]
    f32: bool,
    /// A file of text.
    #[arg(long, default_value = "README.md")]
    data: PathBuf,
    /// Training steps. The first three are not measured.
    #[arg(long, default_value_t = 15)]
    steps: u64,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every kernel by itself.
    Kernels {
        /// Only kernels with this in their names.
        part: Option<String>,
    },
    /// A model in this many stages.
    Train {
        #[arg(long, num_args = 1.., default_values_t = train::STAGES)]
        stages: Vec<u32>,
        /// Print a line of JSON for each, instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Write starting weights and batches for the peer.
    Prepare {
        /// The folder to write into.
        #[arg(long)]
        out: PathBuf,
    },
}

impl Arguments {
    fn place(&self) -> Place {
        Place {
            device: self.device,
            // The CPU has no bf16.
            dtype: if self.f32 || self.device == Device::Cpu {
                DType::F32
            } else {
                DType::Bf16
            },
        }
    }

    fn given(&self, ranks: u32) -> Result<Given> {
        Ok(Given {
            size: named(&self.size)?,
            data: self.data.clone(),
            steps: self.steps,
            ranks,
            replicas: 1,
            groups: Groups::DEFAULT,
            sharded: false,
            place: self.place(),
        })
    }
}

/// Why there is nothing to measure, if so.
fn missing() -> Option<String> {
    match probe().gpus {
        Ok(gpus) if gpus.is_empty() => Some("CUDA sees no GPU".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(Command::Prepare { out }) = &arguments.command {
        return arguments.given(1)?.prepare(out);
    }
    if let Some(why) = missing().filter(|_| arguments.device != Device::Cpu) {
        println!("nothing is measured: {why}");
        return Ok(());
    }
    let measure = |part| {
        let size = named(&arguments.size)?;
        Ok(kernels::measure(&size, arguments.place(), part)?)
    };
    match &arguments.command {
        Some(Command::Kernels { part }) => measure(part.as_deref()),
        Some(Command::Train { stages, json }) => {
            train::measure(stages, *json, |ranks| arguments.given(ranks))
        }
        _ => {
            measure(None)?;
            train::measure(&train::STAGES, false, |ranks| arguments.given(ranks))
        }
    }
}

fn main() -> ExitCode {
    // `cargo bench` adds this argument itself.
    let arguments = std::env::args().filter(|argument| argument != "--bench");
    match run(&Arguments::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
