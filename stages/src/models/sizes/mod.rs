//! How much memory the units of a model need. Known before anything is made.

pub(crate) mod gpt;
pub(crate) mod images;
pub(crate) mod llama;
pub(crate) mod mlp;

use crate::layers::{Layout, adds_in_place, half_scratch, packed_halves, packed_weights, product_scratch};

/// What one unit of a model holds while it trains, for one micro-batch. All fields count numbers: of four
/// bytes, or of two in `bf16`. Weights, and what is in place, always have four.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSizes {
    /// Weights. The gradient and each of the optimizer's tensors hold as many numbers; running means have no
    /// tensors of the optimizer, and are counted as if they had.
    pub weights: u64,
    /// Packed copies of weights, in the order in which products on the CPU read them in `f32`.
    pub packed: u64,
    /// The same in `bf16`.
    pub packed_bf16: u64,
    /// The weights whose gradient on the CPU is added in place to the sum of the group before, if it is the
    /// gradient of a whole gradient group.
    pub in_place: u64,
    /// What forward keeps for backward-input.
    pub saved: u64,
    /// The part of `saved` that has four bytes in `bf16` too: ids, and sums over rows.
    pub saved_f32: u64,
    /// The part of `saved` that the unit before keeps too.
    pub shared: u64,
    /// What backward-input keeps for backward-weight.
    pub pending: u64,
    /// The part of `pending` that has four bytes in `bf16` too: ids, and gradients of norms.
    pub pending_f32: u64,
    /// The output.
    pub output: u64,
    /// What forward keeps if the unit recomputes its interior in backward.
    pub selective: u64,
    /// The part of `selective` that has four bytes in `bf16` too.
    pub selective_f32: u64,
    /// What a pass needs in addition while it runs. Units of the same model use the same buffers.
    pub working: u64,
    /// The same in `bf16` on the CPU.
    pub working_bf16: u64,
    /// The bytes that convolutions on a GPU need in addition while a pass runs.
    pub windows_on_gpu: u64,
}

/// The sizes of a norm and the output projection after it, for `tokens` tokens. `gains`: the numbers of the
/// norm's parameters.
fn head([dim, vocab]: [usize; 2], gains: usize, tokens: u64) -> UnitSizes {
    let (stream, scores) = (tokens * dim as u64, tokens * vocab as u64);
    let linear = [[dim, vocab]];
    UnitSizes {
        weights: (gains + dim * vocab) as u64,
        packed: packed(&linear, Layout::OutIn, tokens),
        packed_bf16: packed_bf16(&linear),
        in_place: in_place(&linear, tokens),
        saved: stream + of_rows(tokens),
        saved_f32: of_rows(tokens),
        selective: stream + of_rows(tokens),
        selective_f32: of_rows(tokens),
        pending: stream + scores + of_gains(dim),
        pending_f32: of_gains(dim),
        output: scores,
        working: 3 * stream + scratch(&linear, Layout::OutIn, tokens),
        working_bf16: 3 * stream + scratch_bf16(&linear, Layout::OutIn, tokens),
        ..UnitSizes::default()
    }
}

/// What a norm keeps beside its input: two sums a row.
fn of_rows(rows: u64) -> u64 {
    2 * rows
}

/// What a norm keeps for backward-weight: the gradients of scale and shift, also where it has no shift.
fn of_gains(width: usize) -> u64 {
    2 * width as u64
}

/// The weights and biases of linear layers with these inputs and outputs.
fn biased(linears: &[[usize; 2]]) -> u64 {
    let numbers = linears.iter().map(|[inputs, outputs]| (inputs + 1) * outputs);
    numbers.sum::<usize>() as u64
}

/// The packed weights that linear layers with these inputs and outputs keep.
fn packed(linears: &[[usize; 2]], layout: Layout, rows: u64) -> u64 {
    let numbers = linears.iter().map(|&sizes| packed_weights(sizes, layout, rows as usize));
    numbers.sum::<usize>() as u64
}

/// As [`packed`], in `bf16`.
fn packed_bf16(linears: &[[usize; 2]]) -> u64 {
    let numbers = linears.iter().map(|&sizes| packed_halves(sizes));
    numbers.sum::<usize>() as u64
}

/// The weights of linear layers with these inputs and outputs, if their gradients are added in place.
fn in_place(linears: &[[usize; 2]], rows: u64) -> u64 {
    let numbers = linears.iter().map(|[inputs, outputs]| inputs * outputs);
    match adds_in_place(rows as usize) {
        true => numbers.sum::<usize>() as u64,
        false => 0,
    }
}

/// What the largest product of linear layers with these inputs and outputs needs while it runs.
fn scratch(linears: &[[usize; 2]], layout: Layout, rows: u64) -> u64 {
    let numbers = linears.iter().map(|&sizes| product_scratch(sizes, layout, rows as usize));
    numbers.max().unwrap_or(0) as u64
}

/// As [`scratch`], in `bf16`.
fn scratch_bf16(linears: &[[usize; 2]], layout: Layout, rows: u64) -> u64 {
    let numbers = linears.iter().map(|&sizes| half_scratch(sizes, layout, rows as usize));
    numbers.max().unwrap_or(0) as u64
}
