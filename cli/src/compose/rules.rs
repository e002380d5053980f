//! What is trained of a model: adapters, and groups of parameters.

use std::collections::{BTreeMap, BTreeSet};

use glob::Pattern;
use pipewright::pretrained::SCORE;
use pipewright::stages::models::{Model, Rules, UnitContents};
use pipewright::stages::optimizer::Decay;
use pipewright::stages::{Lora, Quantisation, Training};

use crate::config::{Base, Config, Group};
use crate::error::{Result, ValueProblem};

/// The same model, in which the config says what is trained, and how the rest is stored: in the blocks that
/// the folder has, or else as `model.base` says.
///
/// # Errors
/// When a pattern fits no name.
pub(super) fn with_rules(config: &Config, model: Model, kinds: Kinds) -> Result<Model> {
    let quantisation = quantisation(config, kinds)?;
    if is_plain(config) {
        config.require(config.model.base == Base::AsItIs, "model.base", NOTHING_FROZEN)?;
        return Ok(model);
    }
    let targets = patterns(config, "lora.targets", &config.lora.targets)?;
    let groups = config.optimizer.groups.iter();
    let groups: Vec<(Vec<Pattern>, Group)> = groups
        .map(|group| {
            let patterns = patterns(config, "optimizer.groups", &group.parameters)?;
            Ok((patterns, group.clone()))
        })
        .collect::<Result<_>>()?;
    let chosen: Vec<Pattern> = groups.iter().flat_map(|(patterns, _)| patterns.clone()).collect();
    let model = model.with_rules(rules(config, targets.clone(), groups.clone(), quantisation));
    let contents = model.contents().map_err(|error| config.refuse("model", ValueProblem::caused(error)))?;
    if config.lora.rank > 0 {
        let names: Vec<String> = contents.iter().flat_map(|unit| unit.targets.clone()).collect();
        check(config, "lora.targets", &targets, &names)?;
    }
    let all = contents.iter().flat_map(|unit| &unit.parameters);
    let names: Vec<String> = all.map(|parameter| parameter.name.clone()).collect();
    let by_adamw = config.optimizer.by_adamw.iter().flatten();
    let by_adamw: Vec<Pattern> =
        by_adamw.map(|name| Pattern::new(&Pattern::escape(name)).expect("it is escaped")).collect();
    check(config, "optimizer.by_adamw", &by_adamw, &names)?;
    check(config, "optimizer.groups", &chosen, &names)?;
    require_decay(config, &groups, &contents)?;
    require_training(config, &contents)?;
    let mut parameters = contents.iter().flat_map(|unit| &unit.parameters);
    let is_stored = config.model.base == Base::AsItIs || parameters.any(|one| one.quantisation.is_some());
    config.require(is_stored, "model.base", || no_blocks(config.model.base))?;
    Ok(model)
}

/// The same model, frozen as a whole: its matrices are in the blocks that the folder has, or else as
/// `model.base` says.
///
/// # Errors
/// When `model.base` does not go with the folder.
pub(super) fn frozen(config: &Config, model: Model, kinds: Kinds) -> Result<Model> {
    let frozen = |_: &str| Training { frozen: true, ..Training::default() };
    let rules = Rules::default().with_training(frozen);
    Ok(model.with_rules(rules.with_quantisation(quantisation(config, kinds)?)))
}

/// Why a base is refused for a model whose matrices are too narrow.
fn no_blocks(base: Base) -> &'static str {
    match base {
        Base::Q4 => {
            "no frozen matrix has rows of whole blocks of 64 numbers: take \"q8\", which has blocks of 32"
        }
        _ => "no frozen matrix has rows of whole blocks of 32 numbers: leave it out",
    }
}

/// Why a base is refused for a model that is trained as a whole.
const NOTHING_FROZEN: fn() -> &'static str = || {
    "it is for matrices that are frozen, and all are trained: train adapters (`lora.rank`), freeze groups of \
     parameters, or leave it out"
};

/// In which blocks the folder of the model has its matrices, by their names.
pub(super) type Kinds = BTreeMap<String, Quantisation>;

/// In which blocks a frozen matrix is stored, by its name.
type Quantise = Box<dyn Fn(&str) -> Option<Quantisation> + Send + Sync>;

/// Chooses the blocks of a frozen matrix: as the folder has it, or as `model.base` says.
fn quantisation(config: &Config, kinds: Kinds) -> Result<Quantise> {
    let base = match config.model.base {
        Base::AsItIs => None,
        Base::Q8 => Some(Quantisation::Q8_0),
        Base::Q4 => Some(Quantisation::Nf4),
    };
    let is_divided = config.pipeline.shards > 1;
    let require =
        |holds: bool, why: &'static str| config.require(base.is_none() || holds, "model.base", || why);
    require(config.model.path.is_some(), "it is for the weights of model.path: give that, or leave it out")?;
    require(
        !is_divided,
        "matrices are not quantised where they are divided: set pipeline.shards = 1, or leave it out",
    )?;
    let is_wide = |kind: &Quantisation| matches!(kind, Quantisation::F16 | Quantisation::Bf16);
    require(
        kinds.values().all(is_wide),
        "the folder of model.path has its matrices in few bits already: leave it out",
    )?;
    let kinds = if is_divided { Kinds::new() } else { kinds };
    // An adapter of the head may bring a head of its own.
    let targets = patterns(config, "lora.targets", &config.lora.targets)?;
    let brings_head = config.lora.rank > 0 && fits(&targets, "lm_head");
    Ok(Box::new(move |name| {
        let is_outer = ["wte.weight", "wpe.weight", "lm_head.weight", SCORE].contains(&name);
        let is_own = Lora::is_adapter(name) || (brings_head && name == "lm_head.weight");
        let base = base.filter(|_| !is_outer);
        base.or_else(|| kinds.get(name).copied()).filter(|_| !is_own)
    }))
}

