//! `pipewright tune`: finds the settings that train a config's model fastest within a memory limit.

mod confirm;
mod dtypes;
mod formats;
mod grid;
mod search;
mod shapes;
mod tuned;
mod variant;

use std::path::PathBuf;

use super::cuda_env;
use super::plan::gpu::OnGpus;
use super::plan::links::Links;
use crate::config::{Config, Memory, OptimizerKind};
use crate::{Error, Result, compose};
use dtypes::Dtype;
use formats::Short;
use grid::{Found, Grid};
use pipewright::mesh::{MAX_RANKS, Map, Mesh};
use pipewright::stages::Device;
use pipewright::stages::optimizer::StateFormat;
use search::{CostsOf, Search};
use tuned::Tuned;
use variant::with_shards;

/// Rows of the table. Settings that were run have rows too.
const SHOWN: usize = 10;

/// Find the settings that train a model fastest within a memory limit.
///
/// First measures what the model's layers cost, for every number of ranks and every size of a micro-batch
/// that divides the batch. Then predicts a step for every number of replicas, schedule, number of stages and
/// number of micro-batches; with several replicas also with a sharded optimizer, on several hosts also with
/// both values of launch.map, and with a limit of memory also with recomputation. Where nothing else fits a
/// GPU, the optimizer's state is on the host. Then runs the best few for
/// some steps. Settings with more threads than this machine has cores share them: their steps are predicted
/// no shorter than all of the work on these cores.
///
/// The choice is made among the settings within 5 % of the fastest. It is the one that needs least memory,
/// and among equal ones the simplest schedule. Another number of micro-batches adds up the same batch in
/// another order, so the last bits of the weights differ. They also differ with another number of replicas,
/// unless pipeline.gradient_groups is set. If it is, it is raised for more replicas.
///
/// With --shards, it compares numbers of shards too, and says how long shards wait for each other. Another
/// number gives weights with other last bits, unless pipeline.shard_groups is set. If it is, it is raised for
/// more shards.
///
/// With --dtype any, all of this is done in f32 and in bf16. Costs and memory are measured for each. Another
/// number type changes all numbers of a training, its losses too: so tune takes the type of the config
/// unless it is asked for more.
///
/// With --smaller-state, AdamW's moments are stored in 16 bits if nothing fits with 32, and in 8 bits if
/// nothing fits with 16.
///
/// With --short-wires, what goes between hosts is also tried in fewer bytes (pipeline.wires, pipeline.sums).
/// That rounds, and so changes all numbers of a training. It is chosen where a step is 5 % faster at least.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pipewright tune my.toml
  pipewright tune my.toml --memory 20MiB --out tuned.toml
  pipewright tune my.toml --dtype any
  pipewright tune my.toml --costs costs.json --devices 16 --device-memory 8GB --hosts 4
  pipewright tune my.toml --device rtx4090 --devices 8 --hosts 4 --between-bandwidth 1.25GB
  pipewright tune my.toml --devices 2 --hosts 2 --between-bandwidth 12.5MB --short-wires
  pipewright train tuned.toml
