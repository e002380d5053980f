//! The rows of a micro-batch's tokens, where the tokens are.

use std::ops::Range;
use std::rc::Rc;

use super::Routing;
use super::choice::Choice;
use crate::cpu::real::{Real, in_format};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Ptr};
use crate::error::Result;
use crate::layers::experts::cpu as experts;
use crate::tensor::Tensor;

/// The threads of a block in which each warp has a token.
const THREADS: u32 = 256;

/// A choice, and what moves rows between tokens and experts by it.
///
/// On a GPU too the host chooses and sorts: it has to know how many rows each expert has, because it queues a
/// product for each. So it waits for the scores once a forward pass. From then on what it chose is kept, and
/// backward waits for nothing.
pub(super) struct Placed<'a> {
    choice: &'a mut Choice,
    routing: Routing,
    /// The rows that are here, if the experts are divided among shards.
    own: Option<Range<usize>>,
    on_gpu: Option<OnGpu>,
}

/// A copy of the choice on a GPU.
struct OnGpu {
    gpu: Rc<Gpu>,
    /// As [`Choice::table`] has it.
    table: Memory,
}

/// The addresses of the lists in it.
struct Lists {
    /// The experts of each token.
    chosen: Ptr,
    /// In this order, the places of the rows.
    places: Ptr,
    /// The token of each row.
    tokens: Ptr,
    /// The weight of each row, `f32`.
    weights: Ptr,
    /// The number of each expert's rows.
    counts: Ptr,
}

impl<'a> Placed<'a> {
    /// The choice of these tokens.
    pub(super) fn of(tokens: &Tensor, choice: &'a mut Choice, routing: Routing) -> Result<Self> {
        let on_gpu = match tokens.gpu()? {
            Some(gpu) => {
                let table = gpu.upload(bytemuck::cast_slice(choice.table()))?;
                Some(OnGpu { gpu, table })
            }
            None => None,
        };
        Ok(Self { choice, routing, own: None, on_gpu })
    }

    /// The choice of all tokens, of which the rows of these experts are here.
    pub(super) fn of_experts(
        tokens: &Tensor,
        choice: &'a mut Choice,
        routing: Routing,
        experts: Range<usize>,
    ) -> Result<Self> {
        let own = Some(choice.rows_of(experts));
        Ok(Self { own, ..Self::of(tokens, choice, routing)? })
    }

    /// The rows that are here, among all rows.
    pub(super) fn own(&self) -> Range<usize> {
        self.own.clone().unwrap_or(0..self.count())
    }

