//! How much memory the units of networks of convolutions need.

use super::{UnitSizes, biased, in_place, packed, packed_bf16, scratch, scratch_bf16};
use crate::layers::{ConvSizes, Layout};
use crate::models::{Cnn, ResNet};

impl Cnn {
    /// The sizes of all units, in order, for micro-batches of `rows` images.
    pub fn unit_sizes(&self, rows: usize) -> Vec<UnitSizes> {
        let images = self.images();
        let count = |image: &[usize; 3]| (rows * image.iter().product::<usize>()) as u64;
        let convolution = |pair: &[[usize; 3]]| {
            let [height, width, inputs] = pair[0];
            let outputs = pair[1][2];
            let conv = ConvSizes { rows, sides: [height, width], channels: [inputs, outputs], kernel: 3 };
            let (input, wide, output) = (count(&pair[0]), conv.outputs(), count(&pair[1]));
            UnitSizes {
                weights: conv.weights() + outputs as u64,
                packed: conv.packed(),
                packed_bf16: in_f32(conv.packed()),
                in_place: conv.in_place(),
                // The input, what ReLU gives, and where the largest numbers are.
                saved: input + wide + output,
                saved_f32: output,
                selective: input + wide + output,
                selective_f32: output,
                pending: input + wide,
                output,
                working: input + 2 * wide + conv.scratch(),
                working_bf16: input + 2 * wide + in_f32(input + wide + conv.scratch()),
                windows_on_gpu: blocks([conv.rows_on_gpu()]),
                ..UnitSizes::default()
            }
        };
        let mut units: Vec<UnitSizes> = images.windows(2).map(convolution).collect();
        let last = images.last().map_or(0, |image| image.iter().product());
        units.push(linear(last, self.classes, rows));
        units
    }
}

/// Numbers that are in `f32` in `bf16` too, counted as numbers of `bf16`.
fn in_f32(numbers: u64) -> u64 {
    2 * numbers
}

/// Bytes of memory for the windows of several layers. Blocks have sizes of powers of two, and are kept.
fn blocks(each: impl IntoIterator<Item = u64>) -> u64 {
    2 * each.into_iter().max().unwrap_or(0)
}

/// A linear layer whose input nobody else keeps.
fn linear(inputs: usize, outputs: usize, rows: usize) -> UnitSizes {
    let (sizes, rows) = ([[inputs, outputs]], rows as u64);
    let [input, output] = [inputs, outputs].map(|width| rows * width as u64);
    UnitSizes {
        weights: biased(&sizes),
        packed: packed(&sizes, Layout::OutIn, rows),
        packed_bf16: packed_bf16(&sizes),
        in_place: in_place(&sizes, rows),
        saved: input,
        selective: input,
        pending: input + output,
        output,
        working: input + output + scratch(&sizes, Layout::OutIn, rows),
        working_bf16: input + output + scratch_bf16(&sizes, Layout::OutIn, rows),
        ..UnitSizes::default()
    }
}

/// What a batch norm of `channels` channels keeps beside its input.
fn of_norm(channels: usize) -> u64 {
    2 * channels as u64
}

/// The parameters of a batch norm, and what it keeps for backward-weight.
fn of_parameters(channels: usize) -> u64 {
    4 * channels as u64
}

impl ResNet {
    /// The sizes of all units, in order, for micro-batches of `rows` images.
    pub fn unit_sizes(&self, rows: usize) -> Vec<UnitSizes> {
        let [height, width, channels] = self.image;
        let stem = ConvSizes { rows, sides: [height, width], channels: [channels, self.width], kernel: 3 };
        let (input, wide) = (stem.inputs(), stem.outputs());
        let saved = input + 2 * wide + of_norm(self.width);
        let mut units = vec![UnitSizes {
            weights: stem.weights() + of_parameters(self.width),
            packed: stem.packed(),
            packed_bf16: in_f32(stem.packed()),
            in_place: stem.in_place(),
            saved,
            saved_f32: of_norm(self.width),
            selective: saved,
            selective_f32: of_norm(self.width),
            pending: input + wide + of_parameters(self.width),
            pending_f32: of_parameters(self.width),
            output: wide,
            working: 2 * wide + stem.scratch(),
            working_bf16: 2 * wide + in_f32(2 * wide + input + stem.scratch()),
            windows_on_gpu: blocks([stem.rows_on_gpu()]),
            ..UnitSizes::default()
        }];
        units.extend(self.all_blocks().iter().map(|block| {
            let [inputs, outputs] = block.channels;
            let sides = block.sides_out();
            let first = ConvSizes { rows, sides, channels: [inputs, outputs], kernel: 3 };
            let second = ConvSizes { channels: [outputs; 2], ..first };
            let shortcut = block.is_projected().then_some(ConvSizes { kernel: 1, ..first });
            let convs = || [Some(first), Some(second), shortcut].into_iter().flatten();
            let norms = convs().count() as u64;
            let input = (rows * block.sides.iter().product::<usize>() * inputs) as u64;
            let output = first.outputs();
            let stats = norms * of_norm(outputs);
            let adds = norms * of_parameters(outputs);
            let scratch = convs().map(|conv| conv.scratch()).max().unwrap_or(0);
            UnitSizes {
                weights: convs().map(|conv| conv.weights()).sum::<u64>() + adds,
                packed: convs().map(|conv| conv.packed()).sum(),
                packed_bf16: in_f32(convs().map(|conv| conv.packed()).sum::<u64>()),
                in_place: convs().map(|conv| conv.in_place()).sum(),
                // The input; what each norm reads; what both ReLUs give.
                saved: input + norms * output + 2 * output + stats,
                saved_f32: stats,
                selective: input + output,
                shared: input,
                pending: input + output + norms * output + adds,
                pending_f32: adds,
                output,
                working: input + output + scratch,
                working_bf16: input + output + in_f32(input + 2 * output + scratch),
                windows_on_gpu: blocks(convs().map(|conv| conv.rows_on_gpu())),
                ..UnitSizes::default()
            }
        }));
        let last = self.width << self.blocks.len().saturating_sub(1);
        units.push(linear(last, self.classes, rows));
        units
    }
}