For a first config, take the config.toml that `pipewright train` writes into runs/first."
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
    /// Numbers of ranks to try, such as 2,4 [default: 1, 2, 4, ... as long as each shard of each rank has a
    /// core, or a GPU in pipeline.devices]
    #[arg(long, value_name = "P", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// Numbers of replicas of the pipeline to try, such as 1,2,4 [default: as the config]
    #[arg(long, value_name = "D", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    replicas: Vec<u32>,
    /// Numbers of shards of a rank to try, such as 1,2,4 [default: as the config]
    #[arg(long, value_name = "T", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    shards: Vec<u32>,
    /// How many devices there are: tries all numbers of replicas and ranks (and of --shards) that use all of
    /// them [default with --device: one on each host]. If these many --device-memory are more than this
    /// machine has, nothing is run here
    #[arg(long, value_name = "N", conflicts_with_all = ["ranks", "replicas"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    devices: Option<u32>,
    #[command(flatten)]
    gpus: OnGpus,
    /// The most memory that a rank may hold in all: weights, gradients, the optimizer's state, what is kept
    /// for later backward passes, and buffers [default: that of --device, else no limit]
    #[arg(long, value_name = "BYTES")]
    device_memory: Option<Memory>,
    /// The number type to compute in; `any` tries both, and takes the better one [default: as the config]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Dtype>,
    /// If nothing fits, store AdamW's moments in fewer bits: in 16, then in 8 (optimizer.state)
    #[arg(long, conflicts_with = "costs")]
    smaller_state: bool,
    /// On several --hosts, also try activations and sums of gradients in fewer bits between them
    /// (pipeline.wires, pipeline.sums)
    #[arg(long)]
    short_wires: bool,
    /// Measured costs, a file written by profile; then nothing is measured and nothing is run here
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    #[command(flatten)]
    links: Links,
    /// How many of the best predictions to run, of each number type; with 0 the prediction decides
    #[arg(long, value_name = "N", default_value_t = 6)]
    top: usize,
    /// Where to write a config with the chosen settings; the costs are written beside it, in a file that ends
    /// in .costs.json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    if args.short_wires && !args.links.are_of_hosts() {
        return Err(Error::refused(
            "--short-wires: inside of a host nothing is faster in fewer bits: give --hosts, and how fast the \
             link between two of them is (--between-bandwidth)",
        ));
    }
    let tuned = args.out.as_deref().map(Tuned::check).transpose()?;
    let config = Config::load(&args.config, &args.sets).map_err(Error::not_begun)?;
    let (config, mut grid) = what_fits(args, config)?;
    // What is for other machines is not run here.
    let top = if grid.search.is_elsewhere() { 0 } else { args.top };
    confirm::run(&mut grid, top)?;
    let Some(best) = grid.best() else {
        return Err(nothing_fits(grid, &config)?);
    };
    let shards = shards(&grid)?;
    super::print(
        &(table(&grid)
            + &dtypes::compared(&grid)
            + &compared_formats(&grid)
            + &shards
            + "chosen: "
            + &best.in_words()),
    )?;
    match (&tuned, &args.out) {
        (Some(tuned), Some(out)) => {
            // A failure is printed on a line of its own.
            let written = tuned.write(best, &args.config, &grid.search);
            let end = written.is_ok().then(|| format!("; written to {}", out.display()));
            super::print(&(end.unwrap_or_default() + "\n"))?;
            written
        }
        _ => super::print("; --out FILE writes it as a config\n"),
    }
}

/// What fits, in as many bits for AdamW's moments as is possible; and the config of the search.
fn what_fits(args: &Args, config: Config) -> Result<(Config, Grid)> {
    let mut states = vec![config.optimizer.state];
    if args.smaller_state {
        let is_adamw = config.optimizer.kind == OptimizerKind::AdamW;
        config.require(
            is_adamw,
            "optimizer.kind",
            || "only adamw has moments in fewer bits (--smaller-state)",
        )?;
        // Blocks of numbers do not end where the groups of shards end.
        let has_groups = config.shard_groups() > 1 || args.shards.iter().any(|&shards| shards > 1);
        let smaller = [StateFormat::Bf16, StateFormat::Blocks];
        states.extend(smaller.into_iter().filter(|&state| {
            let is_smaller = config.optimizer.state == StateFormat::F32 || state == StateFormat::Blocks;
            is_smaller && state != config.optimizer.state && !(has_groups && state == StateFormat::Blocks)
        }));
    }
    let last = states.len() - 1;
    for (index, state) in states.into_iter().enumerate() {
        let mut config = config.clone();
        config.optimizer.state = state;
        let (config, search) = search(args, config)?;
        dtypes::introduce(&search.dtypes, &config);
        let grid = Grid::new(&config, search)?;
        if !grid.found.is_empty() {
            return Ok((config, grid));
        }
        if index == last {
            return Err(nothing_fits(grid, &config)?);
        }
        let word = match state {
            StateFormat::F32 => "f32",
            StateFormat::Bf16 => "bf16",
            StateFormat::Blocks => "8bit",
        };
        eprintln!("with optimizer.state = \"{word}\" nothing fits: fewer bits are tried");
    }
    unreachable!("the last state returns")
}

