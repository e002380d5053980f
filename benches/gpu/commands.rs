//! The bench's arguments, and what each command measures.

use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use pipewright::stages::devices::probe;
use pipewright::stages::{DType, Device, Place, Recompute};

use crate::predicted::Here;
use crate::run::Given;
use crate::sizes::{Result, named};
use crate::table::{Guess, Table, Unit};
use crate::{attention, functions, kernels, launches, links, train};

/// Tokens per second of GPT-2 on an H100 that compiled PyTorch was guessed to reach before one was at hand:
/// the middle of 470 to 510 thousand.
const PEER: f64 = 490e3;

#[derive(Debug, Parser)]
struct Arguments {
    /// gpt2 or tiny.
    #[arg(long, default_value = "gpt2")]
    size: String,
    /// The GPU; `train` also runs on `cpu`, in f32.
    #[arg(long, default_value = "cuda:0")]
    device: Device,
    /// Use f32 instead of bf16. The model knows bf16 only.
    #[arg(long)]
    f32: bool,
    /// A file of text.
    #[arg(long, default_value = "README.md")]
    data: PathBuf,
    /// Training steps. The first three are not measured.
    #[arg(long, default_value_t = 15)]
    steps: u64,
    /// How often everything else is measured. An odd number has a median.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// A file to which rows are added too.
    #[arg(long)]
    rows: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A model in this many stages. `PIPEWRIGHT_BACKWARD_WEIGHT=beside` gives weight gradients a stream.
    Train {
        #[arg(long, num_args = 1.., default_values_t = train::STAGES)]
        stages: Vec<u32>,
        /// Print a line of JSON for each, instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Every kernel by itself: without that variable, or weight gradients are not measured.
    Kernels {
        /// Only kernels with this in their names.
        part: Option<String>,
    },
    /// Attention in more shapes. `PIPEWRIGHT_ATTENTION=wgmma` chooses the way of its forward.
    Attention {
        /// A file for a sample of what is computed.
        #[arg(long)]
        keep: Option<PathBuf>,
        /// Such a file, to compare with.
        #[arg(long)]
        beside: Option<PathBuf>,
    },
    /// What it takes to tell a GPU to do something.
    Launches,
    /// Copies and sends between GPUs, and what they cost those who compute.
    Links,
    /// How exact CUDA's functions are.
    Functions,
    /// A row for what PyTorch reaches, measured by `compare.py`.
    Peer {
        /// Its tokens per second.
        tokens_per_second: f64,
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
            dtype: if self.f32 || self.device == Device::Cpu { DType::F32 } else { DType::Bf16 },
        }
    }

    fn given(&self, ranks: u32) -> Result<Given> {
        Ok(Given {
            size: named(&self.size)?,
            data: self.data.clone(),
            steps: self.steps,
            ranks,
            replicas: 1,
            groups: 1,
            sharded: false,
            shards: 1,
            shard_groups: 1,
            places: vec![self.place()],
            recompute: Recompute::default(),
        })
    }

    /// The GPU that is measured. What is known of its kind is about bf16.
    fn here(&self) -> Result<Here> {
        let mut here = Here::of(self.device)?;
        here.kind = here.kind.filter(|_| !self.f32);
        Ok(here)
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

/// Does what the arguments say, and prints to `out`.
pub(crate) fn run(arguments: impl Iterator<Item = String>, out: impl Write) -> Result<()> {
    let arguments = Arguments::parse_from(arguments);
    let mut table = Table::new(out, arguments.rows.as_deref())?;
    match &arguments.command {
        Some(Command::Prepare { out }) => return arguments.given(1)?.prepare(out),
        Some(Command::Train { stages, json }) if arguments.device == Device::Cpu => {
            return train::measure(&mut table, stages, *json, None, |ranks| arguments.given(ranks));
        }
        _ => {}
    }
    if let Some(why) = missing() {
        return table.say(&format!("nothing is measured: {why}"));
    }
    let here = arguments.here()?;
    if !matches!(arguments.command, Some(Command::Train { json: true, .. })) {
        table.say(&here.heading())?;
        table.heading()?;
    }
    measure(&arguments, &here, &mut table)
}

fn measure(arguments: &Arguments, here: &Here, table: &mut Table<'_>) -> Result<()> {
    let (place, rounds) = (arguments.place(), arguments.rounds);
    let size = named(&arguments.size)?;
    let setting = kernels::Setting { size: &size, place, rounds, kind: here.kind };
    let train = |table: &mut Table<'_>, stages: &[u32], json| {
        train::measure(table, stages, json, Some(here), |ranks| arguments.given(ranks))
    };
    match &arguments.command {
        Some(Command::Train { stages, json }) => train(table, stages, *json),
        Some(Command::Kernels { part }) => kernels::measure(table, &setting, part.as_deref()),
        Some(Command::Attention { keep, beside }) => {
            attention::measure(table, &setting, keep.as_deref(), beside.as_deref())
        }
        Some(Command::Launches) => launches::measure(table, &setting),
        Some(Command::Links) => links::measure(table, &setting),
        Some(Command::Functions) => functions::measure(table, place.device),
        Some(Command::Peer { tokens_per_second }) => peer(table, here, *tokens_per_second),
        Some(Command::Prepare { .. }) => Ok(()),
        None => {
            train(table, &train::STAGES, false)?;
            kernels::measure(table, &setting, None)?;
            launches::measure(table, &setting)?;
            links::measure(table, &setting)?;
            functions::measure(table, place.device)
        }
    }
}

fn peer(table: &mut Table<'_>, here: &Here, tokens_per_second: f64) -> Result<()> {
    let is_guessed = here.kind.is_some_and(|kind| kind.name == "h100");
    let guess =
        Guess { what: "PyTorch, compiled", unit: Unit::Tokens, predicted: is_guessed.then_some(PEER) };
    table.row(&guess, tokens_per_second, "guessed: 470 to 510 thousand, its weights in bf16")
}
