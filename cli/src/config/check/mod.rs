//! Checks values that have the right type but are not possible.

mod limits;
mod pairs;
mod places;
mod privacy;
mod short;

use std::path::PathBuf;

use super::key::is_below_1;
use super::keys;
use super::sources;
use super::tree::is_stronger;
use super::values::{Balanced, Partition, Paths};
use super::{Config, DataKind, LearningRateSchedule, ReplanBy, SyncKind};
use crate::error::Result;
use pipewright::data::{Longer, Packing, Share};
use pipewright::stages::optimizer::StateFormat;

/// If two keys set the same thing, the one from the stronger source counts.
pub(super) fn reconcile(config: &mut Config) -> Result<()> {
    sources::reconcile(config)?;
    pairs::reconcile(config);
    if config.pipeline.batch_size.is_some()
        && overrides(config, "pipeline.micro_batch_size", "pipeline.batch_size")
    {
        config.pipeline.batch_size = None;
    }
    if overrides(config, "pipeline.batch_size", "pipeline.micro_batch_size") {
        config.pipeline.micro_batch_size = None;
    }
    if let Partition::Lists(lists) = &config.pipeline.partition {
        if overrides(config, "pipeline.stages", "pipeline.partition") {
            config.pipeline.partition = Partition::Named(Balanced::Balanced);
        } else if !config.origins.contains_key("pipeline.stages")
            || overrides(config, "pipeline.partition", "pipeline.stages")
        {
            config.pipeline.stages = lists.len();
        }
    }
    Ok(())
}

impl Config {
    /// Refuses a config whose settings do not fit each other, after some were changed.
    ///
    /// # Errors
    /// When they do not fit. The error names the key.
    pub fn check(&self) -> Result<()> {
        check(self)
    }
}

/// Refuses everything that can be known to fail without the data.
pub(super) fn check(config: &Config) -> Result<()> {
    bounds(config)?;
    limits::check(config)?;
    limits::check_model(config)?;
    longer(config)?;
    match config.data.sources.is_empty() {
        true => data(config)?,
        false => sources::check(config, &|one| bounds(one).and_then(|()| data(one)))?,
    }
    pairs::check(config)?;
    pipeline(config)?;
    privacy::check(config)?;
    optimizer(config)?;
    lora(config)?;
    groups(config)?;
    places::of_copies(config)?;
    train(config)?;
    launch(config)
}

/// Whether both keys were set, the first by a stronger source.
fn overrides(config: &Config, key: &str, than: &str) -> bool {
    match (config.origins.get(key), config.origins.get(than)) {
        (Some(key), Some(than)) => is_stronger(key, than),
        _ => false,
    }
}

/// The bounds of each key that counts.
fn bounds(config: &Config) -> Result<()> {
    let table = config.counting()?;
    for (section, key) in keys::all() {
        let value = table.get(section).and_then(|values| values.get(key.name));
        if let Some(problem) = value.and_then(|value| key.problem(value)) {
            return Err(config.refuse(&format!("{section}.{}", key.name), problem));
        }
    }
    Ok(())
}

/// Refuses `data.longer` where no documents are kept apart.
fn longer(config: &Config) -> Result<()> {
    let are_apart = |one: &Config| matches!(one.packing(), Some(Packing::Apart(_)));
    let mut all: Vec<Config> = (0..config.data.sources.len()).map(|place| config.of_source(place)).collect();
    if all.is_empty() {
        all.push(config.clone());
    }
    // What `[data]` says is for those sources that keep documents apart.
    let some_are = all.iter().any(are_apart);
    let is_of_all = |one: &Config| one.origins.get(LONGER) == config.origins.get(LONGER);
    let mut unused = all.iter().filter(|one| one.data.longer != Longer::Cut && !are_apart(one));
    unused.find(|one| !(some_are && is_of_all(one))).map_or(Ok(()), |one| {
        Err(one.refuse(
            LONGER,
            "only documents that are kept apart can be left out or refused: set data.packing to \"apart\"",
        ))
    })
}

