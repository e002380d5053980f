//! Where ranks run, and in which numbers.

use pipewright_stages::devices::{FUSED_HEADS, name_and_memory};
use pipewright_stages::{DType, Device, Place};
use serde::{Deserialize, Serialize};

use super::{Config, Memory, Model, ModelKind};
use crate::error::Result;

/// Numbers in `bf16` that a GPU reads at once: 16 bytes.
const LOAD: usize = 8;

/// The devices of the ranks: one for all, or one for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Vec<String>")]
pub struct Devices(pub Vec<Device>);

impl Default for Devices {
    fn default() -> Self {
        Self(vec![Device::Cpu])
    }
}

impl Devices {
    /// Whether any of them is a GPU.
    pub fn has_gpu(&self) -> bool {
        self.0.iter().any(|device| *device != Device::Cpu)
    }

    /// Whether some of them are GPUs, and some are not.
    pub(super) fn are_mixed(&self) -> bool {
        self.has_gpu() && self.0.contains(&Device::Cpu)
    }

    /// The GPUs among them, each once.
    pub fn gpus(&self) -> Vec<u32> {
        let mut gpus = Vec::new();
        for device in &self.0 {
            if let Device::Cuda(index) = *device
                && !gpus.contains(&index)
            {
                gpus.push(index);
            }
        }
        gpus
    }

    /// Those of another number of ranks: as many of the GPUs as there are ranks for, neighbours together where there are fewer.
    pub fn shared_by(&self, ranks: usize) -> Self {
        let gpus = self.gpus();
        let used = gpus.len().min(ranks);
        if self.0.len() == ranks {
            return self.clone();
        }
        match used {
            0 | 1 => Self(vec![self.0[0]]),
            _ => Self(
                (0..ranks)
                    .map(|rank| Device::Cuda(gpus[rank * used / ranks]))
                    .collect(),
            ),
        }
    }

    /// What of them weights depend on: which ranks are on GPUs, where not all are, and not on which GPU.
    pub(super) fn kinds(&self) -> Self {
        let kind = |device: &Device| match device {
            Device::Cpu => Device::Cpu,
            Device::Cuda(_) => Device::Cuda(0),
        };
        let mut kinds: Vec<Device> = self.0.iter().map(kind).collect();
        if kinds.iter().all(|kind| *kind == kinds[0]) {
            kinds.truncate(1);
        }
        Self(kinds)
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "devices such as \"cpu\" and \"cuda:0\"")]
enum Form {
    Text(String),
    List(Vec<String>),
}

impl TryFrom<Form> for Devices {
    type Error = String;

    fn try_from(form: Form) -> std::result::Result<Self, String> {
        let names: Vec<String> = match form {
            Form::Text(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
            Form::List(names) => names,
        };
        if names.is_empty() {
            return Err("one device at least, such as \"cpu\" or \"cuda:0\"".to_owned());
        }
        let mut devices = Vec::new();
        for name in names {
            let device = name.parse();
            let none = |_| format!("devices such as \"cpu\" and \"cuda:0\" (\"{name}\" is none)");
            devices.push(device.map_err(none)?);
        }
        Ok(Self(devices))
    }
}

impl From<Devices> for Vec<String> {
    fn from(Devices(devices): Devices) -> Self {
        devices.iter().map(Device::to_string).collect()
    }
}

/// The numbers that GPUs compute in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DTypeWord {
    /// 32-bit floating point.
    #[default]
    F32,
    /// 16-bit floating point with the exponent of `f32`; weights and what becomes of them stay `f32`.
    Bf16,
}

impl Config {
    /// The place of each of so many ranks. A rank on the CPU computes in `f32` whatever those on GPUs do.
    ///
    /// # Errors
    /// When there are several devices and another number of ranks.
    pub fn places(&self, ranks: u32) -> Result<Vec<Place>> {
        let (devices, ranks) = (&self.pipeline.devices.0, ranks as usize);
        let count = devices.len();
        self.require(count == 1 || count == ranks, "pipeline.devices", || {
            format!(
                "the list has {count}, and there are {ranks} ranks: give one device for all, or one for each"
            )
        })?;
        let place = |device: &Device| Place {
            device: *device,
            dtype: match (device, self.pipeline.dtype) {
                (Device::Cuda(_), DTypeWord::Bf16) => DType::Bf16,
                _ => DType::F32,
            },
        };
        Ok(devices.iter().cycle().take(ranks).map(place).collect())
    }

