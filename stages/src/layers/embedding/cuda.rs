//! Token and position embedding.

use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

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
    /// Sorts the rows of these ids. Each id is below `vocab`. The rows of `padding` are in no part.
    pub(crate) fn sort(&mut self, ids: &[u32], vocab: usize, padding: Option<u32>) {
        self.rows = ids.len();
        self.places.resize(vocab, 0);
        self.tokens.clear();
        self.table.clear();
        self.table.resize(ids.len(), 0);
        for &id in ids {
            let count = &mut self.places[id as usize];
            if *count == 0 {
                self.tokens.push(id);
            }
            *count += 1;
        }
        self.cut(padding);
        for (row, &id) in (0_u32..).zip(ids) {
            let place = &mut self.places[id as usize];
            self.table[*place as usize] = row;
            *place += 1;
        }
        for &token in &self.tokens {
            self.places[token as usize] = 0;
        }
    }

    /// Turns each token's count into the index of its first row. Appends two lists to the table: the parts,
    /// and which parts are added together.
    fn cut(&mut self, padding: Option<u32>) {
        self.sums.clear();
        (self.parts, self.partials) = (0, 0);
        let mut first = 0;
        for &token in &self.tokens {
            let count = std::mem::replace(&mut self.places[token as usize], first);
            if padding == Some(token) {
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

    /// The table for the device.
    pub(crate) fn table(&self) -> &[u32] {
        &self.table
    }

    /// The bytes of scratch memory that [`Gpu::add_token_grads`] needs, for any tokens.
    pub(crate) fn scratch(&self, dim: usize) -> usize {
        // A token that is cut into parts has at least 16 rows for each part.
        self.rows / 16 * dim * 4
    }
}

impl Gpu {
    /// `out[rows, dim] = tokens[ids[row]] + positions[row % time]`. All but the ids are of `dtype`.
    /// `positions` may be [`Ptr::NONE`].
    pub(crate) fn embedding(
        &self,
        dtype: DType,
        out: Ptr,
        ids: Ptr,
        tokens: Ptr,
        positions: Ptr,
        [rows, time, dim]: [usize; 3],
    ) -> Result<()> {
        let args = args![out, ids, tokens, positions, time, dim];
        let grid = Grid::of_rows(rows, dim);
        self.launch(kernel!(dtype, "embedding_forward"), grid, &args)
    }

    /// Adds each row of `grad[rows, dim]` to its token's row of `tokens`, `f32` `[vocab, dim]`. `table` is
    /// [`ByToken::table`] on the device.
    #[expect(clippy::too_many_arguments, reason = "they are the kernel's")]
    pub(crate) fn add_token_grads(
        &self,
        dtype: DType,
        tokens: Ptr,
        grad: Ptr,
        dim: usize,
        rows: &ByToken,
        table: Ptr,
        scratch: Ptr,
    ) -> Result<()> {
        let parts = table.offset(4 * rows.rows);
        let sums = parts.offset(4 * NUMBERS * rows.parts);
        let args = args![tokens, scratch, grad, table, parts, dim];
        let grid = Grid::of_rows(rows.parts, dim);
        self.launch(kernel!(dtype, "embedding_tokens"), grid, &args)?;
        let args = args![tokens, scratch, sums, dim];
        let grid = Grid::of_rows(rows.sums.len() / NUMBERS, dim);
        self.launch("embedding_parts", grid, &args)
    }

    /// Adds to `positions`, `f32` `[time or more, dim]`, the sum over the batch of `grad[batch, time, dim]`.
    pub(crate) fn add_position_grads(
        &self,
        dtype: DType,
        positions: Ptr,
        grad: Ptr,
        [batch, time, dim]: [usize; 3],
    ) -> Result<()> {
        let args = args![positions, grad, batch, dim];
        let grid = Grid::of_rows(time, dim);
        self.launch(kernel!(dtype, "embedding_positions"), grid, &args)
    }
}
