//! `costs.json`: measured costs, with the settings and the machine that they were measured for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::Segment;

use super::cpu::Cpu;
use crate::error::{Error, Result};
use pipewright::error::CostOf;
use pipewright::plan::{Cluster, LayerCost, LinkCost, MeasuredShards, ModelCosts, StageCost};

/// The version of the file's format.
const VERSION: u64 = 1;

/// The setting that names the measured devices.
pub const DEVICES: &str = "pipeline.devices";

/// The value of that setting for the CPU.
pub const ON_CPU: &str = "cpu";

/// What costs depend on, by name: for example `model.dim` with value `128`.
pub type Settings = BTreeMap<String, String>;

/// Measured costs, with the settings and the machine that they were measured for.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What the work of a micro-batch depends on. If it differs, the costs are useless.
    pub settings: Settings,
    /// What the speed of that work depends on. If it differs, the costs are inexact.
    pub machine: Settings,
    /// The costs.
    pub costs: ModelCosts,
    /// What a message between processes costs. `None` if one process measured.
    pub between: Option<Between>,
    /// Seconds to add a byte of gradients to a sum. Files from before replicas lack it, and it counts as 0.
    pub add: f64,
    /// The tokens of a mean micro-batch, where micro-batches differ.
    pub tokens: Option<f64>,
    /// Seconds to copy a byte between a GPU and page-locked memory of its host, beside copies in the other
    /// direction. `None` where that was not measured.
    pub host: Option<f64>,
}

/// The link between two processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// What a message costs.
    pub link: LinkCost,
    /// Whether the two are on one host.
    pub one_host: bool,
}

/// The file. Times are in seconds, sizes in bytes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u64,
    settings: Settings,
    machine: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shards: Option<ShardsForm>,
    input: f64,
    link: LinkForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    between: Option<BetweenForm>,
    #[serde(default)]
    add: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uneven: Option<UnevenForm>,
    layers: Vec<LayerForm>,
}

/// Several shards of each rank, which were measured together.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardsForm {
    count: u32,
    waits: f64,
}

