//! How much memory the units of a perceptron need.

use super::{UnitSizes, biased, in_place, packed, packed_bf16, scratch, scratch_bf16};
use crate::layers::Layout;
use crate::models::Mlp;

impl Mlp {
    /// The sizes of all units, in order, for micro-batches of `rows` rows.
    pub fn unit_sizes(&self, rows: usize) -> Vec<UnitSizes> {
        let wide = |width: usize| (rows * width) as u64;
        let input = self.sizes.first().map_or(0, |&width| wide(width));
        let mut units = vec![UnitSizes { output: input, ..UnitSizes::default() }];
        for (index, pair) in self.sizes.windows(2).enumerate() {
            let (inputs, outputs) = (wide(pair[0]), wide(pair[1]));
            let (linear, rows) = ([[pair[0], pair[1]]], rows as u64);
            units.push(UnitSizes {
                weights: biased(&linear),
                packed: packed(&linear, Layout::OutIn, rows),
                packed_bf16: packed_bf16(&linear),
                in_place: in_place(&linear, rows),
                saved: inputs,
                selective: inputs,
                // This layer reads the previous activation itself, unless dropout made a copy of it.
                shared: if index > 0 && self.dropout == 0.0 { inputs } else { 0 },
                pending: inputs + outputs,
                output: outputs,
                working: inputs + outputs + scratch(&linear, Layout::OutIn, rows),
                working_bf16: inputs + outputs + scratch_bf16(&linear, Layout::OutIn, rows),
                ..UnitSizes::default()
            });
            if index + 2 < self.sizes.len() {
                units.push(UnitSizes {
                    saved: outputs,
                    selective: outputs,
                    output: outputs,
                    working: outputs,
                    working_bf16: outputs,
                    ..UnitSizes::default()
                });
            }
        }
        units
    }
}