fn rules(
    config: &Config,
    targets: Vec<Pattern>,
    groups: Vec<(Vec<Pattern>, Group)>,
    quantisation: Quantise,
) -> Rules {
    let lora = Lora {
        rank: config.lora.rank,
        alpha: config.lora.alpha,
        dropout: config.lora.dropout as f32,
        seed: config.model.seed,
    };
    let has_adapters = lora.rank > 0;
    let gives_rewards = config.gives_rewards();
    let choose = move |target: &str| (has_adapters && fits(&targets, target)).then_some(lora);
    let training = move |name: &str| {
        let group = groups.iter().find(|(patterns, _)| fits(patterns, name));
        let group = group.map(|(_, group)| group.clone()).unwrap_or_default();
        // A group that names parameters trains them. No model of texts has the head of a reward model.
        let is_new = Lora::is_adapter(name) || (gives_rewards && name == SCORE);
        let frozen_by_default = has_adapters && !is_new && group.parameters.is_empty();
        Training {
            frozen: group.frozen.unwrap_or(frozen_by_default),
            rate: group.rate.unwrap_or(1.0),
            weight_decay: group.weight_decay,
        }
    };
    let settings = format!("{:?}, {:?}, {:?}", config.lora, config.optimizer.groups, config.model.base);
    let rules = Rules::default().with_lora(choose).with_training(training);
    rules.with_quantisation(quantisation).with_settings(settings)
}

/// Whether a config says nothing of what is trained, and names no parameter.
pub(super) fn is_plain(config: &Config) -> bool {
    let optimizer = &config.optimizer;
    config.lora.rank == 0 && optimizer.groups.is_empty() && optimizer.by_adamw.is_none()
}

fn fits(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

fn patterns(config: &Config, key: &str, texts: &[String]) -> Result<Vec<Pattern>> {
    let pattern = |text: &String| {
        Pattern::new(text).map_err(|error| {
            let problem = format!("`{text}` is no pattern: {}; write `*` for any text", error.msg);
            config.refuse(key, problem)
        })
    };
    texts.iter().map(pattern).collect()
}

/// Refuses a pattern that fits no name.
fn check(config: &Config, key: &str, patterns: &[Pattern], names: &[String]) -> Result<()> {
    let mut unused = patterns.iter().filter(|pattern| !names.iter().any(|name| pattern.matches(name)));
    match unused.next() {
        Some(pattern) => {
            let problem = format!("`{pattern}` fits nothing; there are {}", kinds_of(names).join(", "));
            Err(config.refuse(key, problem))
        }
        None => Ok(()),
    }
}

/// The names, with `*` for the numbers of blocks.
fn kinds_of(names: &[String]) -> Vec<String> {
    let kind = |name: &String| {
        let parts = name.split('.');
        let parts: Vec<&str> =
            parts.map(|part| if part.parse::<u32>().is_ok() { "*" } else { part }).collect();
        parts.join(".")
    };
    let mut seen = BTreeSet::new();
    let kinds = names.iter().map(kind);
    kinds.filter(|kind| seen.insert(kind.clone())).collect()
}

/// Refuses a weight decay of a group whose parameters `optimizer.decay` all leaves out.
fn require_decay(config: &Config, groups: &[(Vec<Pattern>, Group)], contents: &[UnitContents]) -> Result<()> {
    let matrices = contents.iter().flat_map(|unit| &unit.parameters).filter(|one| one.dims.len() >= 2);
    let decays = |group: &Group| group.weight_decay.is_some_and(|share| share > 0.0);
    let is_useless = |(patterns, group): &&(Vec<Pattern>, Group)| {
        decays(group) && !matrices.clone().any(|one| fits(patterns, &one.name))
    };
    match groups.iter().find(is_useless) {
        Some((_, group)) if config.optimizer.decay == Decay::Matrices => {
            let problem = format!(
                "the group of {} has a weight_decay, but no matrix, and optimizer.decay = \"matrices\" \
                 applies it to matrices only: set optimizer.decay = \"all\", or leave weight_decay out",
                group.parameters.join(", ")
            );
            Err(config.refuse("optimizer.groups", problem))
        }
        _ => Ok(()),
    }
}

/// Refuses a model without anything that is trained.
fn require_training(config: &Config, contents: &[UnitContents]) -> Result<()> {
    let trained =
        contents.iter().flat_map(|unit| &unit.parameters).any(|one| !one.is_frozen && one.numbers() > 0);
    config.require(trained, "optimizer.groups", || "every parameter is frozen: leave one to train")
}