    /// The token of each row.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.choice.tokens[self.own()]
    }

    /// How many rows all experts have, here and elsewhere.
    pub(super) fn count(&self) -> usize {
        self.choice.tokens.len()
    }

    /// The rows of these experts, among all rows.
    pub(super) fn rows_of(&self, experts: Range<usize>) -> Range<usize> {
        self.choice.rows_of(experts)
    }

    /// Makes `part` the choice of these tokens only.
    pub(super) fn take_choice(&self, part: &mut Choice, tokens: Range<usize>) {
        part.take_part(self.choice, tokens, self.routing);
    }

    /// The rows of each expert. There are none of an expert that is elsewhere.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let own = self.own();
        let within = move |row: usize| row.clamp(own.start, own.end) - own.start;
        self.choice.rows().map(move |rows| within(rows.start)..within(rows.end))
    }

    /// The number of rows of a tensor for the rows of all experts here. It is one of few, so that memory is
    /// used again: a tensor may have more rows than there are.
    fn room(&self) -> usize {
        match &self.own {
            Some(own) => few_sizes(own.len()),
            None => self.count(),
        }
    }

    /// A tensor for the rows of all experts, in the same place as another. Its contents are unspecified.
    pub(super) fn beside(&self, other: &Tensor, width: usize) -> Result<Tensor> {
        other.beside(&[self.room(), width])
    }

    fn gpu(&self) -> Option<(&Gpu, Lists)> {
        let OnGpu { gpu, table } = self.on_gpu.as_ref()?;
        let rows = self.choice.tokens.len();
        let list = |index: usize| table.at().offset(index * rows * size_of::<u32>());
        let [chosen, places, tokens, weights, counts] = [0, 1, 2, 3, 4].map(list);
        Some((gpu, Lists { chosen, places, tokens, weights, counts }))
    }

    /// For each row, the numbers of its token.
    pub(super) fn take(&self, tokens: &Tensor) -> Result<Tensor> {
        let width = tokens.shape().last();
        let mut rows = self.beside(tokens, width)?;
        match self.gpu() {
            Some((gpu, lists)) => {
                let own = self.own();
                let of_rows = lists.tokens.offset(own.start * size_of::<u32>());
                take_on(gpu, &rows, tokens, (of_rows, own.len()))?;
            }
            None => in_format!(tokens.dtype(), N => {
                let own = self.tokens();
                let rows = &mut rows.numbers_mut::<N>()[..own.len() * width];
                experts::take(rows, tokens.numbers(), own, width);
            }),
        }
        Ok(rows)
    }

    /// The rows of each token, times their weights, added up. The result is like `tokens`.
    pub(super) fn mixed(&self, rows: &Tensor, tokens: &Tensor) -> Result<Tensor> {
        let mut sums = tokens.beside(tokens.dims())?;
        let (width, dtype) = (tokens.shape().last(), tokens.dtype());
        match self.gpu() {
            Some((gpu, lists)) => {
                let args = args![&sums, rows, lists.places, lists.weights, self.routing.chosen, width];
                let grid = Grid::of_rows(tokens.shape().rows(), width);
                gpu.launch(kernel!(dtype, "experts_mix"), grid, &args)?;
            }
            None => in_format!(dtype, N => {
                let (places, weights) = (&self.choice.places, Some(&self.choice.weights[..]));
                let sums = sums.numbers_mut::<N>();
                sums.fill(N::narrow(0.0));
                experts::add_mixed(sums, rows.numbers(), places, weights, width);
            }),
        }
        Ok(sums)
    }

    /// Adds the rows of each token to it.
    pub(super) fn add(&self, tokens: &mut Tensor, rows: &Tensor) -> Result<()> {
        let (width, dtype) = (tokens.shape().last(), tokens.dtype());
        match self.gpu() {
            Some((gpu, lists)) => {
                let args = args![&*tokens, rows, lists.places, self.routing.chosen, width];
                let grid = Grid::of_rows(tokens.shape().rows(), width);
                gpu.launch(kernel!(dtype, "experts_add"), grid, &args)?;
            }
            None => in_format!(dtype, N => {
                let places = &self.choice.places;
                experts::add_mixed::<N>(tokens.numbers_mut(), rows.numbers(), places, None, width);
            }),
        }
        Ok(())
    }

    /// Multiplies both by the weights of their rows. Returns the slopes of the weights: the scalar products
    /// of the rows before.
    pub(super) fn weigh(&self, grads: &mut Tensor, values: &mut Tensor) -> Result<Tensor> {
        let (own, width, dtype) = (self.own(), values.shape().last(), grads.dtype());
        let count = own.len();
        let mut slopes = grads.f32_beside(&[self.room(), 1])?;
        match self.gpu() {
            Some((gpu, lists)) => {
                let weights = lists.weights.offset(own.start * size_of::<f32>());
                let args = args![&*grads, &*values, &slopes, weights, width];
                gpu.launch(kernel!(dtype, "experts_weigh"), Grid::of_rows(count, width), &args)?;
            }
            None => in_format!(dtype, N => {
                let numbers = count * width;
                let (grads, values) = (grads.numbers_mut::<N>(), values.numbers_mut());
                let (grads, values) = (&mut grads[..numbers], &mut values[..numbers]);
                let slopes = &mut slopes.f32_mut()[..count];
                experts::weigh(grads, values, &self.choice.weights[own], slopes, width);
            }),
        }
        Ok(slopes)
    }

    /// The gradient of the scores, from the slopes of the weights: the gradient through the weights, plus the
    /// gradient of the auxiliary loss.
    pub(super) fn scores_grad(&mut self, scores: &Tensor, slopes: &Tensor) -> Result<Tensor> {
        let mut grads = scores.beside(scores.dims())?;
        let dtype = scores.dtype();
        match self.gpu() {
            Some((gpu, lists)) => {
                let tokens = scores.shape().rows();
                let Routing { chosen, experts, .. } = self.routing;
                let args = args![
                    &grads,
                    scores,
                    slopes,
                    lists.chosen,
                    lists.places,
                    lists.weights,
                    lists.counts,
                    tokens,
                    chosen,
                    experts,
                    self.routing.share(tokens)
                ];
                gpu.launch(kernel!(dtype, "experts_scores"), Grid::each(32 * tokens, THREADS), &args)?;
            }
            None => in_format!(dtype, N => {
                let out = grads.numbers_mut::<N>();
                self.choice.scores_grad(out, scores.numbers(), slopes.f32(), self.routing);
            }),
        }
        Ok(grads)
    }
}

/// Copies rows of a tensor on a GPU to the first rows of another: those whose numbers are at this address, as
/// many as is said.
pub(super) fn take_on(gpu: &Gpu, to: &Tensor, from: &Tensor, (numbers, count): (Ptr, usize)) -> Result<()> {
    let width = from.shape().last();
    // It is what an embedding does, from a table of tokens without positions.
    let args = args![to, numbers, from, Ptr::NONE, 0_usize, 1_usize, Ptr::NONE, width];
    gpu.launch(kernel!(from.dtype(), "embedding_forward"), Grid::of_rows(count, width), &args)
}

/// The number itself or a larger one: of four sizes in each power of two.
pub(super) fn few_sizes(count: usize) -> usize {
    count.next_multiple_of((count.next_power_of_two() / 8).max(1))
}
