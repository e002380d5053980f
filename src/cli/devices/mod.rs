//! `pipewright devices`: what stages can run on here.

mod json;
mod table;

use clap::ValueEnum;

use super::cuda_env;
use crate::Result;
use crate::profile::Cpu;
use crate::stages::devices::{Library, Report, probe};

/// Show what stages can run on: the cores, the GPUs, and the libraries that GPUs need.
///
/// The first column is what pipeline.devices takes. For each library: its version, and the file it is loaded from; where one is
/// missing or too old, what gets it. Exit status 0 whatever there is.
///
/// A library is taken from the folders in PIPEWRIGHT_CUDA_LIBS, then from where the system's loader looks (LD_LIBRARY_PATH first), then from
/// $CUDA_HOME/lib64, then from pip's packages (nvidia/*/lib in the site-packages of $VIRTUAL_ENV, of the python3 on the PATH, of pyenv's
/// Pythons, ~/.local, /usr/local and /usr), then from /usr/local/cuda/lib64. A command that needs them starts itself again with their
/// folders in LD_LIBRARY_PATH; a Rust program of one's own takes the `library_path` that --format json tells.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright devices
  pipewright devices --format json
  pipewright train examples/gpt-text.toml --set pipeline.devices=cuda:0")]
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
    let (cpu, report) = (Cpu::here(), probe());
    super::print(&match args.format {
        Format::Table => table::table(&cpu, &report),
        Format::Json => json::json(&cpu, &report)?,
    })
}

/// The packages of PyPI that bring what is missing or too old.
fn packages(report: &Report) -> Vec<&'static str> {
    let lacking = report.libraries.iter().filter(|found| found.problem().is_some());
    lacking
        .filter_map(|found| Library::package(found.library))
        .collect()
}
