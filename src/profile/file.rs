//! `costs.json`: measured costs, and what they were measured for.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::plan::StageCost;
use crate::plan::{LayerCost, Link, ModelCosts};

/// The version of the file's form that is written and read.
const VERSION: u64 = 1;

/// The setting that says what was measured.
pub const DEVICES: &str = "pipeline.devices";

/// And what it is for the CPU.
pub const ON_CPU: &str = "cpu";

/// What to do about a file that does not fit.
const AGAIN: &str = "measure again with `pipewright profile`";

const KEYS: [&str; 6] = ["version", "settings", "machine", "input", "link", "layers"];

const LINK_KEYS: [&str; 2] = ["latency", "per_byte"];

const LAYER_KEYS: [&str; 10] = [
    "name",
    "forward",
    "backward_input",
    "backward_weight",
    "backward",
    "update",
    "saved",
    "shared",
    "pending",
    "output",
];

/// What costs depend on: names and values, such as `model.dim` and `128`.
pub type Settings = BTreeMap<String, String>;

/// Measured costs with what they were measured for.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What the work of a micro-batch depends on. Where it differs the costs mean nothing.
    pub settings: Settings,
    /// What the speed of that work depends on.
    pub machine: Settings,
    /// The costs.
    pub costs: ModelCosts,
}

#[derive(Serialize)]
struct File<'a> {
    version: u64,
    settings: &'a Settings,
    machine: &'a Settings,
    input: f64,
    link: LinkForm,
    layers: Vec<LayerForm<'a>>,
}

#[derive(Serialize)]
struct LinkForm {
    latency: f64,
    per_byte: f64,
}

#[derive(Serialize)]
struct LayerForm<'a> {
    name: &'a str,
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
    /// Reads a file that [`Measured::write`] wrote.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the file that cannot be read, and the key or layer that is missing, unknown or no number from
    /// 0 on.
    pub fn read(path: &Path) -> Result<Self> {
        let unread = |error| Error::Invalid(format!("cannot read {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(unread)?;
        Self::parse(&text).map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
    }

    fn parse(text: &str) -> Result<Self> {
        let whole: Value = serde_json::from_str(text).map_err(|error| no_json(text, &error))?;
        match whole.get("version") {
            Some(version) if version.as_u64() == Some(VERSION) => {}
            Some(other) => {
                return Err(Error::Invalid(format!(
                    "costs of version {other}, and this pipewright reads version {VERSION}: {AGAIN}"
                )));
            }
            None => {
                return Err(Error::Invalid(format!(
                    "no costs, for they have a version: {AGAIN}"
                )));
            }
        }
        known(&whole, "", &KEYS)?;
        let layers = part(&whole, "layers")?.as_array();
        let layers = layers.ok_or_else(|| Error::Invalid("layers is no list".into()))?;
        let layers = layers.iter().enumerate();
        let layers = layers
            .map(|(index, layer)| read_layer(index, layer))
            .collect::<Result<_>>()?;
        let link = part(&whole, "link")?;
        known(link, "link: ", &LINK_KEYS)?;
        let link = Link {
            latency: number(link, "latency", "link")?,
            per_byte: number(link, "per_byte", "link")?,
        };
        let costs = ModelCosts::new(layers, number(&whole, "input", "costs")?, link)?;
        if costs.stage(0..costs.layers().len()).work() == 0.0 {
            return Err(Error::Invalid(format!("all times of its layers are 0: {AGAIN}")));
        }
        let mut settings = read_settings(&whole, "settings")?;
        // Files from before GPUs were measured do not say.
        settings
            .entry(DEVICES.to_owned())
            .or_insert_with(|| ON_CPU.to_owned());
        Ok(Self {
            settings,
            machine: read_settings(&whole, "machine")?,
            costs,
        })
    }

    /// Writes `costs.json`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let Link { latency, per_byte } = self.costs.link();
        let file = File {
            version: VERSION,
            settings: &self.settings,
            machine: &self.machine,
            input: self.costs.input(),
            link: LinkForm { latency, per_byte },
            layers: self.costs.layers().iter().map(form).collect(),
        };
        let text = serde_json::to_string_pretty(&file).expect("numbers and text always serialise");
        std::fs::write(path, text + "\n").map_err(Error::io("write", path))
    }

    /// Refuses costs of another model, data or micro-batch, and gives a warning for costs of another machine.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming all that differs, and the layer of `names` that has no costs or the other way round.
    pub fn fits(&self, settings: &Settings, machine: &Settings, names: &[&str]) -> Result<Option<String>> {
        let other = differences(&self.settings, settings);
        if !other.is_empty() {
            return Err(Error::Invalid(format!(
                "measured for other settings ({other}): {AGAIN}"
            )));
        }
        let measured: Vec<&str> = self
            .costs
            .layers()
            .iter()
            .map(|layer| layer.name.as_str())
            .collect();
        if let Some(missing) = names.iter().find(|name| !measured.contains(name)) {
            return Err(Error::Invalid(format!("layer `{missing}` is missing")));
        }
        if let Some(extra) = measured.iter().find(|name| !names.contains(name)) {
            return Err(Error::Invalid(format!("layer `{extra}` is none of the model's")));
        }
        if measured != names {
            return Err(Error::Invalid("its layers are not in the model's order".into()));
        }
        let other = differences(&self.machine, machine);
        Ok((!other.is_empty()).then(|| format!("measured under other conditions ({other})")))
    }
}