/// Micro-batches that differ: the work of each in a usual step, beside a mean one, and the tokens of a mean
/// one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnevenForm {
    work: Vec<f64>,
    tokens: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BetweenForm {
    latency: f64,
    per_byte: f64,
    one_host: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkForm {
    latency: f64,
    per_byte: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerForm {
    name: String,
    forward: f64,
    backward_input: f64,
    backward_weight: f64,
    backward: f64,
    update: f64,
    saved: f64,
    shared: f64,
    pending: f64,
    output: f64,
}

impl Measured {
    /// Reads a file that [`Measured::to_json`] wrote.
    ///
    /// # Errors
    /// The error names the file. For its contents it also names the key or layer that is missing, unknown,
    /// or not a number from 0 on.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::refused(format!("cannot read {}: {source}", path.display())))?;
        Self::parse(&text).map_err(|problem| unusable(path, &problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| {
            let likely = match text.contains("NaN") || text.contains("Infinity") {
                true => "JSON has no NaN and no Infinity",
                false => "was it cut short or edited?",
            };
            format!("no JSON: {error}; {likely}")
        })?;
        let version = json.get("version").ok_or("not a file of costs, because it has no version")?;
        if version.as_u64() != Some(VERSION) {
            return Err(format!("costs of version {version}, and this pipewright reads version {VERSION}"));
        }
        let file: File = serde_path_to_error::deserialize(&json)
            .map_err(|error| format!("{}{}", place(error.path(), &json), error.inner()))?;
        file.try_into()
    }

    /// The links of `hosts` hosts, as far as they were measured.
    pub fn cluster(&self, hosts: u32) -> Cluster {
        Cluster {
            hosts,
            inside: self.costs.link(),
            between: self.between.map(|between| between.link),
            add: self.add,
        }
    }

    /// The same with the links of this cluster, as if they had been measured.
    ///
    /// # Errors
    /// When a cost of a link is negative or not a number.
    pub fn linked(self, cluster: &Cluster) -> Result<Self> {
        let one_host = false;
        Ok(Self {
            costs: self.costs.linked(cluster.inside)?,
            between: cluster.between.map(|link| Between { link, one_host }),
            ..self
        })
    }

    /// The text of `costs.json`.
    pub fn to_json(&self) -> String {
        let LinkCost { latency, per_byte } = self.costs.link();
        let shards = self.costs.measured_shards();
        let file = File {
            version: VERSION,
            settings: self.settings.clone(),
            machine: self.machine.clone(),
            shards: (shards != MeasuredShards::ONE)
                .then_some(ShardsForm { count: shards.count, waits: shards.waits }),
            input: self.costs.input(),
            link: LinkForm { latency, per_byte },
            between: self.between.map(|between| BetweenForm {
                latency: between.link.latency,
                per_byte: between.link.per_byte,
                one_host: between.one_host,
            }),
            add: self.add,
            host: self.host,
            uneven: self.tokens.map(|tokens| UnevenForm { work: self.costs.work().to_vec(), tokens }),
            layers: self.costs.layers().iter().map(LayerForm::from).collect(),
        };
        serde_json::to_string_pretty(&file).expect("numbers and text always serialise") + "\n"
    }

    /// Refuses costs of another model, data or micro-batch, or of another number of shards than one and
    /// `shards`. They are in the file at `path`. Returns a warning for costs of another machine.
    ///
    /// # Errors
    /// The error names all settings that differ, or a layer that only one of the costs and `names` has.
    pub fn fits(
        &self,
        path: &Path,
        [settings, machine]: [&Settings; 2],
        names: &[&str],
        shards: u32,
    ) -> Result<Option<String>> {
        let refuse = |problem: &str| Err(unusable(path, problem));
        let differences = different(&self.settings, settings);
        if !differences.is_empty() {
            return refuse(&format!("measured for other settings ({differences})"));
        }
        let measured = self.costs.measured_shards().count;
        if ![1, shards].contains(&measured) {
            return refuse(&format!(
                "measured with {measured} shards of each rank, and there are now {shards}"
            ));
        }
        let layers = self.costs.layers().iter();
        let measured: Vec<&str> = layers.map(|layer| layer.name.as_str()).collect();
        if let Some(missing) = names.iter().find(|name| !measured.contains(name)) {
            return refuse(&format!("layer `{missing}` is missing"));
        }
        if let Some(extra) = measured.iter().find(|name| !names.contains(name)) {
            return refuse(&format!("the model has no layer `{extra}`"));
        }
        if measured != names {
            return refuse("its layers are not in the model's order");
        }
        let other = different(&self.machine, machine);
        Ok((!other.is_empty()).then(|| format!("measured under other conditions ({other})")))
    }
}

/// A file with costs that cannot be used.
fn unusable(path: &Path, problem: &str) -> Error {
    Error::refused(format!("{}: {problem}: measure again with `pipewright profile`", path.display()))
}

impl TryFrom<File> for Measured {
    type Error = String;

    fn try_from(file: File) -> Result<Self, String> {
        check_between(&file)?;
        let LinkForm { latency, per_byte } = file.link;
        let layers = file.layers.into_iter().map(LayerCost::from).collect();
        let shards = file.shards.map_or(MeasuredShards::ONE, |shards| MeasuredShards {
            count: shards.count,
            waits: shards.waits,
        });
        let (work, tokens) = file.uneven.map_or((Vec::new(), None), |form| (form.work, Some(form.tokens)));
        let costs = ModelCosts::new(layers, file.input, LinkCost { latency, per_byte })
            .and_then(|costs| costs.of_shards(shards))
            .and_then(|costs| costs.uneven(work))
            .map_err(|error| error.to_string())?;
        if costs.stage(0..costs.layers().len()).work() == 0.0 {
            return Err("all times of its layers are 0".to_owned());
        }
        let between = file.between.map(|form| Between {
            link: LinkCost { latency: form.latency, per_byte: form.per_byte },
            one_host: form.one_host,
        });
        let mut settings = file.settings;
        // Files from before GPUs were measured lack this setting.
        settings.entry(DEVICES.to_owned()).or_insert_with(|| ON_CPU.to_owned());
        let (machine, add, host) = (file.machine, file.add, file.host);
        Ok(Self { settings, machine, costs, between, add, tokens, host })
    }
}

/// Refuses a cost of messages, additions or copies to the host that is negative or not a number.
fn check_between(file: &File) -> Result<(), String> {
    let between = file.between.as_ref();
    let between = between
        .into_iter()
        .flat_map(|form| [("between: latency", form.latency), ("between: per_byte", form.per_byte)]);
    let host = file.host.map(|cost| ("host", cost));
    let tokens = file.uneven.as_ref().map(|form| ("uneven: tokens", form.tokens));
    for (name, cost) in between.chain([("add", file.add)]).chain(host).chain(tokens) {
        if !cost.is_finite() || cost < 0.0 {
            return Err(pipewright::plan::Error::wrong_cost(&CostOf::All, name, cost).to_string());
        }
    }
    Ok(())
}

impl From<LayerForm> for LayerCost {
    fn from(layer: LayerForm) -> Self {
        Self {
            name: layer.name,
            cost: StageCost {
                forward: layer.forward,
                backward_input: layer.backward_input,
                backward_weight: layer.backward_weight,
                update: layer.update,
                saved: layer.saved,
                pending: layer.pending,
                ..StageCost::NOTHING
            },
            backward: layer.backward,
            shared: layer.shared,
            output: layer.output,
        }
    }
}

impl From<&LayerCost> for LayerForm {
    fn from(layer: &LayerCost) -> Self {
        let cost = &layer.cost;
        Self {
            name: layer.name.clone(),
            forward: cost.forward,
            backward_input: cost.backward_input,
            backward_weight: cost.backward_weight,
            backward: layer.backward,
            update: cost.update,
            saved: cost.saved,
            shared: layer.shared,
            pending: cost.pending,
            output: layer.output,
        }
    }
}

/// The place of an error in the file: the layer by its name, and the key. It ends with a colon. For the file
/// itself it is empty.
fn place(path: &serde_path_to_error::Path, json: &Value) -> String {
    let words = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(match json["layers"][*index]["name"].as_str() {
            Some(name) => format!("layer `{name}`"),
            None => format!("number {index}"),
        }),
        Segment::Map { key } if key != "layers" => Some(key.clone()),
        _ => None,
    });
    words.map(|word| word + ": ").collect()
}

/// The settings that differ, such as `model.dim 128, now 256`. Empty if none differs.
fn different(then: &Settings, now: &Settings) -> String {
    let none = || "none".to_owned();
    let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let differ = names.into_iter().filter(|name| then.get(*name) != now.get(*name));
    let words = differ.map(|name| {
        let value = |settings: &Settings| settings.get(name).cloned().unwrap_or_else(none);
        format!("{name} {}, now {}", value(then), value(now))
    });
    words.collect::<Vec<_>>().join("; ")
}

/// What the speed of this process depends on.
pub fn machine() -> Settings {
    let Cpu { name, threads, .. } = Cpu::here();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    [
        ("cpu", name),
        ("cores", threads.to_string()),
        ("architecture", std::env::consts::ARCH.to_owned()),
        ("build", build.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
