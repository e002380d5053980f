//! Which modules of a model have adapters, by PEFT's rule.

use std::collections::{BTreeMap, BTreeSet};

use fancy_regex::Regex;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::pretrained::architecture::Base;
use crate::pretrained::families::{gpt2, llama};
use crate::pretrained::json::Json;

/// The head, which is in no block and has one name.
pub(super) const HEAD: &str = "lm_head";

/// What PEFT takes for all linear layers but the head.
const ALL: &str = "all-linear";

const MODULES: &str = "target_modules";
const EXPECTED: &str = "a list of names, `all-linear`, or a regular expression";

/// How the modules of a block are called: ours and theirs.
#[derive(Clone, Copy)]
pub(super) struct Names {
    blocks: &'static str,
    linear: &'static [(&'static str, &'static str)],
    /// Those that PEFT takes if a folder names none.
    usual: &'static [&'static str],
}

/// A linear layer.
struct Module {
    ours: String,
    theirs: String,
    /// Its block, and our name of it there.
    place: Option<(usize, &'static str)>,
}

impl Names {
    /// The targets of a kind of model, by its name in a config.
    pub(super) fn of(kind: &str) -> Self {
        match kind {
            "gpt" => Self { blocks: gpt2::BLOCKS, linear: gpt2::LINEAR, usual: &["c_attn"] },
            _ => Self {
                blocks: llama::BLOCKS,
                linear: match kind {
                    "mixtral" => &llama::LINEAR[..llama::OF_ATTENTION],
                    _ => llama::LINEAR,
                },
                usual: &["q_proj", "v_proj"],
            },
        }
    }

    /// Their name of a layer with our name, such as `h.0.attn.q`.
    pub(super) fn theirs(self, target: &str) -> Option<String> {
        if target == HEAD {
            return Some(HEAD.to_owned());
        }
        let (block, layer) = target.strip_prefix("h.")?.split_once('.')?;
        let (_, theirs) = self.linear.iter().find(|(ours, _)| *ours == layer)?;
        Some(format!("{}{block}.{theirs}", self.blocks))
    }

    fn modules(self, blocks: usize) -> Vec<Module> {
        let in_block = |block: usize| {
            self.linear.iter().map(move |(ours, theirs)| Module {
                ours: format!("h.{block}.{ours}"),
                theirs: format!("{}{block}.{theirs}", self.blocks),
                place: Some((block, *ours)),
            })
        };
        let head = Module { ours: HEAD.to_owned(), theirs: HEAD.to_owned(), place: None };
        (0..blocks).flat_map(in_block).chain([head]).collect()
    }

    /// Patterns of our names for these modules: one for a layer that has an adapter in all blocks.
    fn patterns(self, chosen: &[&Module], blocks: usize) -> Vec<String> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for (_, layer) in chosen.iter().filter_map(|module| module.place) {
            *counts.entry(layer).or_default() += 1;
        }
        let pattern = |module: &&Module| match module.place {
            Some((_, layer)) if counts[layer] == blocks => format!("h.*.{layer}"),
            _ => module.ours.clone(),
        };
        let patterns: BTreeSet<String> = chosen.iter().map(pattern).collect();
        patterns.into_iter().collect()
    }
}

/// What a key says of modules.
enum Wanted<'a> {
    Names(Vec<&'a str>),
    Pattern(Box<Regex>),
}

impl<'a> Wanted<'a> {
    fn read(json: Json<'a>, key: &str) -> Result<Option<Self>> {
        let wanted = match json.get(key) {
            None => return Ok(None),
            Some(Value::Array(list)) => {
                list.iter().map(Value::as_str).collect::<Option<_>>().map(Self::Names)
            }
            Some(Value::String(text)) => {
                let whole = Regex::new(&format!(r"\A(?:{text})\z"));
                whole.ok().map(|whole| Self::Pattern(Box::new(whole)))
            }
            Some(_) => None,
        };
        json.require(wanted.is_some(), key, EXPECTED)?;
        Ok(wanted)
    }

    fn fits(&self, module: &Module) -> bool {
        match self {
            Self::Names(names) => names.iter().any(|name| is_end(name, module)),
            // A pattern with too many ways to fit is none that PEFT finishes with either.
            Self::Pattern(pattern) => pattern.is_match(&module.theirs).unwrap_or(false),
        }
    }
}

