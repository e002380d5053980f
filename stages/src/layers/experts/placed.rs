//! The rows of a micro-batch's tokens, where the tokens are.

use std::ops::Range;
use std::rc::Rc;

use super::Routing;
use super::choice::Choice;
use crate::cpu::real::{Real, in_format};
use crate::cuda::{Gpu, Memory};
use crate::device::DType;
use crate::error::Result;
use crate::layers::experts::cpu as experts;
use crate::layers::experts::cuda::ChoiceOnGpu;
use crate::tensor::Tensor;

/// A choice, and what moves rows between tokens and experts by it.
///
/// On a GPU too the host chooses and sorts: it has to know how many rows each expert has, because it queues a
/// product for each. So it waits for the scores once a forward pass. From then on what it chose is kept, and
/// backward waits for nothing.
pub(super) struct Placed<'a> {
    choice: &'a mut Choice,
    routing: Routing,
    on_gpu: Option<OnGpu>,
}

/// A copy of the choice on a GPU.
struct OnGpu {
    gpu: Rc<Gpu>,
    /// As [`Choice::table`] has it.
    table: Memory,
}

impl OnGpu {
    fn lists(&self, choice: &Choice, routing: Routing) -> ChoiceOnGpu {
        let rows = choice.tokens.len();
        let list = |index: usize| self.table.at().offset(index * rows * size_of::<u32>());
        ChoiceOnGpu {
            chosen: list(0),
            places: list(1),
            row_tokens: list(2),
            weights: list(3),
            counts: list(4),
            tokens: rows / routing.chosen,
            of_token: routing.chosen,
            experts: routing.experts,
        }
    }
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
        Ok(Self { choice, routing, on_gpu })
    }

    /// The rows of each expert.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.choice.rows()
    }

    /// A tensor for the rows of all experts, in the same place as another. Its contents are unspecified.
    pub(super) fn beside(&self, other: &Tensor, width: usize) -> Result<Tensor> {
        other.beside(&[self.choice.tokens.len(), width])
    }

    fn gpu(&self) -> Option<(&Gpu, ChoiceOnGpu)> {
        let on_gpu = self.on_gpu.as_ref()?;
        Some((&on_gpu.gpu, on_gpu.lists(self.choice, self.routing)))
    }

    /// For each row, the numbers of its token.
    pub(super) fn take(&self, tokens: &Tensor) -> Result<Tensor> {
        let width = tokens.shape().last();
        let mut rows = self.beside(tokens, width)?;
        match self.gpu() {
            Some((gpu, lists)) => {
                gpu.experts_take(tokens.dtype(), [rows.at(), tokens.at()], lists, width)?;
            }
            None => in_format!(tokens.dtype(), N => {
                experts::take::<N>(rows.numbers_mut(), tokens.numbers(), &self.choice.tokens, width);
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
                gpu.experts_mix(dtype, [sums.at(), rows.at()], lists, width)?;
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
                gpu.experts_add(dtype, [tokens.at(), rows.at()], lists, width)?;
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
        let (count, width) = (self.choice.tokens.len(), values.shape().last());
        match self.gpu() {
            Some((gpu, lists)) => {
                let slopes = Tensor::on_gpu(gpu, DType::F32, &[count])?;
                let both = [grads.at(), values.at()];
                gpu.experts_weigh(grads.dtype(), both, slopes.at(), lists, width)?;
                Ok(slopes)
            }
            None => {
                let mut slopes = Tensor::on_host(&[count])?;
                in_format!(grads.dtype(), N => {
                    let both = (grads.numbers_mut::<N>(), values.numbers_mut());
                    let weights = &self.choice.weights;
                    experts::weigh(both.0, both.1, weights, slopes.f32_mut(), width);
                });
                Ok(slopes)
            }
        }
    }

    /// The gradient of the scores, from the slopes of the weights: the gradient through the weights, plus the
    /// gradient of the auxiliary loss.
    pub(super) fn scores_grad(&mut self, scores: &Tensor, slopes: &Tensor) -> Result<Tensor> {
        let mut grads = scores.beside(scores.dims())?;
        let dtype = scores.dtype();
        match self.gpu() {
            Some((gpu, lists)) => {
                let share = self.routing.share(scores.shape().rows());
                let both = [grads.at(), scores.at()];
                gpu.experts_scores(dtype, both, slopes.at(), lists, share)?;
            }
            None => in_format!(dtype, N => {
                let out = grads.numbers_mut::<N>();
                self.choice.scores_grad(out, scores.numbers(), slopes.f32(), self.routing);
            }),
        }
        Ok(grads)
    }
}
