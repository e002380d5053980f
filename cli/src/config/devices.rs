//! Where ranks run, and with which numbers.

use pipewright::stages::Device;
use serde::{Deserialize, Serialize};

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

    /// Whether some of them are GPUs and some are not.
    pub(crate) fn are_mixed(&self) -> bool {
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

    /// The devices for another number of ranks: as many of the GPUs as there are ranks. If there are fewer
    /// GPUs, neighbours share one.
    pub fn shared_by(&self, ranks: usize) -> Self {
        let gpus = self.gpus();
        let used = gpus.len().min(ranks);
        if self.0.len() == ranks {
            return self.clone();
        }
        match used {
            0 | 1 => Self(vec![self.0[0]]),
            _ => Self((0..ranks).map(|rank| Device::Cuda(gpus[rank * used / ranks])).collect()),
        }
    }

    /// The part on which weights depend: which ranks are on GPUs, if not all are. The index of a GPU does not
    /// matter.
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
            let none = |_| format!("devices such as \"cpu\" and \"cuda:0\" (\"{name}\" is not one)");
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