/// Whether a name is a module's, or the end of it.
fn is_end(name: &str, module: &Module) -> bool {
    let start = module.theirs.strip_suffix(name);
    start.is_some_and(|start| start.is_empty() || start.ends_with('.'))
}

/// Patterns of our names for the modules that have adapters.
///
/// # Errors
/// When it is not clear which these are, or the model has no such modules.
pub(super) fn targets(json: Json<'_>, base: Base<'_>) -> Result<Vec<String>> {
    let names = Names::of(base.kind);
    let modules = names.modules(base.blocks);
    let is_all = json.get(MODULES).and_then(Value::as_str);
    let wanted = match is_all.is_some_and(|word| word.eq_ignore_ascii_case(ALL)) {
        true => Wanted::Names(names.linear.iter().map(|(_, theirs)| *theirs).collect()),
        false => Wanted::read(json, MODULES)?.unwrap_or(Wanted::Names(names.usual.to_vec())),
    };
    if let Wanted::Names(list) = &wanted {
        known(json, names, &modules, list)?;
    }
    let excluded = Wanted::read(json, "exclude_modules")?;
    let blocks = blocks(json, names, &wanted)?;
    let is_chosen = |module: &&Module| {
        let is_whole = matches!(&wanted, Wanted::Names(list) if list.contains(&&*module.theirs));
        let is_excluded = excluded.as_ref().is_some_and(|wanted| wanted.fits(module));
        let in_block = blocks.as_ref().is_none_or(|blocks| {
            let place = module.place;
            is_whole || place.is_some_and(|(block, _)| blocks.contains(&(block as u64)))
        });
        wanted.fits(module) && in_block && !is_excluded
    };
    let chosen: Vec<&Module> = modules.iter().filter(is_chosen).collect();
    json.require(!chosen.is_empty(), MODULES, "of modules of this model, which are not all excluded")?;
    let has_head = chosen.iter().any(|module| module.ours == HEAD);
    json.require(
        !(has_head && base.tied),
        MODULES,
        "without lm_head, which has the weights of the token embedding in this model",
    )?;
    Ok(names.patterns(&chosen, base.blocks))
}

/// Refuses a name that fits nothing.
fn known(json: Json<'_>, names: Names, modules: &[Module], list: &[&str]) -> Result<()> {
    let fits = |name: &str| modules.iter().any(|module| is_end(name, module));
    match list.iter().find(|name| !fits(name)) {
        Some(module) => {
            let known: Vec<_> = names.linear.iter().map(|(_, theirs)| *theirs).collect();
            let (path, known) = (json.path.display(), known.join(", "));
            Err(Error::pretrained(format!(
                "`{path}`: target_modules names `{module}`; this model has {known}"
            )))
        }
        None => Ok(()),
    }
}

/// The blocks that may have adapters, if not all may.
fn blocks(json: Json<'_>, names: Names, wanted: &Wanted<'_>) -> Result<Option<Vec<u64>>> {
    let key = "layers_to_transform";
    let blocks = match json.get(key) {
        None => None,
        Some(Value::Array(list)) => {
            let numbers = list.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
            json.require(numbers.is_some(), key, "a number or a list of numbers")?;
            numbers
        }
        Some(one) => {
            json.require(one.is_u64(), key, "a number or a list of numbers")?;
            one.as_u64().map(|number| vec![number])
        }
    };
    let by_pattern = matches!(wanted, Wanted::Pattern(_)) && blocks.is_some();
    json.require(!by_pattern, key, "left out beside a regular expression in target_modules")?;
    let all = names.blocks.trim_end_matches('.');
    let list = all.rsplit_once('.').map_or(all, |(_, list)| list);
    let is_list = |word: &Value| word == all || word == list || word == "";
    let holds = json.get("layers_pattern").is_none_or(|pattern| match pattern {
        Value::Array(words) => words.iter().all(is_list),
        word => is_list(word),
    });
    json.require(holds, "layers_pattern", "left out: this model has one list of blocks")?;
    Ok(blocks.filter(|blocks| !blocks.is_empty()))
}
