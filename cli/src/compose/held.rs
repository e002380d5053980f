//! What a stage keeps of a micro-batch, by the sizes of its units.

use pipewright::stages::models::{ParameterContents, Part, UnitSizes};
use pipewright::stages::{Lora, Place, Recompute};

use pipewright::plan::StageCost;

/// Bytes of a number that has four in every format.
const F32: f64 = 4.0;

/// What a stage of these units keeps of a micro-batch. All its passes take the same time, because only their
/// order matters here.
pub(super) fn cost(units: &[UnitSizes], place: Place, how: Recompute, read: f64) -> StageCost {
    // A part of the numbers has four bytes in every format.
    let bytes =
        |numbers: u64, f32: u64| place.dtype.bytes() as f64 * (numbers - f32) as f64 + F32 * f32 as f64;
    let sum = |size: fn(&UnitSizes) -> u64| units.iter().map(size).sum::<u64>();
    let shared: u64 = units.iter().skip(1).map(|unit| unit.shared).sum();
    let saved = match how {
        Recompute::Selective => bytes(sum(|unit| unit.selective), sum(|unit| unit.selective_f32)),
        Recompute::None => bytes(sum(|unit| unit.saved + unit.cheap), sum(|unit| unit.saved_f32)),
        Recompute::Cheap | Recompute::Full => bytes(sum(|unit| unit.saved), sum(|unit| unit.saved_f32)),
    };
    let cost = StageCost {
        saved: saved - bytes(shared, 0),
        pending: bytes(sum(|unit| unit.pending), sum(|unit| unit.pending_f32)),
        ..StageCost::default()
    };
    match how {
        Recompute::Full => cost.recomputed(read),
        Recompute::None | Recompute::Cheap | Recompute::Selective => cost,
    }
}

/// Adds what the adapters of a unit hold of `rows` rows: what is between their matrices, and after
/// backward-input its gradient too. Adapters of a head that is deferred hold nothing.
pub(super) fn add_adapters(
    unit: &mut UnitSizes,
    parameters: &[ParameterContents],
    parts: &[Part],
    rows: usize,
) {
    if unit.deferred > 0 {
        return;
    }
    let adapters = parameters.iter().filter(|parameter| Lora::is_adapter(&parameter.name));
    // The first matrix of each is `[rank, inputs]`, and the second `[outputs, rank]`.
    let ranks: usize = adapters.step_by(2).map(|first| first.dims[0]).sum();
    let between = (rows * ranks) as u64;
    unit.saved += between;
    unit.pending += 2 * between;
    // A block that recomputes its inside keeps its input only.
    if !parts.contains(&Part::Residual) {
        unit.selective += between;
    }
}