    /// What is said of GPUs when a run begins: which, in which numbers, and what of the model is slow there. None where all ranks are on the
    /// CPU.
    pub fn on_gpus(&self) -> Option<String> {
        let devices = &self.pipeline.devices;
        if !devices.has_gpu() {
            return None;
        }
        let dtype = self.pipeline.dtype;
        let names: Vec<String> = devices.clone().into();
        let mut text = format!(
            "{} in {}",
            names.join(", "),
            if dtype == DTypeWord::Bf16 { "bf16" } else { "f32" }
        );
        if dtype == DTypeWord::Bf16 && self.model.kind == ModelKind::Gpt {
            text += &slow_heads(&self.model);
            if !devices.0.contains(&Device::Cpu) {
                text += &slow_vocabulary(&self.model);
            }
        }
        Some(text)
    }

    /// What the GPUs of its ranks are called, each kind once; "not here" are those that are not on this machine.
    pub fn kinds_of_gpus(&self) -> Vec<String> {
        let mut kinds = Vec::new();
        for index in self.pipeline.devices.gpus() {
            let name = name_and_memory(index).map_or_else(|_| "not here".to_owned(), |(name, _)| name);
            if !kinds.contains(&name) {
                kinds.push(name);
            }
        }
        kinds
    }

    /// The least memory that a rank's GPU has for each of the ranks on it; none where ranks are on the CPU.
    ///
    /// # Errors
    /// When a GPU is not there, or as [`Config::places`].
    pub fn gpu_memory(&self, ranks: u32) -> Result<Option<Memory>> {
        let places = self.places(ranks)?;
        let mut all = Vec::new();
        for index in self.pipeline.devices.gpus() {
            let here = places.iter().filter(|place| place.device == Device::Cuda(index));
            all.push(name_and_memory(index)?.1 / here.count().max(1) as u64);
        }
        Ok(all.into_iter().min().map(Memory::of))
    }

    /// Refuses GPUs that are not there.
    pub(super) fn check_gpus(&self) -> Result<()> {
        for index in self.pipeline.devices.gpus() {
            name_and_memory(index).map_err(|error| {
                self.refuse(
                    "pipeline.devices",
                    format!(
                        "what layers cost is measured where they run, and {error}. Plan with a file that was measured there (--costs), or \
                         with --set pipeline.devices=cpu --set pipeline.dtype=f32 by what they cost on the CPU"
                    ),
                )
            })?;
        }
        Ok(())
    }

    /// Refuses `bf16` where no rank can compute in it.
    pub(super) fn check_dtype(&self) -> Result<()> {
        let wanted = self.pipeline.dtype == DTypeWord::Bf16;
        self.require(!wanted || self.pipeline.devices.has_gpu(), "pipeline.dtype", || {
            "\"bf16\" is for GPUs, and all ranks are on the CPU: set this to \"f32\", or pipeline.devices to GPUs such as \
             \"cuda:0\""
                .to_owned()
        })
    }
}

/// Whether a GPT's heads have no fast kernels in `bf16`.
fn slow_heads(model: &Model) -> String {
    let width = model.dim / model.heads.max(1);
    if FUSED_HEADS.contains(&width) {
        return String::new();
    }
    let [a, b] = FUSED_HEADS;
    format!(
        "; heads of width {width} take the plain attention kernels, which are slow: {a} and {b} have fused ones"
    )
}

/// Whether a GPT's scores cannot be read fast in `bf16`.
fn slow_vocabulary(model: &Model) -> String {
    if model.vocab.is_multiple_of(LOAD) {
        return String::new();
    }
    let (vocab, next) = (model.vocab, model.vocab.next_multiple_of(64));
    format!(
        "; a vocabulary of {vocab} is slow, for rows of scores are read {LOAD} at a time: model.vocab={next} has room to spare"
    )
}
