//! Token and position embedding.

use std::ops::Range;

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::error::Result;
use crate::tensor::Tensor;

/// A token with more rows than this is cut into parts.
const PART: u32 = 32;

/// How many numbers a `Part` of the kernels has.
const NUMBERS: usize = 4;

/// The rows of a batch, sorted by token. So gradients are added in a fixed order. It keeps its memory between
/// batches.
#[derive(Debug, Default)]
pub(crate) struct ByToken {
    /// For every token, the index of its next row in the table. Zero between batches.
    places: Vec<u32>,
    /// The different tokens of the batch.
    tokens: Vec<u32>,
    /// The table for the device: the order of the rows, then the parts, then the sums of parts.
    table: Vec<u32>,
    /// The last section of the table, while the table is made.
    sums: Vec<u32>,
    rows: usize,
    parts: usize,
    /// How many partial sums there are.
    partials: u32,
}

impl ByToken {
    /// Sorts the rows of these ids. The rows of `padding`, and of tokens that are not `own`, are in no part.
    pub(crate) fn sort(&mut self, ids: &[u32], own: &Range<usize>, padding: Option<u32>) {
        self.rows = ids.len();
        // All tokens that are in no part count as one, after the last one.
        let no_part = own.len() as u32;
        let token = |id: u32| match own.contains(&(id as usize)) && padding != Some(id) {
            true => id - own.start as u32,
            false => no_part,
        };
        self.places.resize(own.len() + 1, 0);
        self.tokens.clear();
        self.table.clear();
        self.table.resize(ids.len(), 0);
        for token in ids.iter().map(|id| token(*id)) {
            let count = &mut self.places[token as usize];
            if *count == 0 {
                self.tokens.push(token);
            }
            *count += 1;
        }
        self.cut(no_part);
        for (row, &id) in (0_u32..).zip(ids) {
            let place = &mut self.places[token(id) as usize];
            self.table[*place as usize] = row;
            *place += 1;
        }
        for &token in &self.tokens {
            self.places[token as usize] = 0;
        }
    }

    /// Turns each token's count into the index of its first row. Appends two lists to the table: the parts,
    /// and which parts are added together.
    fn cut(&mut self, no_part: u32) {
        self.sums.clear();
        (self.parts, self.partials) = (0, 0);
        let mut first = 0;
        for &token in &self.tokens {
            let count = std::mem::replace(&mut self.places[token as usize], first);
            if token == no_part {
                first += count;
                continue;
            }
            // About as many parts as rows in a part, so that both sums are short.
            let most = count.isqrt().max(PART);
            let is_cut = count > most;
            if is_cut {
                let parts = count.div_ceil(most);
                self.sums.extend([self.partials, parts, token, 0]);
            }
            for start in (0..count).step_by(most as usize) {
                let to = if is_cut { self.partials } else { token };
                let rows = (count - start).min(most);
                self.table.extend([first + start, rows, to, u32::from(is_cut)]);
                self.parts += 1;
                self.partials += u32::from(is_cut);
            }
            first += count;
        }
        self.table.extend(&self.sums);
        // Pads the table to one of few lengths, so that its memory on the device can be used again for other
        // tokens.
        let length = self.table.len().next_multiple_of(self.rows.max(1));
        self.table.resize(length, 0);
    }

    /// Adds each row of `grad[rows, dim]` to its token's row of `tokens`, `f32` `[vocab, dim]`.
    pub(crate) fn add_grads(&self, gpu: &Gpu, tokens: Ptr, grad: &Tensor) -> Result<()> {
        let dim = grad.shape().last();
        let table = gpu.upload(bytemuck::cast_slice(&self.table))?;
        // A token that is cut into parts has at least 16 rows for each part.
        let scratch = gpu.memory_of((self.rows / 16 * dim * 4).next_power_of_two())?;
        let parts = table.at().offset(4 * self.rows);
        let sums = parts.offset(4 * NUMBERS * self.parts);
        let args = args![tokens, &scratch, grad, &table, parts, dim];
        gpu.launch(kernel!(grad.dtype(), "embedding_tokens"), Grid::of_rows(self.parts, dim), &args)?;
        let grid = Grid::of_rows(self.sums.len() / NUMBERS, dim);
        gpu.launch("embedding_parts", grid, &args![tokens, &scratch, sums, dim])
    }
}
