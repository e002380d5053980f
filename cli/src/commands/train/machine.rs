//! What a run trains on, for its report.

use crate::compose::{TrainingData, describe_devices};
use crate::config::Config;
use crate::profile::{Cpu, MemoryLimit};
use pipewright::stages::units::in_words;

/// Facts about the data, this machine and this program, with their names.
pub(super) fn facts(config: &Config, data: &TrainingData, processes: u32) -> Vec<(String, String)> {
    let Cpu { name, cores, threads } = Cpu::here();
    let memory = MemoryLimit::here().into_iter().map(|limit| limit.bytes).min();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut facts = vec![
        ("data", data.summary.clone()),
        ("processor", format!("{name}, cores {cores}, threads {threads}")),
        ("system", format!("{}, {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("host", gethostname::gethostname().to_string_lossy().into_owned()),
        ("processes", processes.to_string()),
        ("program", format!("Pipewright {}, {build}", env!("CARGO_PKG_VERSION"))),
    ];
    if let Some(bytes) = memory {
        facts.insert(2, ("memory", in_words(bytes as f64)));
    }
    if let Some(devices) = describe_devices(config) {
        facts.insert(2, ("devices", devices));
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
