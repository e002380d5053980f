//! `pipewright tune`: finds the settings that train a config's model fastest within a memory limit.

mod confirm;
mod grid;
mod tuned;

use std::path::PathBuf;

use super::cuda_env;
use crate::compose;
use crate::config::{Config, Memory};
use crate::error::{Advice, CommandError};
use crate::{Error, Result};
use grid::{Found, Grid};
use tuned::Tuned;

/// Rows of the table, if fewer settings are run.
const SHOWN: usize = 10;

/// Find the settings that train a model fastest within a memory limit.
///
/// First measures what the model's layers cost, for every number of ranks and every size of a micro-batch
/// that divides the batch. Then predicts a step for every schedule, number of stages and number of
/// micro-batches. Then runs the best few for some steps.
///
/// The choice is made among the settings within 5 % of the fastest. It is the one that needs least memory,
/// and among equal ones the simplest schedule. Another number of micro-batches adds up the same batch in
/// another order, so the last bits of the weights differ.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pipewright tune my.toml
  pipewright tune my.toml --memory 20MiB --out tuned.toml
  pipewright train tuned.toml
For a first config, take the config.toml that `pipewright train` writes into runs/gpt-text."
)]
pub(super) struct Args {
    /// The config, a TOML file
    config: PathBuf,
    /// Set a key of the config; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    /// The most memory that a rank may hold for later backward passes, such as 200MiB [default: as much as a
    /// GPU has; no limit on the CPU]
    #[arg(long, value_name = "BYTES")]
    memory: Option<Memory>,
    /// Numbers of ranks to try, such as 2,4 [default: 1, 2, 4, ... up to the number of cores, or of GPUs in
    /// pipeline.devices]
    #[arg(long, value_name = "P", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// How many of the best predictions to run; with 0 the prediction decides
    #[arg(long, value_name = "N", default_value_t = 6)]
    top: usize,
    /// Where to write a config with the chosen settings; the costs are written beside it, in a file that ends
    /// in .costs.json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let tuned = args.out.as_deref().map(Tuned::check).transpose()?;
    let config = Config::load(&args.config, &args.sets).map_err(CommandError::refused)?;
    cuda_env::enter_for(&config);
    compose::check_measurable(&config)?;
    let mut grid = Grid::measure(&config, &ranks(&args.ranks, &config)?, args.memory)?;
    if grid.found.is_empty() {
        return Err(nothing_fits(grid, args.memory));
    }
    confirm::run(&mut grid, args.top)?;
    let Some(best) = grid.best() else {
        return Err(nothing_fits(grid, args.memory));
    };
    let run = args.top.min(grid.found.len());
    super::print(&(table(&grid, args, run.max(SHOWN)) + "chosen: " + &best.in_words()))?;
    match (&tuned, &args.out) {
        (Some(tuned), Some(out)) => {
            // A failure is printed on a line of its own.
            let written = tuned.write(best, &args.config, args.memory);
            let end = written.is_ok().then(|| format!("; written to {}", out.display()));
            super::print(&(end.unwrap_or_default() + "\n"))?;
            written
        }
        _ => super::print("; --out FILE writes it as a config\n"),
    }
}

/// The numbers of ranks to try.
fn ranks(given: &[u32], config: &Config) -> Result<Vec<u32>> {
    if given.contains(&0) {
        return Err(CommandError::NoRanks.into());
    }
    let layers = compose::model(config)?.names().len() as u32;
    let mut ranks = given.to_vec();
    if ranks.is_empty() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = match config.pipeline.devices.gpus().len() {
            0 => (cores / config.pipeline.threads_per_rank).max(1) as u32,
            gpus => gpus as u32,
        };
        ranks = (0..32)
            .map(|power| 1 << power)
            .take_while(|ranks| *ranks < most)
            .collect();
        ranks.push(most);
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks.retain(|ranks| *ranks <= layers);
    if ranks.is_empty() {
        return Err(CommandError::TooManyRanks { layers }.into());
    }
    Ok(ranks)
}

/// The error, with what would work instead.
fn nothing_fits(grid: Grid, memory: Option<Memory>) -> Error {
    let least = grid
        .least
        .map(|(least, setting)| format!("{} ({setting})", Memory::enough(least)));
    let advice = match (grid.starved, least) {
        (Some(error), _) => Advice::OutOfMemory(Box::new(error)),
        (None, Some(least)) if memory.is_some() => Advice::RaiseMemory { least },
        (None, Some(least)) => Advice::MoreGpus { least },
        (None, None) => Advice::OtherNumbers,
    };
    CommandError::NothingFits {
        limit: memory.map_or(String::new(), |memory| format!(" into {memory} on a rank")),
        advice,
    }
    .into()
}

fn table(grid: &Grid, args: &Args, rows: usize) -> String {
    let unit = grid.unit;
    let mut text = format!(
        "     ranks  schedule          chunks  micro-batches  rows  predicted s  {unit}/s  bubble    \
         peak MiB  measured s  {unit}/s\n"
    );
    for (place, found) in (1..).zip(&grid.found).take(rows) {
        text += &line(place, found, unit.len() + 2);
    }
    if grid.found.len() > rows {
        text += &format!("and {} more that are predicted slower\n", grid.found.len() - rows);
    }
    if grid.above > 0 {
        let limit = args
            .memory
            .map_or("its GPU's memory".to_owned(), |memory| memory.to_string());
        text += &format!("{} more would need over {limit} on a rank\n", grid.above);
    }
    text
}

fn line(place: usize, found: &Found, wide: usize) -> String {
    let (setting, prediction) = (&found.setting, &found.candidate.prediction);
    let measured = found.measured.map_or(String::new(), |seconds| {
        format!("  {seconds:>10.4}  {:>wide$.0}", found.rate(seconds))
    });
    format!(
        "{place:>3}. {:>5}  {:<16}  {:>6}  {:>13}  {:>4}  {:>11.4}  {:>wide$.0}  {:>5.1} %  \
         {:>9.2}{measured}\n",
        setting.ranks,
        setting.schedule,
        setting.chunks,
        setting.micro_batches,
        found.config.micro_batch_size(),
        prediction.step,
        found.rate(prediction.step),
        100.0 * prediction.bubble,
        prediction.peak_memory / f64::from(1 << 20),
    )
}