/// What is searched, and the config on the devices of the search.
fn search(args: &Args, mut config: Config) -> Result<(Config, Search)> {
    let gpu = args.gpus.kind.as_ref();
    let devices = match gpu {
        Some(_) if args.ranks.is_empty() && args.replicas.is_empty() => {
            Some(args.devices.unwrap_or(args.links.hosts()))
        }
        _ => args.devices,
    };
    let mut shapes = match devices {
        Some(devices) => shapes::of_devices(devices, &args.shards, &config)?,
        None => shapes::of(&args.replicas, &args.ranks, &args.shards, &config)?,
    };
    let costs = match (gpu, &args.costs) {
        (Some(gpu), _) => {
            let largest = shapes.iter().max_by_key(|sizes| sizes.map(u64::from).iter().product::<u64>());
            let largest = *largest.expect("checked: there are shapes");
            let world = Mesh::new(largest, 1, &[])?.world_size();
            config.pipeline.devices.0 = (0..world).map(Device::Cuda).collect();
            shapes.iter().try_for_each(|&[.., shards]| with_shards(&config, shards).check())?;
            if let Some(warning) = compose::unread(&config) {
                eprintln!("warning: {warning}");
            }
            CostsOf::Figures(gpu.clone())
        }
        (None, costs) => {
            cuda_env::enter_for(&config);
            compose::check_measurable(&config)?;
            costs.clone().map_or(CostsOf::Measured, CostsOf::File)
        }
    };
    let device_memory = args.device_memory.or(gpu.map(|gpu| Memory::of(gpu.memory as u64)));
    shapes.retain(|&[replicas, ..]| replicas as usize <= shapes::most_micro_batches(&config, &costs));
    if shapes.is_empty() {
        return Err(Error::refused(format!("nothing fits: {}", shapes::others(&config, &costs)?)));
    }
    let is_beyond = match (devices, &costs) {
        (Some(devices), CostsOf::Measured) => shapes::are_beyond(devices, device_memory, &config)?,
        _ => false,
    };
    let search = Search {
        shapes,
        memory: args.memory,
        device_memory,
        links: args.links,
        dtypes: dtypes::wanted(args.dtype, args.costs.is_some(), &config)?,
        costs,
        shortens: args.short_wires,
        is_beyond,
        cores: shapes::cores(),
    };
    Ok((config, search))
}

/// The error, with what would work instead.
fn nothing_fits(grid: Grid, config: &Config) -> Result<Error> {
    let search = grid.search;
    let memory = search.device_memory.or(search.memory);
    let least = grid.least.map(|(least, setting)| format!("{} ({setting})", Memory::enough(least)));
    let advice = match (grid.starved, least) {
        (Some(error), _) => error.to_string(),
        (None, Some(least)) if search.device_memory.is_some() => {
            format!("the least that was found is {least}: raise --device-memory, or take more --devices")
        }
        (None, Some(least)) if memory.is_some() => {
            format!("the least that works is {least}: raise --memory")
        }
        (None, Some(least)) => format!(
            "a rank has to hold at least {least}, more than its GPU has: take more GPUs (pipeline.devices), \
             or recompute (pipeline.recompute)"
        ),
        (None, None) => shapes::others(config, &search.costs)?,
    };
    let limit = memory.map_or(String::new(), |memory| format!(" into {memory} on a rank"));
    Ok(Error::refused(format!("nothing fits{limit}: {advice}")))
}

/// The formats of what goes between hosts, in the settings that fit.
fn formats_of(grid: &Grid) -> Vec<Short> {
    formats::all(grid.found.iter().map(|found| &found.config))
}

/// Whether settings with several formats of what goes between hosts fit.
fn has_several_formats(grid: &Grid) -> bool {
    formats_of(grid).len() > 1
}

/// A line for each pair of formats with its fastest setting, if there are several.
fn compared_formats(grid: &Grid) -> String {
    let all = formats_of(grid);
    let line = |short: &Short| {
        let with = grid.found.iter().filter(|found| formats::of(&found.config) == *short);
        let fastest = with.min_by(|a, b| a.seconds().total_cmp(&b.seconds())).expect("one has them");
        let (wires, sums) = short;
        format!("wires {wires}, sums {sums}: {:.4} s: {}\n", fastest.seconds(), fastest.in_words())
    };
    all.iter().filter(|_| all.len() > 1).map(line).collect()
}

/// In words: whether shards pay, if several numbers of them were compared. All times are predicted.
fn shards(grid: &Grid) -> Result<String> {
    let mut numbers: Vec<u32> = grid.found.iter().map(Found::shards).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let fastest = |shards: u32| {
        let with = grid.found.iter().filter(|found| found.shards() == shards);
        with.min_by(|a, b| a.predicted().total_cmp(&b.predicted())).expect("there is one with this number")
    };
    let mut text = String::new();
    for pair in numbers.windows(2) {
        let [few, many] = [fastest(pair[0]), fastest(pair[1])];
        let waits = 100.0 * many.share_of_shard_waits(grid)?;
        let [with, without] = [many, few].map(|found| Memory::of(found.memory as u64));
        let ratio = many.predicted() / few.predicted();
        let (factor, word) = if ratio < 1.0 { (1.0 / ratio, "faster") } else { (ratio, "slower") };
        text += &format!(
            "shards: the fastest setting with {} is predicted {factor:.2} times {word} than the fastest \
             with {}: a shard waits {waits:.0} % of a step for the others, and holds {with} instead of \
             {without}\n",
            pair[1], pair[0]
        );
    }
    Ok(text)
}

