//! The costs of a model's layers on a GPU that is not here.

pub(super) mod kernels;

use pipewright::stages::devices::FUSED_HEADS;
use pipewright::stages::{DType, Device, Place};

use self::kernels::{More, Rows, Unit, UnitKernels};
use super::costs::{recomputed_in_measuring, settings};
use super::held::cost;
use super::mixed::{Documents, Mixed};
use super::model::{Sizes, estimated_counts, sizes};
use super::places::fused_heads;
use super::schedule::ranks_and_chunks;
use super::trained::{states_of_a_weight, trained};
use super::{architecture, optimizer};
use crate::config::Config;
use crate::error::Result;
use crate::profile::{Measured, MemoryLimit, Settings};
use pipewright::mesh::Mesh;
use pipewright::plan::{Gpu, Kernel, LayerCost, LinkCost, ModelCosts, StageCost, Work};
use pipewright::pretrained::Architecture;

/// Bytes of a weight, of its gradient, and of an id.
const F32: f64 = 4.0;

/// The config with a GPU of its own for each rank, and the memory of these.
///
/// # Errors
/// When there are more stages than layers, when there is no such schedule, or when there are more ranks than
/// a run can have.
pub fn with_gpus(mut config: Config, gpu: &Gpu) -> Result<(Config, Vec<(Device, MemoryLimit)>)> {
    estimated_counts(&config)?;
    let sizes = [config.pipeline.replicas, ranks_and_chunks(&config)?.0, config.pipeline.shards];
    let ranks = Mesh::new(sizes, 1, &[])?.world_size();
    let limit = MemoryLimit {
        bytes: gpu.memory as u64,
        free: gpu.memory as u64,
        set_by: format!("a GPU of the kind {} has", gpu.name),
        shared: false,
    };
    config.pipeline.devices.0 = (0..ranks).map(Device::Cuda).collect();
    let devices = config.pipeline.devices.0.iter();
    let limits = devices.map(|&device| (device, limit.clone())).collect();
    Ok((config, limits))
}

fn unmodelled(what: &str) -> String {
    format!("for a GPU that is not here (--device), only this can be planned: {what}")
}

/// What GPUs run in each unit of the model, for one micro-batch.
///
/// # Errors
/// When it is not known what they would run, or how long that takes. The error names the key.
pub fn gpu_kernels(config: &Config) -> Result<Vec<UnitKernels>> {
    kernels_of(config, Documents::of(config).mixed.as_ref())
}

/// As [`gpu_kernels`]. `mixed`: what a mean micro-batch has, if sequences are not all full.
fn kernels_of(config: &Config, mixed: Option<&Mixed>) -> Result<Vec<UnitKernels>> {
    let only = |fits: bool, key: &str, what: &'static str| config.require(fits, key, || unmodelled(what));
    let (dtype, rows, seq) = (config.pipeline.dtype, config.micro_batch_size(), config.data.seq);
    only(dtype == DType::Bf16, "pipeline.dtype", "bf16")?;
    only(optimizer(config).updates_parts(), "optimizer.kind", "adamw, lion and sgd")?;
    let width = match architecture(config) {
        Some(Architecture::Gpt2(gpt, _)) => gpt.dim / gpt.heads,
        Some(Architecture::Llama(_, llama, _)) if llama.experts.is_none() => llama.heads.width,
        _ => {
            let what = "gpt, and llama and its kin without experts";
            return Err(config.refuse("model.kind", unmodelled(what)));
        }
    };
    let is_fused = FUSED_HEADS.contains(&width);
    config.require(is_fused, "model.heads", || unmodelled(&format!("heads of width {}", fused_heads())))?;
    let model = super::model(config)?;
    let parts = model.parts().unwrap_or_default();
    let contents = trained(config)?.map(|_| model.contents()).transpose()?;
    let units = parts.iter().enumerate().map(|(index, parts)| Unit {
        parts,
        parameters: contents.as_ref().map(|units| units[index].parameters.as_slice()),
    });
    let units: Vec<Unit<'_>> = units.collect();
    let tokens = mixed.map_or(rows * seq, |mixed| mixed.places.round() as usize);
    let rows = Rows { tokens, seq, pairs: mixed.map(|mixed| mixed.pairs) };
    let more = More {
        how: recomputed_in_measuring(config)?,
        drops_in_adapters: config.lora.dropout > 0.0,
        compares_answers: config.learns_pairs(),
    };
    Ok(kernels::of_units(&units, more, rows))
}

/// The kernel that updates the weights of a unit, once a step, and adds up the squares of the gradient. A
/// launch does it for many parameters, so a unit's share of the launch does not count.
pub fn gpu_update(config: &Config, unit: &UnitKernels) -> Kernel {
    let states = states_of_a_weight(config);
    // The gradient is read twice. Weights and states are read and written, and the copy in bf16 is written.
    let bytes = 2.0 * F32 + 2.0 * F32 * (1.0 + states) + DType::Bf16.bytes() as f64;
    Kernel { name: "update", work: Work::Bytes(bytes * unit.weights as f64), launches: 0 }
}

/// What the layers cost on such GPUs, as if they had been measured there.
///
/// # Errors
/// As for [`gpu_kernels`].
pub fn modelled(config: &Config, gpu: &Gpu) -> Result<Measured> {
    modelled_with(config, gpu, Documents::of(config).mixed.as_ref())
}

/// As [`modelled`], where the documents are known.
pub(super) fn modelled_with(config: &Config, gpu: &Gpu, mixed: Option<&Mixed>) -> Result<Measured> {
    let (latency, rate) = gpu.message();
    let link = LinkCost { latency, per_byte: 1.0 / rate };
    let input = F32 * sizes(config)?.input as f64;
    let costs = ModelCosts::new(layers(config, gpu, mixed)?, input, link)?;
    let costs = costs.uneven(mixed.map_or_else(Vec::new, |mixed| mixed.usual.clone()))?;
    Ok(Measured {
        settings: settings(config)?,
        machine: Settings::from([("gpu".to_owned(), format!("{}, by its figures", gpu.name))]),
        costs,
        between: None,
        // Two sums are read and one is written.
        add: 3.0 / gpu.memory_rate(),
        tokens: mixed.map(|mixed| mixed.tokens),
        host: Some(gpu.host_byte()),
    })
}

fn layers(config: &Config, gpu: &Gpu, mixed: Option<&Mixed>) -> Result<Vec<LayerCost>> {
    let Sizes { units, .. } = sizes(config)?;
    let place = Place { device: Device::Cuda(0), dtype: config.pipeline.dtype };
    let bytes = |numbers: u64| place.dtype.bytes() as f64 * numbers as f64;
    let model = super::model(config)?;
    let kernels = kernels_of(config, mixed)?;
    let how = recomputed_in_measuring(config)?;
    let layers = kernels.iter().zip(&units).zip(model.names());
    let layers = layers.map(|((kernels, sizes), name)| {
        let time = |kernels: &[Kernel]| kernels.iter().map(|kernel| gpu.time(kernel)).sum::<f64>();
        let cost = StageCost {
            forward: time(&kernels.forward),
            backward_input: time(&kernels.backward_input),
            backward_weight: time(&kernels.backward_weight),
            update: gpu.time(&gpu_update(config, kernels)),
            ..cost(std::slice::from_ref(sizes), place, how, 0.0)
        };
        LayerCost {
            name: name.to_owned(),
            cost,
            backward: cost.backward_input + cost.backward_weight,
            shared: bytes(sizes.shared),
            output: bytes(sizes.output),
        }
    });
    Ok(layers.collect())
}
