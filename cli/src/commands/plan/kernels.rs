//! What GPUs run for a micro-batch, as a table.

use std::collections::BTreeMap;

use crate::Result;
use crate::compose;
use crate::config::Config;
use pipewright::plan::Gpu;

/// A line for each kind of kernel, the longest first: how often it is launched for a micro-batch, over all
/// stages, and how long it takes together. The update is once a step.
pub(super) fn table(config: &Config, gpu: &Gpu) -> Result<String> {
    let units = compose::gpu_kernels(config)?;
    let mut kinds: BTreeMap<&str, (u32, f64)> = BTreeMap::new();
    let mut update = 0.0;
    for unit in &units {
        for kernel in [&unit.forward, &unit.backward_input, &unit.backward_weight].into_iter().flatten() {
            let (launches, time) = kinds.entry(kernel.name).or_default();
            *launches += kernel.launches;
            *time += gpu.time(kernel);
        }
        update += gpu.time(&compose::gpu_update(config, unit));
    }
    let all: f64 = kinds.values().map(|(_, time)| time).sum();
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
    let mut text = format!(
        "a prediction for {}: published figures, and shares of them that kernels reached on an H100\n\
         {:<26}{:>10}{:>10}{:>9}\n",
        gpu.name, "kernels of a micro-batch", "launches", "ms", "share"
    );
    for (name, (launches, time)) in kinds {
        text += &line(name, launches, time, time / all);
    }
    text += &format!("{:<26}{:>10}{:>10.3}\n", "all", "", 1e3 * all);
    text += &format!("{:<26}{:>10}{:>10.3}\n\n", "update, once a step", "", 1e3 * update);
    Ok(text)
}

fn line(name: &str, launches: u32, time: f64, share: f64) -> String {
    format!("{name:<26}{launches:>10}{:>10.3}{:>7.1} %\n", 1e3 * time, 100.0 * share)
}