const LONGER: &str = "data.longer";

fn data(config: &Config) -> Result<()> {
    let data = &config.data;
    let takes_images = !config.reads_tokens();
    config.require(takes_images == data.kind.has_images(), "data.kind", || {
        let model = config.model.kind.name();
        let (takes, to) = match takes_images {
            true => ("images", "to \"idx\" or \"cifar10\""),
            false => ("tokens", "to \"text\", \"tokens\", \"jsonl\" or \"parquet\""),
        };
        format!("a model of kind \"{model}\" takes {takes}: set data.kind {to}")
    })?;
    let in_program = |path: &PathBuf| path.to_string_lossy().starts_with(Paths::IN_PROGRAM);
    let is_built_in = data.path.is_built_in() && data.kind == DataKind::Text;
    config.require(is_built_in || !data.path.0.iter().any(in_program), "data.path", || {
        format!("the only built-in data is \"{}\": give it alone, with data.kind = \"text\"", Paths::BUILT_IN)
    })?;
    places::of_data(config)?;
    tokenizer(config)?;
    match data.validation {
        Share::Fraction(fraction) => config.require(is_below_1(fraction), "data.validation", || {
            format!("{fraction} is neither a fraction from 0 to below 1 nor a whole number of tokens or rows")
        }),
        Share::Count(_) => Ok(()),
    }
}

/// What is said of documents without a tokenizer.
pub(crate) const NO_TOKENIZER: &str =
    "documents become tokens: name the tokenizer.json of the model, or the folder that has it";

/// Refuses documents without a tokenizer, or without a reader.
fn tokenizer(config: &Config) -> Result<()> {
    let data = &config.data;
    let is_set = data.tokenizer.is_some();
    let needed = matches!(data.kind, DataKind::Jsonl | DataKind::Parquet);
    config.require(is_set || !needed, "data.tokenizer", || NO_TOKENIZER)?;
    let has_parquet = cfg!(feature = "parquet") || data.kind != DataKind::Parquet;
    config.require(has_parquet, "data.kind", || {
        "this program was built without the cargo feature `parquet`: build it with `cargo build --release \
         --features parquet`, or write the data as JSON lines (\"jsonl\")"
    })
}

fn pipeline(config: &Config) -> Result<()> {
    let pipeline = &config.pipeline;
    if let Some(batch) = pipeline.batch_size {
        batch_size(config, batch)?;
    }
    config.check_groups()?;
    config.check_shards()?;
    staleness(config)?;
    replan(config)?;
    barrier(config)?;
    config.check_short()?;
    let Partition::Lists(lists) = &pipeline.partition else {
        return Ok(());
    };
    let (has, advice) = (lists.len(), "one list a stage");
    config.require_each("pipeline.partition", has, pipeline.stages, advice)
}

/// Refuses stale weights where they cannot be.
fn staleness(config: &Config) -> Result<()> {
    let model = &config.model;
    let why = match config.max_staleness() {
        0 => return Ok(()),
        _ if model.kind.takes_tokens() && model.tied && !config.gives_rewards() => {
            "in a model with tied parameters (model.tied), whose copies must stay equal"
        }
        _ if config.pipeline.devices.has_gpu() => "on a GPU, only on cpu",
        _ => return Ok(()),
    };
    let problem =
        format!("weights may not be stale {why}: set this to 0, or take pipeline.sync = \"reduce\"");
    Err(config.refuse("pipeline.max_staleness", problem))
}

