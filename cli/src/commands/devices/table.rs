//! Devices as a table for people.

use super::Cpu;
use pipewright::stages::Device;
use pipewright::stages::devices::{FoundLibrary, GpuReport, Library, Pair, Report};
use pipewright::stages::units::in_words;

/// The devices, the libraries, and how to install what is missing.
pub(super) fn table(cpu: &Cpu, report: &Report, pairs: &[Pair]) -> String {
    let Cpu { name, cores, threads } = cpu;
    let mut text = format!("cpu     {name}, {cores} cores, {threads} threads: f32\n");
    match &report.gpus {
        Ok(gpus) => text.extend(gpus.iter().map(gpu)),
        Err(problem) => text += &format!("no GPU  {problem}\n"),
    }
    text += &copies(pairs);
    text += "\nlibrary      version  needed for                   file\n";
    text.extend(report.libraries.iter().map(library));
    text + &advice(report)
}

fn gpu(gpu: &GpuReport) -> String {
    let (major, minor) = gpu.capability;
    let free = gpu
        .free
        .map_or_else(|| "cannot be used now".to_owned(), |free| format!("{} free", in_words(free as f64)));
    let runs = gpu
        .problem
        .as_ref()
        .map_or_else(|| "f32, bf16, fused attention".to_owned(), |problem| problem.to_string());
    format!(
        "{}  {}, compute capability {major}.{minor}, {}, {free}: {runs}\n",
        gpu.device,
        gpu.name,
        in_words(gpu.total as f64)
    )
}

/// The speed of copies as a square, and what is not as one would wish. Empty with fewer than two GPUs.
fn copies(pairs: &[Pair]) -> String {
    let mut devices: Vec<Device> = pairs.iter().map(|pair| pair.from).collect();
    devices.dedup();
    if devices.is_empty() {
        return String::new();
    }
    let mut text = "\ncopies in GB/s, from the GPU on the left to the one above\n       ".to_owned();
    text.extend(devices.iter().map(|to| format!(" {to:>8}")));
    for from in &devices {
        text += &format!("\n{from:<7}");
        for to in &devices {
            let pair = pairs.iter().find(|pair| (pair.from, pair.to) == (*from, *to));
            let speed = pair.map_or("-".to_owned(), |pair| match &pair.speed {
                Ok(speed) => format!("{:.1}{}", speed / 1e9, if pair.direct { "" } else { "*" }),
                Err(_) => "?".to_owned(),
            });
            text += &format!(" {speed:>8}");
        }
    }
    text += "\n";
    if pairs.iter().any(|pair| !pair.direct) {
        text += "* not direct: the driver may take it through the host's memory\n";
    }
    if let Some((pair, error)) = pairs.iter().find_map(|pair| Some((pair, pair.speed.as_ref().err()?))) {
        text += &format!("? not measured; {} to {}: {error}\n", pair.from, pair.to);
    }
    text
}

fn library(found: &FoundLibrary) -> String {
    let FoundLibrary { library, version, path } = found;
    let file = match (version, path) {
        (None, _) => format!("no {}", library.file()),
        (Some(_), Some(path)) => path.display().to_string(),
        (Some(_), None) => library.file().to_owned(),
    };
    let version = version.map_or_else(|| "missing".to_owned(), |version| version.to_string());
    format!("{:<12} {version:<8} {:<28} {file}\n", library.name(), library.purpose())
}

/// How to install what is missing. Empty if nothing is.
fn advice(report: &Report) -> String {
    let lacking = report.libraries.iter();
    let lacking: Vec<Library> =
        lacking.filter(|found| found.problem().is_some()).map(|found| found.library).collect();
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
