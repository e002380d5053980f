//! How much of a model is trained, and what the optimizer keeps for it.

use std::iter::Sum;
use std::ops::Add;

use pipewright::stages::Lora;
use pipewright::stages::layers::decoded_numbers;
use pipewright::stages::models::ParameterContents;
use pipewright::stages::optimizer::{StateFormat, StateTensor, states};

use super::rules::is_plain;
use super::{model, optimizer};
use crate::config::{Config, ModelKind};
use crate::error::Result;

/// The table of tokens, in models of tokens. A head that is tied to it has a copy of the same name.
const TABLE: &str = "wte.weight";

/// How many numbers a part of a model has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trained {
    /// All weights.
    pub(super) all: u64,
    /// Those that are trained.
    pub(super) trained: u64,
    /// The bytes of the optimizer's numbers, for weights that are trained.
    pub(super) optimizer: u64,
    /// Tied copies.
    pub(super) tied: Tied,
    /// Matrices that are frozen. A GPU has them only in the number format of products.
    pub(super) frozen_matrices: u64,
    /// All matrices, without adapters.
    pub(super) matrices: u64,
    /// Frozen matrices in blocks, and their bytes.
    pub(super) quantised: u64,
    pub(super) quantised_bytes: u64,
    /// The numbers into which several threads decode a matrix for a product.
    pub(super) decoded: u64,
    /// The numbers of the largest of these matrices: a GPU decodes each whole.
    pub(super) decoded_on_gpu: u64,
}

/// How many numbers the tied copies in a part of a model have. They are counted in [`Trained`] too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tied {
    /// Those that are trained.
    pub(super) trained: u64,
    /// Those that are frozen, and not in blocks.
    pub(super) frozen: u64,
    /// The bytes of those in blocks.
    pub(super) quantised_bytes: u64,
    /// The bytes of the optimizer's numbers for them.
    pub(super) optimizer: u64,
}

impl Add for Tied {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            trained: self.trained + other.trained,
            frozen: self.frozen + other.frozen,
            quantised_bytes: self.quantised_bytes + other.quantised_bytes,
            optimizer: self.optimizer + other.optimizer,
        }
    }
}

impl Add for Trained {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            trained: self.trained + other.trained,
            optimizer: self.optimizer + other.optimizer,
            tied: self.tied + other.tied,
            frozen_matrices: self.frozen_matrices + other.frozen_matrices,
            matrices: self.matrices + other.matrices,
            quantised: self.quantised + other.quantised,
            quantised_bytes: self.quantised_bytes + other.quantised_bytes,
            decoded: self.decoded.max(other.decoded),
            decoded_on_gpu: self.decoded_on_gpu.max(other.decoded_on_gpu),
        }
    }
}

impl Sum for Trained {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

/// Whether the model has running means that are trained with it.
///
/// # Errors
/// As for [`model`](super::model).
pub fn has_running_means(config: &Config) -> Result<bool> {
    if !may_have_running_means(config) {
        return Ok(false);
    }
    let contents = model(config)?.contents()?;
    let mut parameters = contents.iter().flat_map(|unit| &unit.parameters);
    Ok(parameters.any(|parameter| !parameter.is_frozen && !parameter.is_optimized))
}

fn may_have_running_means(config: &Config) -> bool {
    matches!(config.model.kind, ModelKind::Resnet | ModelKind::Stack)
}

/// The numbers of each unit of the model. `None` if all weights are trained, and the optimizer keeps equally
/// much for each. Then no unit is made, which may be too large for this machine.
///
/// # Errors
/// As for [`model`](super::model).
pub(super) fn trained(config: &Config) -> Result<Option<Vec<Trained>>> {
    let optimizer = optimizer(config);
    let is_f32 = optimizer.states("", &[1]).iter().all(|tensor| tensor.format == StateFormat::F32);
    if is_plain(config) && optimizer.updates_parts() && is_f32 && !may_have_running_means(config) {
        return Ok(None);
    }
    let numbers = |parameter: &ParameterContents| {
        let all = parameter.numbers() as u64;
        let is_quantised = parameter.quantisation.is_some();
        let quantised_bytes = if is_quantised { parameter.bytes() as u64 } else { 0 };
        // Of a table of tokens, only rows that are looked up are decoded, to where they are used.
        let is_decoded = is_quantised && (parameter.name != TABLE || parameter.is_tied);
        let is_matrix = parameter.dims.len() >= 2 && !Lora::is_adapter(&parameter.name);
        let states = match parameter.is_optimized {
            true => states(&*optimizer, &parameter.name, &parameter.dims, &parameter.fused),
            false => Vec::new(),
        };
        let optimizer = states.iter().map(|tensor| tensor.bytes().next_multiple_of(4) as u64).sum();
        Trained {
            all,
            // A running mean has sums, as a gradient has, but nothing of the optimizer.
            trained: if parameter.is_frozen { 0 } else { all },
            optimizer,
            tied: match (parameter.is_tied, parameter.is_frozen) {
                (false, _) => Tied::default(),
                (true, false) => Tied { trained: all, optimizer, ..Tied::default() },
                (true, true) if is_quantised => Tied { quantised_bytes, ..Tied::default() },
                (true, true) => Tied { frozen: all, ..Tied::default() },
            },
            frozen_matrices: if parameter.is_frozen && parameter.dims.len() >= 2 { all } else { 0 },
            matrices: if is_matrix { all } else { 0 },
            quantised: if is_quantised { all } else { 0 },
            quantised_bytes,
            decoded: match parameter.dims[..] {
                [rows, columns] if is_decoded => decoded_numbers([rows, columns]) as u64,
                _ => 0,
            },
            decoded_on_gpu: if is_decoded { all } else { 0 },
        }
    };
    let contents = model(config)?.contents()?;
    let units = contents.iter();
    Ok(Some(units.map(|unit| unit.parameters.iter().map(numbers).sum()).collect()))
}

/// How many numbers of 32 bits the optimizer keeps for each weight, if that is equally much.
pub(super) fn states_of_a_weight(config: &Config) -> f64 {
    const MANY: usize = 1 << 20;
    let tensors = optimizer(config).states("", &[MANY]);
    let bytes: usize = tensors.iter().map(StateTensor::bytes).sum();
    bytes as f64 / (size_of::<f32>() * MANY) as f64
}

/// The share of the model's weights that is trained.
///
/// # Errors
/// As for [`model`](super::model).
pub(super) fn trained_share(config: &Config) -> Result<f64> {
    Ok(trained(config)?.map_or(1.0, |units| {
        let Trained { all, trained, .. } = units.into_iter().sum();
        trained as f64 / all.max(1) as f64
    }))
}