/// Refuses steps without a barrier where a step cannot be taken back.
fn barrier(config: &Config) -> Result<()> {
    let pipeline = &config.pipeline;
    let is_served = pipeline.replicas > 1 && pipeline.sync == SyncKind::Server;
    let (what, advice) = match pipeline.barrier {
        true => return Ok(()),
        _ if pipeline.devices.has_gpu() => ("ranks on GPUs", "pipeline.devices = \"cpu\""),
        _ if is_served => ("a parameter server", "pipeline.sync = \"reduce\""),
        _ if config.is_private() => ("a training with privacy.clip", "no privacy.clip"),
        _ if config.train.restarts > 0 => {
            ("ranks that are built again after a failure", "train.restarts = 0")
        }
        _ => return Ok(()),
    };
    let problem = format!("{what} cannot train without a barrier: set {advice}, or this to true");
    Err(config.refuse("pipeline.barrier", problem))
}

/// Refuses to cut a model elsewhere where layers cannot go to other ranks.
fn replan(config: &Config) -> Result<()> {
    if config.pipeline.replan == ReplanBy::Off {
        return Ok(());
    }
    let require = |holds: bool, why: &'static str| config.require(holds, "pipeline.replan", || why);
    require(
        config.max_staleness() == 0,
        "weights that may be stale differ between replicas: set pipeline.max_staleness to 0, or this to \
         \"off\"",
    )?;
    require(
        !config.pipeline.devices.are_mixed(),
        "a layer has other bits on a GPU than on the CPU: take one kind of devices, or set this to \"off\"",
    )
}

/// Refuses a batch that does not fit the micro-batches and their rows.
fn batch_size(config: &Config, batch: usize) -> Result<()> {
    let micro_batches = config.pipeline.micro_batches as usize;
    config.require(batch.is_multiple_of(micro_batches), "pipeline.batch_size", || {
        let each = batch / micro_batches;
        format!(
            "a batch of {batch} cannot be divided into {micro_batches} micro-batches: take {} or {} rows, or \
             another pipeline.micro_batches",
            each.max(1) * micro_batches,
            (each + 1) * micro_batches
        )
    })?;
    let given = config.pipeline.micro_batch_size;
    let holds = given.is_none_or(|given| given == batch / micro_batches);
    config.require(holds, "pipeline.micro_batch_size", || {
        format!(
            "a batch of {batch} over pipeline.micro_batches {micro_batches} makes {} each: set this or \
             pipeline.batch_size",
            batch / micro_batches
        )
    })
}

/// What is said of an optimizer whose updates replicas cannot share.
const WHOLE: &str = "adafactor and muon update whole parameters only, so replicas cannot divide their \
                     updates: take pipeline.sync = \"reduce\" and optimizer.sharded = false, or \
                     optimizer.kind \"adamw\", \"lion\" or \"sgd\"";

fn optimizer(config: &Config) -> Result<()> {
    let optimizer = &config.optimizer;
    let whole = optimizer.needs_whole_parameters();
    config.require(!(whole && optimizer.sharded), "optimizer.sharded", || WHOLE)?;
    let sharded = optimizer.sharded && !optimizer.may_be_sharded();
    config.require(!sharded, "optimizer.sharded", || {
        "sgd without momentum has no state to divide among replicas: set this to false, or \
         optimizer.momentum above 0"
    })?;
    let server = config.pipeline.replicas > 1 && config.pipeline.sync == SyncKind::Server;
    config.require(!(whole && server), "pipeline.sync", || WHOLE)?;
    shards(config, whole, server)?;
    match optimizer.schedule {
        LearningRateSchedule::Constant => Ok(()),
        LearningRateSchedule::Cosine | LearningRateSchedule::Linear => falling(config, 0),
        LearningRateSchedule::Wsd => falling(config, optimizer.decay_steps),
    }
}

/// Refuses what cannot be divided among shards.
fn shards(config: &Config, whole: bool, server: bool) -> Result<()> {
    let in_blocks = config.optimizer.state == StateFormat::Blocks;
    config.require(!(in_blocks && config.shard_groups() > 1), "optimizer.state", || {
        "\"8bit\" has a scale for 128 numbers, and a group of shards ends anywhere: take \"bf16\" or \
         \"f32\", or set pipeline.shards and pipeline.shard_groups to 1"
    })?;
    if config.pipeline.shards == 1 {
        return Ok(());
    }
    config.require(!whole, "optimizer.kind", || {
        "adafactor and muon update whole parameters only, and a shard has parts of them: take \"adamw\", \
         \"lion\" or \"sgd\", or pipeline.shards = 1"
    })?;
    config.require(
        !server,
        "pipeline.sync",
        || "a server has parts of the weights itself: take \"reduce\", or pipeline.shards = 1",
    )
}

