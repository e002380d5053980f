//! A kind of GPU that need not be here, as an option of a command.

use crate::config::Memory;
use pipewright::plan::{GPUS, Gpu};

/// The GPUs that a command plans for.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OnGpus {
    /// Predict for GPUs of this kind, one for each rank, which need not be here: by their published figures,
    /// in bf16
    ///
    /// KIND is a100, h100, h200 or b200 (SXM, 80 to 180 GB), rtx3090, rtx4090, l4, a10 or a10g (24 GB), l40s,
    /// a6000 or rtx6000ada (48 GB). Other figures follow a colon: a100:memory=40GB. A name of your own needs
    /// three of them: mine:memory=32GB,bf16=210e12,bandwidth=1.8TB. The figures are memory (bytes), bf16
    /// (floating-point operations a second of bf16 products, without sparsity), bandwidth (bytes a second of
    /// its memory), link (bytes a second to another GPU of its host, in one direction), host (the same to the
    /// host's memory) and multiprocessors. Without them, a GPU of your own has link=32GB, host=32GB and
    /// multiprocessors=100.
    #[arg(long = "device", value_name = "KIND", requires = "config", conflicts_with = "costs",
        value_parser = parse)]
    pub(super) kind: Option<Gpu>,
}

/// The kind that this text names, with the figures after it.
pub(super) fn parse(text: &str) -> Result<Gpu, String> {
    let (name, figures) = text.split_once(':').unwrap_or((text, ""));
    let figures = figures.split(',').filter(|figure| !figure.trim().is_empty());
    let figures: Vec<(&str, f64)> = figures.map(figure).collect::<Result<_, _>>()?;
    let given = |key| figures.iter().rfind(|(given, _)| *given == key).map(|(_, value)| *value);
    let mut gpu = match (Gpu::named(name), given("bf16"), given("bandwidth"), given("memory")) {
        (Some(known), ..) => known.clone(),
        (None, Some(operations), Some(bandwidth), Some(memory)) if !name.is_empty() => {
            Gpu::new(name, operations, bandwidth, memory)
        }
        _ => return Err(unknown(name)),
    };
    for (key, value) in figures {
        let figure = match key {
            "memory" => &mut gpu.memory,
            "bf16" => &mut gpu.operations,
            "bandwidth" => &mut gpu.bandwidth,
            "link" => &mut gpu.link,
            "host" => &mut gpu.host,
            _ => &mut gpu.multiprocessors,
        };
        *figure = value;
    }
    Ok(gpu)
}

/// A figure and its value.
fn figure(text: &str) -> Result<(&str, f64), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is no figure: write KEY=VALUE, such as memory=24GB"))?;
    let (key, value) = (key.trim(), value.trim());
    let value = match key {
        "memory" | "bandwidth" | "link" | "host" => {
            value.parse().map(Memory::bytes).map_err(|problem| format!("{key}: {problem}, got {value}"))?
        }
        "bf16" | "multiprocessors" => {
            let number = value.parse().ok();
            let number = number.filter(|number: &f64| number.is_finite() && *number >= 1.0);
            number
                .ok_or_else(|| format!("{key}: expected a number from 1 on, such as 210e12, got {value}"))?
        }
        _ => {
            return Err(format!(
                "`{key}` is no figure of a GPU: there are memory, bf16, bandwidth, link, host and \
                 multiprocessors"
            ));
        }
    };
    Ok((key, value))
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = GPUS.iter().map(|gpu| gpu.name.as_ref()).collect();
    format!(
        "no GPU `{name}` is known: there are {}; one of your own needs three figures: \
         {name}:memory=24GB,bf16=165e12,bandwidth=1008GB",
        known.join(", ")
    )
}
