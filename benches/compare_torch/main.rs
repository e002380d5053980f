//! Our side of the comparison with PyTorch. `compare.py` in this folder runs both sides, and explains more.
//!
//! Every command prints one line of JSON.

mod products;
mod rate;
mod run;
mod sizes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use pipewright::fabric::{Membership, World};
use pipewright::groups::GradientGroups;
use pipewright::stages::{DType, Place, Recompute};
use serde_json::json;

use crate::rate::Rates;
use crate::run::Given;
use crate::sizes::{Result, named};

#[derive(Debug, Parser)]
struct Arguments {
    /// A, B, C or D; or a GPT as JSON, with layers, dim, heads, context, vocab, rows and micro_batches.
    #[arg(long)]
    size: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write starting weights, batches and cuts for the peer.
    Prepare {
        #[command(flatten)]
        run: Run,
        /// The folder to write into.
        #[arg(long)]
        out: PathBuf,
    },
    /// Train.
    Train {
        #[command(flatten)]
        run: Run,
        /// Threads of each rank.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// A schedule's name; `auto:2` for two stages per rank.
        #[arg(long)]
        schedule: String,
        /// The numbers to compute in: f32 or bf16.
        #[arg(long, default_value = "f32", value_parser = dtype)]
        dtype: DType,
        /// Be one of several processes, each with one replica: the number of this one.
        #[arg(long, requires = "address")]
        process: Option<u32>,
        /// Where the first of these processes listens.
        #[arg(long)]
        address: Option<String>,
    },
    /// Measure the rate of matrix products.
    Rate {
        /// How many threads multiply at the same time.
        #[arg(long)]
        threads: usize,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// A file of text, or a folder with labelled images.
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    steps: u64,
    /// Ranks of a replica.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    #[arg(long, default_value_t = 1)]
    replicas: u32,
    /// Gradient groups of a batch [default: as many as usual for the replicas]
    #[arg(long)]
    groups: Option<u32>,
    /// Each replica updates only its part of the weights.
    #[arg(long)]
    sharded: bool,
    /// Shards of each rank.
    #[arg(long, default_value_t = 1)]
    shards: u32,
    /// Shard groups of the model [default: as many as shards]
    #[arg(long)]
    shard_groups: Option<u32>,
}

impl Run {
    fn of(self, size: &str) -> Result<Given> {
        Ok(Given {
            size: named(size)?,
            data: self.data,
            steps: self.steps,
            ranks: self.ranks,
            replicas: self.replicas,
            groups: self.groups.unwrap_or_else(|| GradientGroups::usual(self.replicas)),
            sharded: self.sharded,
            shards: self.shards,
            shard_groups: self.shard_groups.unwrap_or(self.shards),
            places: vec![Place::default()],
            recompute: Recompute::default(),
        })
    }
}

fn dtype(text: &str) -> std::result::Result<DType, String> {
    let mut formats = [DType::F32, DType::Bf16].into_iter();
    let named = formats.find(|dtype| dtype.to_string() == text);
    named.ok_or_else(|| "it must be f32 or bf16".to_owned())
}

fn answer(arguments: Arguments) -> Result<serde_json::Value> {
    let size = arguments.size.as_str();
    match arguments.command {
        Command::Prepare { run, out } => {
            run.of(size)?.prepare(&out)?;
            Ok(json!({ "out": out }))
        }
        Command::Train { run, threads, schedule, dtype, process, address } => {
            let join = |process| {
                let membership = Membership {
                    process,
                    processes: run.replicas,
                    address: address.unwrap_or_default(),
                    deadline: Duration::from_secs(30),
                    silence: Membership::SILENCE,
                    secret: None,
                    tls: false,
                    replaces: false,
                    fewest: run.replicas,
                };
                World::join(&membership, size)
            };
            let world = process.map(join).transpose()?;
            let mut given = run.of(size)?;
            given.places[0].dtype = dtype;
            given.train(&schedule, threads, world)
        }
        Command::Rate { threads: 0 } => Err("--threads 0 multiplies nothing: give 1 or more".into()),
        Command::Rate { threads } => {
            let rates = Rates::measure(&named(size)?, threads)?;
            let (best, mean) = (rates.best(), rates.mean());
            let shapes = rates.0.iter().map(|one| {
                let product = &one.product;
                json!({
                    "pass": format!("{:?}", product.pass),
                    "shape": [product.m, product.k, product.n],
                    "rate": one.rate,
                })
            });
            Ok(json!({ "best": best, "mean": mean, "shapes": shapes.collect::<Vec<_>>() }))
        }
    }
}

fn main() -> ExitCode {
    // `cargo bench` adds this argument itself.
    let arguments = std::env::args().filter(|argument| argument != "--bench");
    match answer(Arguments::parse_from(arguments)) {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