fn table(grid: &Grid) -> String {
    let unit = grid.unit;
    let map = if grid.search.links.are_of_hosts() { "  map     " } else { "" };
    let dtype = if grid.dtypes().len() > 1 { "  type" } else { "" };
    let wires = if has_several_formats(grid) { "  wires  sums" } else { "" };
    let shards = if grid.found.iter().any(|found| found.shards() > 1) { "  shards" } else { "" };
    let offloads = |found: &Found| found.config.pipeline.offload.is_some();
    let offload = if grid.found.iter().any(offloads) { "  offload" } else { "" };
    let keeps = |found: &Found| found.config.optimizer.state_on_host;
    let state = if grid.found.iter().any(keeps) { "  state on host" } else { "" };
    let mut text = format!(
        "     replicas  ranks{shards}  schedule          chunks  micro-batches  rows  recompute  \
         sharded{offload}{state}{map}{wires}{dtype}  predicted s  {unit}/s  bubble    peak MiB  memory MiB  \
         measured s  {unit}/s\n"
    );
    let rows = (1..).zip(&grid.found);
    let rows: Vec<(usize, &Found)> =
        rows.filter(|(place, found)| *place <= SHOWN || found.measured.is_some()).collect();
    for (place, found) in &rows {
        let columns = [shards, offload, state, map, wires, dtype].map(|title| !title.is_empty());
        text += &line(*place, found, unit.len() + 2, columns);
    }
    if grid.found.len() > rows.len() {
        let more = grid.found.len() - rows.len();
        text += &format!("and {more} more that are predicted slower\n");
    }
    if grid.above > 0 {
        let limit = grid.search.device_memory.or(grid.search.memory);
        let limit = limit.map_or("its GPU's memory".to_owned(), |memory| memory.to_string());
        text += &format!("{} more would need over {limit} on a rank\n", grid.above);
    }
    text
}

/// A row of the table, with columns for shards, for offload, for state on the host, for the map, for the
/// formats of wires and sums, and for the number type where they are wanted.
fn line(
    place: usize,
    found: &Found,
    wide: usize,
    [has_shards, has_offload, has_state, has_map, has_wires, has_dtype]: [bool; 6],
) -> String {
    let (setting, prediction) = (&found.setting, &found.candidate.prediction);
    let measured = found
        .measured
        .map_or(String::new(), |seconds| format!("  {seconds:>10.4}  {:>wide$.0}", found.rate(seconds)));
    let shards = match has_shards {
        true => format!("  {:>6}", found.shards()),
        false => String::new(),
    };
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" };
    let offload = match has_offload {
        true => format!("  {:>7}", yes_or_no(found.config.pipeline.offload.is_some())),
        false => String::new(),
    };
    let state = match has_state {
        true => format!("  {:>13}", yes_or_no(found.config.optimizer.state_on_host)),
        false => String::new(),
    };
    let map = match (has_map, found.config.launch.map) {
        (false, _) => "",
        (true, Map::Pipeline) => "  pipeline",
        (true, Map::Replicas) => "  replicas",
    };
    let pipeline = &found.config.pipeline;
    let wires = match has_wires {
        true => format!("  {:<5}  {:<4}", pipeline.wires.to_string(), pipeline.sums.to_string()),
        false => String::new(),
    };
    let dtype = match has_dtype {
        true => format!("  {:<4}", found.config.pipeline.dtype.to_string()),
        false => String::new(),
    };
    let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
    format!(
        "{place:>3}. {:>8}  {:>5}{shards}  {:<16}  {:>6}  {:>13}  {:>4}  {:>9}  \
         {:>7}{offload}{state}{map}{wires}{dtype}  {:>11.4}  {:>wide$.0}  {:>5.1} %  {:>9.2}  \
         {:>10.2}{measured}\n",
        setting.replicas,
        setting.ranks,
        setting.schedule,
        setting.chunks,
        setting.micro_batches,
        found.config.micro_batch_size(),
        variant::recompute_word(&found.config),
        yes_or_no(found.config.optimizer.sharded),
        prediction.step,
        found.rate(prediction.step),
        100.0 * prediction.bubble,
        mebibytes(prediction.peak_memory),
        mebibytes(found.memory),
    )
}