fn no_json(text: &str, error: &serde_json::Error) -> Error {
    let odd = text.contains("NaN") || text.contains("Infinity");
    let likely = if odd {
        "JSON has no NaN and no Infinity"
    } else {
        "was it cut short or edited?"
    };
    Error::Invalid(format!("no JSON: {error}; {likely}: {AGAIN}"))
}

/// Refuses a key that is none of these.
fn known(object: &Value, place: &str, keys: &[&str]) -> Result<()> {
    let mut own = object.as_object().into_iter().flat_map(|object| object.keys());
    match own.find(|key| !keys.contains(&key.as_str())) {
        Some(key) => {
            let keys = keys.join(", ");
            Err(Error::Invalid(format!(
                "{place}there is no key {key:?} (known: {keys})"
            )))
        }
        None => Ok(()),
    }
}

fn part<'a>(whole: &'a Value, key: &str) -> Result<&'a Value> {
    let missing = || Error::Invalid(format!("{key} is missing"));
    whole.get(key).ok_or_else(missing)
}

fn number(object: &Value, key: &str, place: &str) -> Result<f64> {
    let value = part(object, key).map_err(|error| Error::Invalid(format!("{place}: {error}")))?;
    value.as_f64().ok_or_else(|| {
        Error::Invalid(format!(
            "{place}: {key} is {value}; it has to be a number from 0 on"
        ))
    })
}

fn read_settings(whole: &Value, key: &str) -> Result<Settings> {
    Settings::deserialize(part(whole, key)?).map_err(|error| Error::Invalid(format!("{key}: {error}")))
}

fn read_layer(index: usize, layer: &Value) -> Result<LayerCost> {
    let name = layer.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| Error::Invalid(format!("layers: number {index} has no name")))?;
    known(layer, &format!("layer `{name}`: "), &LAYER_KEYS)?;
    let number = |key| number(layer, key, &format!("layer `{name}`"));
    Ok(LayerCost {
        name: name.to_owned(),
        cost: StageCost {
            forward: number("forward")?,
            backward_input: number("backward_input")?,
            backward_weight: number("backward_weight")?,
            update: number("update")?,
            saved: number("saved")?,
            pending: number("pending")?,
            restored: 0.0,
        },
        backward: number("backward")?,
        shared: number("shared")?,
        output: number("output")?,
    })
}

fn form(layer: &LayerCost) -> LayerForm<'_> {
    let cost = &layer.cost;
    LayerForm {
        name: &layer.name,
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

/// What differs, as `model.dim 128, now 256`; empty when nothing does.
fn differences(then: &Settings, now: &Settings) -> String {
    let none = || "none".to_owned();
    let names: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let differ = names.into_iter().filter(|name| then.get(*name) != now.get(*name));
    let words = differ.map(|name| {
        let value = |settings: &Settings| settings.get(name).cloned().unwrap_or_else(none);
        format!("{name} {}, now {}", value(then), value(now))
    });
    words.collect::<Vec<_>>().join("; ")
}

/// What the speed of this process depends on.
pub fn machine() -> Settings {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = cpu.lines().find(|line| line.starts_with("model name"));
    let model = named
        .and_then(|line| line.split_once(':'))
        .map_or("unknown", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    [
        ("cpu", model.to_owned()),
        ("cores", cores.to_string()),
        ("architecture", std::env::consts::ARCH.to_owned()),
        ("build", build.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
