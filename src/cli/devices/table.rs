//! Devices as a table for people.

use super::Cpu;
use crate::stages::devices::{Found, GpuReport, Library, Report};
use crate::stages::units::in_words;

/// The devices, the libraries, and how to install what is missing.
pub(super) fn table(cpu: &Cpu, report: &Report) -> String {
    let Cpu { name, cores, threads } = cpu;
    let mut text = format!("cpu     {name}, {cores} cores, {threads} threads: f32\n");
    match &report.gpus {
        Ok(gpus) => text.extend(gpus.iter().map(gpu)),
        Err(problem) => text += &format!("no GPU  {problem}\n"),
    }
    text += "\nlibrary      version  needed for                   file\n";
    text.extend(report.libraries.iter().map(library));
    text + &advice(report)
}

fn gpu(gpu: &GpuReport) -> String {
    let (major, minor) = gpu.capability;
    let free = gpu.free.map_or_else(
        || "cannot be used now".to_owned(),
        |free| format!("{} free", in_words(free as f64)),
    );
    let runs = gpu.problem.as_ref().map_or_else(
        || "f32, bf16, fused attention".to_owned(),
        |problem| problem.to_string(),
    );
    format!(
        "{}  {}, compute capability {major}.{minor}, {}, {free}: {runs}\n",
        gpu.device,
        gpu.name,
        in_words(gpu.total as f64)
    )
}

fn library(found: &Found) -> String {
    let Found {
        library,
        version,
        path,
    } = found;
    let file = match (version, path) {
        (None, _) => format!("no {}", library.file()),
        (Some(_), Some(path)) => path.display().to_string(),
        (Some(_), None) => library.file().to_owned(),
    };
    let version = version.map_or_else(|| "missing".to_owned(), |version| version.to_string());
    format!(
        "{:<12} {version:<8} {:<28} {file}\n",
        library.name(),
        library.purpose()
    )
}

/// How to install what is missing. Empty if nothing is.
fn advice(report: &Report) -> String {
    let lacking = report.libraries.iter();
    let lacking: Vec<Library> = lacking
        .filter(|found| found.problem().is_some())
        .map(|found| found.library)
        .collect();
    if lacking.is_empty() {
        return String::new();
    }
    let mut text = "\nTo use GPUs:\n".to_owned();
    if lacking.contains(&Library::Driver) {
        text += &format!("  {}\n", Library::Driver.remedy());
    }
    let packages = super::packages(report);
    if !packages.is_empty() {
        text += &format!("  pip install {}\n", packages.join(" "));
    }
    if lacking.contains(&Library::Nccl) {
        text += "  (a run of one process does not need NCCL)\n";
    }
    text
}