/// `decay` is the number of steps that the schedule itself reserves for the fall.
fn falling(config: &Config, decay: u64) -> Result<()> {
    let optimizer = &config.optimizer;
    let (floor, steps) = (optimizer.min_learning_rate, config.train.steps);
    let holds = (0.0..=optimizer.learning_rate).contains(&floor);
    config.require(holds, "optimizer.min_learning_rate", || {
        format!("{floor} is not allowed: it must be from 0 to optimizer.learning_rate")
    })?;
    let warmup = optimizer.warmup_steps;
    config.require(warmup <= steps, "optimizer.warmup_steps", || {
        format!("{warmup} steps of warm-up do not fit into train.steps = {steps}: lower it or train longer")
    })?;
    let stable = steps - warmup;
    config.require(decay <= stable, "optimizer.decay_steps", || {
        format!(
            "{decay} steps of decay after {warmup} of warm-up do not fit into train.steps = {steps}: lower \
             it or train longer"
        )
    })
}

fn lora(config: &Config) -> Result<()> {
    let lora = &config.lora;
    if lora.rank == 0 {
        let set = |key: &str| config.origins.contains_key(key) && !overrides(config, "lora.rank", key);
        let keys = ["lora.path", "lora.targets", "lora.alpha", "lora.dropout"];
        return match keys.iter().find(|key| set(key)) {
            Some(key) => {
                Err(config.refuse(key, "there are no adapters: set lora.rank too, for example to 8"))
            }
            None => Ok(()),
        };
    }
    let has_model = config.model.path.is_some() && config.model.kind.takes_tokens();
    let has_model = lora.path.is_none() || has_model;
    config.require(
        has_model,
        "lora.path",
        || "adapters belong to a model: set model.path too, to its folder in Hugging Face's form",
    )?;
    let named = !lora.targets.is_empty();
    config.require(
        named,
        "lora.targets",
        || "names no layer: give patterns such as [\"*.attn.q\", \"*.attn.v\"]",
    )
}

fn groups(config: &Config) -> Result<()> {
    for group in &config.optimizer.groups {
        let named = !group.parameters.is_empty();
        config.require(
            named,
            "optimizer.groups",
            || "a group names no parameters: give it some, such as parameters = [\"h.0.*\"]",
        )?;
        for value in [group.rate, group.weight_decay].into_iter().flatten() {
            config.require(value >= 0.0 && value.is_finite(), "optimizer.groups", || {
                format!("{value} is not allowed: rate and weight_decay must be 0 or more")
            })?;
        }
    }
    Ok(())
}

fn train(config: &Config) -> Result<()> {
    let name = &config.train.name;
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']);
    config.require(plain, "train.name", || {
        format!("\"{name}\" cannot name a folder: use a name without slashes that does not start with a dot")
    })
}

fn launch(config: &Config) -> Result<()> {
    let replaces = config.launch.fewest.is_none() || config.train.restarts > 0;
    config.require(replaces, "launch.fewest", || {
        "without train.restarts a lost process ends the run: set train.restarts to how often that may happen"
            .to_owned()
    })?;
    let Some(address) = &config.launch.address else {
        return Ok(());
    };
    let is_whole = |address: &str| {
        let parts = address.rsplit_once(':');
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    };
    let wrong = address.split(',').map(str::trim).find(|address| !is_whole(address));
    config.require(wrong.is_none(), "launch.address", || {
        let wrong = wrong.unwrap_or_default();
        format!("\"{wrong}\" is not a host and port: write \"host:port\", such as \"127.0.0.1:29500\"")
    })
}
