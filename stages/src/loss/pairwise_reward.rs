//! The loss of a reward model.

use std::fmt;

use super::Score;
use super::base::{Loss, check_output};
use super::cuda::Scores;
use super::pair::{NO_LABEL, Sums, check_pairs, labels_of, logistic, time_of};
use crate::cpu::real::{Real, in_format};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid};
use crate::error::Result;
use crate::shape::{Kind, Shape};
use crate::tensor::Tensor;

/// Teaches a reward model from pairs of answers: the preferred one has to get the larger reward.
///
/// The output is `[rows, time, 1]`, a number for each token. The reward of a row is the number at the last
/// token of its answer. Rows and target are as for [`Preference`](super::Preference); no reference is used.
///
/// The loss of a pair is `-ln sigmoid(r - s)`, in nats, where `r` is the reward of the preferred answer and
/// `s` is the reward of the other one: Bradley and Terry's model. Ouyang et al., "Training language models to
/// follow instructions with human feedback" (2022), equation 1. The weight is the number of pairs.
///
/// Its metrics are the `accuracy`, the share of pairs in which the preferred answer has the larger reward;
/// the mean `margin`, `r - s`; and the mean rewards, `chosen` and `rejected`.
///
/// ```
/// use pipewright_stages::loss::{Loss, PairwiseReward};
/// use pipewright_stages::Tensor;
///
/// // A pair of answers of two tokens. The label of the last one is at the place before it.
/// let rewards = Tensor::from_vec(&[2, 2, 1], vec![0.0, 1.0, 0.0, -1.0])?;
/// let none = u32::MAX;
/// let target = Tensor::from_ids(&[2, 4], vec![5, none, 0, 0, 6, none, 0, 0])?;
///
/// let (score, grad) = PairwiseReward::default().forward(rewards, target)?;
/// assert_eq!(score.metrics.get("margin"), Some(2.0));
/// assert!(grad.f32()[1] < 0.0 && grad.f32()[3] > 0.0);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct PairwiseReward {
    on_gpu: Scores<{ Sums::COUNT }>,
}

impl PairwiseReward {
    /// The place in a row of the last token of its answer, by its labels. `None`: it has no answer.
    fn last(labels: &[u32]) -> Option<usize> {
        // A label is the token at the next place, and the last token of a row that is full is not there.
        let last = labels.iter().rposition(|label| *label != NO_LABEL)?;
        Some((last + 1).min(labels.len() - 1))
    }

    /// Turns rewards into the gradient, and adds up the pairs.
    fn run<N: Real>(output: &mut [N], labels: &Tensor) -> Sums {
        let time = labels.dims()[1];
        let mut sums = Sums::default();
        for (output, labels) in output.chunks_exact_mut(2 * time).zip(labels.ids().chunks_exact(2 * time)) {
            let places = [0, 1].map(|of| Some(of * time + Self::last(&labels[of * time..][..time])?));
            let [Some(chosen), Some(rejected)] = places else {
                output.fill(N::narrow(0.0));
                continue;
            };
            let given = [chosen, rejected].map(|place| f64::from(output[place].wide()));
            let margin = given[0] - given[1];
            let (loss, slope) = logistic(margin, 0.0);
            sums.add(loss, margin, given);
            output.fill(N::narrow(0.0));
            output[chosen] = N::narrow(slope);
            output[rejected] = N::narrow(-slope);
        }
        sums
    }

    /// As [`PairwiseReward::run`], on the GPU.
    fn run_on(&mut self, gpu: &Gpu, micro_batch: u32, output: &mut Tensor, labels: &Tensor) -> Result<()> {
        let (rows, time) = (labels.dims()[0], labels.dims()[1]);
        let labels = gpu.upload(bytemuck::cast_slice(labels.ids()))?;
        let scores = gpu.memory_of(rows / 2 * size_of::<[f64; Sums::COUNT]>())?;
        let args = args![output.at_mut(gpu)?, &labels, &scores, time];
        gpu.launch(kernel!(output.dtype(), "pairwise_reward"), Grid::row(rows / 2, 256), &args)?;
        let place = self.on_gpu.place(micro_batch, true)?;
        gpu.sum_doubles(place, scores.at(), rows / 2, Sums::COUNT)
    }

    fn told(&self, micro_batch: u32) -> Score {
        Sums::of(self.on_gpu.numbers(micro_batch)).score()
    }
}

/// It has no settings. The room for scores differs from process to process.
impl fmt::Debug for PairwiseReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairwiseReward")
    }
}

impl Loss<Tensor> for PairwiseReward {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        let rewards = output.kind() == Kind::F32 && output.dims().len() == 3 && output.last() == 1;
        check_output(rewards, "f32[rows, time, 1]", output)?;
        check_pairs(output.dims()[0], output.dims()[1], target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        let (score, grad) = self.start(0, output, target)?;
        if let Some(gpu) = grad.gpu()? {
            gpu.synchronize()?;
        }
        Ok((score.unwrap_or_else(|| self.told(0)), grad))
    }

    fn start(
        &mut self,
        micro_batch: u32,
        mut output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        self.check(output.shape(), target.shape())?;
        let time = time_of(&target);
        let rows = target.dims()[0];
        let labels = labels_of(&target, 0..rows * time, &[rows, time]);
        if let Some(gpu) = output.gpu()? {
            self.run_on(&gpu, micro_batch, &mut output, &labels)?;
            return Ok((None, output));
        }
        let sums = in_format!(output.dtype(), N => Self::run(output.numbers_mut::<N>(), &labels));
        Ok((Some(sums.score()), output))
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.told(micro_batch)
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }
}
