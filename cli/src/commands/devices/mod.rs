//! `pipewright devices`: the devices of this machine.

mod json;
mod table;

use clap::ValueEnum;

use super::cuda_env;
use crate::Result;
use crate::profile::Cpu;
use pipewright::stages::devices::{Library, Report, pairs, probe};

/// Show the devices on which stages can run: the cores, the GPUs, and the libraries that GPUs need.
///
/// The first column is the device's name for pipeline.devices. For each library you see its version and its
/// file. If one is missing or too old, the output says how to install it. The exit status is always 0.
///
/// With several GPUs you also see how fast each copies from each other one, measured now. By such copies
/// ranks of one process send each other activations and gradients.
///
/// Libraries are searched for in this order: the folders in PIPEWRIGHT_CUDA_LIBS; where the system's loader
/// looks (LD_LIBRARY_PATH first); $CUDA_HOME/lib64; pip's packages (nvidia/*/lib in the site-packages of
/// $VIRTUAL_ENV, of the python3 on the PATH, of pyenv's Pythons, of ~/.local, /usr/local and /usr);
/// /usr/local/cuda/lib64. A command that needs them restarts itself with their folders in LD_LIBRARY_PATH.
/// For your own Rust program, set LD_LIBRARY_PATH to the `library_path` that --format json prints.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright devices
  pipewright devices --format json
  pipewright train --set pipeline.devices=cuda:0")]
pub(super) struct Args {
    /// A table for people, or JSON for scripts
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(super) fn run(args: &Args) -> Result<()> {
    cuda_env::enter();
    let (cpu, report, pairs) = (Cpu::here(), probe(), pairs());
    super::print(&match args.format {
        Format::Table => table::table(&cpu, &report, &pairs),
        Format::Json => json::json(&cpu, &report, &pairs)?,
    })
}

/// The packages on PyPI that contain what is missing or too old.
fn packages(report: &Report) -> Vec<&'static str> {
    let lacking = report.libraries.iter().filter(|found| found.problem().is_some());
    lacking.filter_map(|found| Library::package(found.library)).collect()
}
