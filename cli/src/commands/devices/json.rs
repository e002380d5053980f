//! Devices for scripts.

use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::commands::cuda_env::LOADER;
use crate::profile::Cpu;
use pipewright::stages::devices::{FoundLibrary, GpuReport, Pair, Report};

#[derive(Serialize)]
struct Printed<'a> {
    cpu: Processor<'a>,
    gpus: Vec<Gpu<'a>>,
    /// Why there are no GPUs.
    no_gpu: Option<String>,
    copies: Vec<Copy>,
    libraries: Vec<Library<'a>>,
    /// Packages on PyPI that contain what is missing.
    packages: Vec<&'a str>,
    /// The path that lets the loader find the libraries.
    library_path: Option<String>,
}

#[derive(Serialize)]
struct Processor<'a> {
    device: &'static str,
    name: &'a str,
    cores: usize,
    threads: usize,
}

#[derive(Serialize)]
struct Gpu<'a> {
    device: String,
    name: &'a str,
    compute_capability: String,
    memory_total: u64,
    memory_free: Option<u64>,
    bf16: bool,
    fused_attention: bool,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Copy {
    from: String,
    to: String,
    direct: bool,
    bytes_per_second: Option<f64>,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Library<'a> {
    name: &'a str,
    version: Option<String>,
    path: Option<&'a Path>,
    problem: Option<String>,
}

/// The devices and libraries as one line of JSON.
pub(super) fn json(cpu: &Cpu, report: &Report, pairs: &[Pair]) -> Result<String> {
    let printed = Printed {
        cpu: Processor { device: "cpu", name: &cpu.name, cores: cpu.cores, threads: cpu.threads },
        gpus: report.gpus.iter().flatten().map(gpu).collect(),
        no_gpu: report.gpus.as_ref().err().map(ToString::to_string),
        copies: pairs.iter().map(copy).collect(),
        libraries: report.libraries.iter().map(library).collect(),
        packages: super::packages(report),
        library_path: std::env::var(LOADER).ok(),
    };
    crate::commands::json(&printed)
}

fn gpu(gpu: &GpuReport) -> Gpu<'_> {
    let (major, minor) = gpu.capability;
    Gpu {
        device: gpu.device.to_string(),
        name: &gpu.name,
        compute_capability: format!("{major}.{minor}"),
        memory_total: gpu.total,
        memory_free: gpu.free,
        bf16: gpu.problem.is_none(),
        fused_attention: gpu.problem.is_none(),
        problem: gpu.problem.as_ref().map(ToString::to_string),
    }
}

fn copy(pair: &Pair) -> Copy {
    Copy {
        from: pair.from.to_string(),
        to: pair.to.to_string(),
        direct: pair.direct,
        bytes_per_second: pair.speed.as_ref().ok().copied(),
        problem: pair.speed.as_ref().err().map(ToString::to_string),
    }
}

fn library(found: &FoundLibrary) -> Library<'_> {
    Library {
        name: found.library.name(),
        version: found.version.map(|version| version.to_string()),
        path: found.path.as_deref(),
        problem: found.problem().map(|problem| problem.to_string()),
    }
}
