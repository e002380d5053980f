//! Cross-entropy over classes.

use std::fmt;

use super::base::{Loss, check_output, check_target, refused};
use super::some_rows::SomeRows;
use super::{Metric, Score};
use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::real::{Real, in_format};
use crate::cpu::softmax;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::error::{Error, Result, check_ids};
use crate::loss::cuda::{SCORE, Scores};
use crate::loss::divided_cross_entropy::Classes;
use crate::loss::groups_on_gpu::InGroups;
use crate::pool::Buffer;
use crate::shape::{Kind, Shape};
use crate::shards::{Division, Shard, Sharding, Team};
use crate::tensor::Tensor;

/// The most threads that share a row of logits, if two blocks fit on a multiprocessor, and if one does.
const ROW_THREADS: [usize; 2] = [512, 1024];
/// The most bytes of a row of logits that a block may keep in shared memory so that two blocks fit.
const KEPT_BY_TWO: usize = 110 << 10;
/// The bytes of shared memory that a block has besides the row, at most.
const REST: usize = 2 << 10;

/// The negative log-likelihood of the target class under the softmax of the output, in nats. The output is
/// logits `[.., classes]`, the target is ids `[..]`.
///
/// Its metrics are the `accuracy` and, after [`CrossEntropy::of_tokens`], the `perplexity`.
#[derive(Clone, Default)]
pub struct CrossEntropy {
    ignore: Option<u32>,
    smoothing: f32,
    of_tokens: bool,
    sharding: Sharding,
    /// The classes of this shard, if there are several shards.
    classes: Option<Classes>,
    /// What was added up of the rows so far, if some rows come at a time.
    sums: Sums,
    on_gpu: Scores<3>,
}

/// The sum of the loss, the weight, and how many targets were predicted right.
type Sums = [f64; 3];

impl CrossEntropy {
    /// A loss that ignores targets of this class: they do not count and have no gradient.
    pub fn ignoring(class: u32) -> Self {
        Self { ignore: Some(class), ..Self::default() }
    }

    /// Spreads this share of each target over all classes, in equal parts. Szegedy et al., "Rethinking the
    /// inception architecture for computer vision" (2016), section 7.
    ///
    /// With a share `e`, the loss of a row is `(1 - e) l(target) + e mean(l)`, where `l` is the negative
    /// log-likelihood of a class. With a share of 0, the default, nothing is smoothed.
    ///
    /// # Errors
    /// When `share` is not in `0..1`.
    pub fn smoothed(self, share: f32) -> Result<Self> {
        if !(0.0..1.0).contains(&share) {
            return Err(Error::new(format!(
                "label smoothing {share} is not a share below 1: choose one in 0..1, such as 0.1"
            )));
        }
        Ok(Self { smoothing: share, ..self })
    }

    /// The classes are the tokens of a vocabulary: its scores have a perplexity too. A smoothed loss is not
    /// the log-likelihood of a token, so it has none.
    #[must_use]
    pub fn of_tokens(self) -> Self {
        let of_tokens = true;
        Self { of_tokens, ..self }
    }

    /// The same loss, of classes that are divided among shards. Sums over the classes are added up in this
    /// many groups: see [`Sharding::groups`].
    ///
    /// # Errors
    /// When `groups` is no power of two.
    pub fn with_shard_groups(self, groups: u32) -> Result<Self> {
        Ok(Self { sharding: Sharding::new(groups, Shard::WHOLE)?, ..self })
    }

    /// The score of some targets.
    fn told(&self, [sum, weight, right]: Sums) -> Score {
        let accuracy = Metric::ACCURACY.of(right, weight);
        match self.of_tokens && self.smoothing == 0.0 {
            true => Score::new(sum, weight).with([accuracy, Metric::PERPLEXITY.of(sum, weight)]),
            false => Score::new(sum, weight).with([accuracy]),
        }
    }

    /// Computes the score on the GPU and, if `gradient` is set, turns the logits into the gradient.
    fn run_on(&mut self, gpu: &Gpu, of: &SomeRows, logits: &mut Tensor, target: &Tensor) -> Result<()> {
        let rows = target.shape().count();
        let scratch = gpu.memory_of(rows * SCORE)?;
        self.rows_on(gpu, (of.columns, of.gradient), logits, target, scratch.at())?;
        let place = self.on_gpu.place(of.micro_batch, of.are_first())?;
        gpu.sum_doubles(place, scratch.at(), rows, 3)
    }

    /// Writes three doubles for each row to `scores` on the GPU: the loss, the weight, and whether it is
    /// right. If `gradient` is set, turns the logits into the gradient.
    pub(super) fn rows_on(
        &self,
        gpu: &Gpu,
        (classes, gradient): (usize, bool),
        logits: &mut Tensor,
        target: &Tensor,
        scores: Ptr,
    ) -> Result<()> {
        self.check(logits.shape(), target.shape())?;
        let (rows, width) = (logits.shape().rows(), logits.shape().last());
        let all = self.classes.as_ref().map_or(classes, Classes::all);
        self.check_classes(target.ids(), all)?;
        let ids = gpu.upload(bytemuck::cast_slice(target.ids()))?;
        let ignored = self.ignore.map_or(u64::MAX, u64::from);
        if self.sharding.groups_of(all) > 1 {
            let groups = InGroups {
                all,
                groups: self.sharding.groups_of(all),
                classes: self.classes.as_ref(),
                ignored,
                smoothing: self.smoothing,
            };
            return groups.run(gpu, logits, [ids.at(), scores], gradient);
        }
        let (at, dtype) = (logits.at_mut(gpu)?, logits.dtype());
        // Rows are kept as whole eights.
        let (eights, eight) = (classes.div_ceil(8), 8 * dtype.bytes());
        let most = gpu.most_shared() - REST;
        let fits_twice = eights * eight <= KEPT_BY_TWO;
        let kept = if gradient { eights.min(most / eight) } else { 0 };
        let threads = eights.next_multiple_of(32).min(ROW_THREADS[usize::from(!fits_twice)]);
        let grid = Grid { shared: (kept * eight) as u32, ..Grid::row(rows, threads as u32) };
        let args = args![at, &ids, scores, classes, width, ignored, self.smoothing, 8 * kept];
        let name = match gradient {
            true => kernel!(dtype, "cross_entropy"),
            false => kernel!(dtype, "cross_entropy_score"),
        };
        gpu.launch(name, grid, &args)
    }

    /// Like [`CrossEntropy::run_on`], and waits for the score.
    fn score_on(&mut self, gpu: &Gpu, logits: &mut Tensor, target: &Tensor, gradient: bool) -> Result<Score> {
        let of = all_rows(0, target, logits, gradient);
        self.run_on(gpu, &of, logits, target)?;
        gpu.synchronize()?;
        Ok(self.told(self.on_gpu.numbers(0)))
    }

    /// Turns the logits into the gradient, and adds row by row to the sums.
    fn run(&self, sums: &mut Sums, logits: &mut Tensor, target: &Tensor) -> Result<()> {
        let rows = self.rows(logits, target)?;
        let [sum, weight, correct] = sums;
        for (loss, right) in self.losses(&rows, target).flatten() {
            *sum += loss;
            *weight += 1.0;
            *correct += right;
        }
        Ok(())
    }

    /// Turns the logits into the gradient. Returns the numbers of [`one_row`] for each row.
    pub(super) fn rows(&self, logits: &mut Tensor, target: &Tensor) -> Result<Tensor> {
        self.check(logits.shape(), target.shape())?;
        let (here, ids) = (logits.shape().last(), target.ids());
        self.check_classes(ids, self.classes.as_ref().map_or(here, Classes::all))?;
        let mut rows = Tensor::on_host(&[ids.len(), NUMBERS])?;
        in_format!(logits.dtype(), N => {
            let logits = logits.numbers_mut::<N>();
            match &self.classes {
                None => self.each_row(logits, here, rows.f32_mut(), ids),
                Some(classes) => {
                    let rows = rows.f32_mut().as_chunks_mut().0;
                    classes.run(logits, rows, ids, (self.ignore, self.smoothing))?;
                }
            }
        });
        Ok(rows)
    }

    /// The loss of each of these [rows](CrossEntropy::rows), and 1 if it was predicted right. `None` for a
    /// row that does not count.
    pub(super) fn losses<'a>(
        &self,
        rows: &'a Tensor,
        target: &'a Tensor,
    ) -> impl Iterator<Item = Option<(f64, f64)>> + use<'a> {
        let (ignore, smoothing) = (self.ignore, self.smoothing);
        let rows = rows.f32().as_chunks().0.iter().zip(target.ids());
        rows.map(move |(row, class)| (ignore != Some(*class)).then(|| loss_of(*row, smoothing)))
    }

    /// As [`CrossEntropy::run`], of all rows.
    fn run_all(&self, logits: &mut Tensor, target: &Tensor) -> Result<Score> {
        let mut sums = Sums::default();
        self.run(&mut sums, logits, target)?;
        Ok(self.told(sums))
    }

    /// Turns the logits of all rows into the gradient, and writes what [`one_row`] returns for each.
    fn each_row<N: Real>(&self, logits: &mut [N], classes: usize, rows: &mut [f32], ids: &[u32]) {
        let all = ((By(logits, classes), By(rows, NUMBERS)), By(ids, 1));
        let groups = self.sharding.groups_of(classes);
        cut(all, EXP * classes, |_, ((logits, rows), ids)| {
            let mut room = Buffer::pooled(classes);
            let rows = logits.chunks_exact_mut(classes).zip(rows.as_chunks_mut().0);
            for ((logits, row), &class) in rows.zip(ids) {
                if self.ignore == Some(class) {
                    logits.fill(N::narrow(0.0));
                } else {
                    let one = |logits: &mut [f32]| one_row(logits, class as usize, groups, self.smoothing);
                    *row = N::widened(logits, &mut room, one);
                }
            }
        });
    }

    /// Fails unless the output has the classes of this shard, or all.
    fn check_here(&self, here: usize) -> Result<()> {
        let Some(classes) = self.classes.as_ref().filter(|classes| classes.here() != here) else {
            return Ok(());
        };
        Err(refused(Error::new(format!(
            "the output has {here} classes, but this shard has {} of {}: divide the weights and the biases \
             of the last layer among the shards",
            classes.here(),
            classes.all()
        ))))
    }

    fn check_classes(&self, ids: &[u32], limit: usize) -> Result<()> {
        let counted = ids.iter().copied().filter(|id| self.ignore != Some(*id));
        check_ids("class", counted, limit).map_err(refused)
    }
}

/// All rows of a micro-batch.
fn all_rows(micro_batch: u32, target: &Tensor, logits: &Tensor, gradient: bool) -> SomeRows {
    let all = target.shape().count();
    SomeRows { micro_batch, rows: 0..all, all, columns: logits.shape().last(), gradient }
}

/// How many numbers [`one_row`] returns.
const NUMBERS: usize = 5;

/// Turns a row of logits into the gradient. Returns five numbers: the target's logit, the largest logit, the
/// logarithm of the sum of `exp(logit - largest)`, 1 if the target has the largest logit (else 0), and with
/// smoothing the mean distance of the logits from the target's (else 0).
fn one_row(row: &mut [f32], class: usize, groups: usize, smoothing: f32) -> [f32; NUMBERS] {
    let logit = row[class];
    // Of equal logits the first counts as the largest, as in argmax.
    let right =
        row[..class].iter().all(|&other| other < logit) && row[class..].iter().all(|&other| other <= logit);
    let count = row.len() as f32;
    let mean = match smoothing {
        0.0 => 0.0,
        _ => softmax::sum_from(row, groups, logit) / count,
    };
    let (largest, log_sum) = softmax::probabilities(row, groups, smoothing / count);
    row[class] -= 1.0 - smoothing;
    [logit, largest, log_sum, f32::from(u8::from(right)), mean]
}

/// The loss of a row, and 1 if it was predicted right, from what [`one_row`] returns.
fn loss_of([logit, largest, log_sum, right, mean]: [f32; NUMBERS], smoothing: f32) -> (f64, f64) {
    let unsmoothed = f64::from(log_sum) - (f64::from(logit) - f64::from(largest));
    let loss = unsmoothed - f64::from(smoothing) * f64::from(mean);
    (loss, f64::from(right))
}

/// Only the setting: the room for scores differs from process to process.
impl fmt::Debug for CrossEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CrossEntropy { ignore, smoothing, of_tokens, sharding, .. } = self;
        f.debug_struct("CrossEntropy")
            .field("ignore", ignore)
            .field("smoothing", smoothing)
            .field("of_tokens", of_tokens)
            .field("shard_groups", &sharding.groups())
            .finish()
    }
}

impl Loss<Tensor> for CrossEntropy {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        self.check_here(output.last())?;
        let logits = output.kind() == Kind::F32 && !output.dims().is_empty() && output.last() > 0;
        check_output(logits, "f32[.., classes]", output)?;
        check_target(&Shape::ids(&output.dims()[..output.dims().len() - 1]), target)
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        let score = match output.gpu()? {
            Some(gpu) => self.score_on(&gpu, &mut output, &target, true)?,
            None => self.run_all(&mut output, &target)?,
        };
        Ok((score, output))
    }

    fn start(
        &mut self,
        micro_batch: u32,
        mut output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        let Some(gpu) = output.gpu()? else {
            let score = self.run_all(&mut output, &target)?;
            return Ok((Some(score), output));
        };
        let of = all_rows(micro_batch, &target, &output, true);
        self.run_on(&gpu, &of, &mut output, &target)?;
        Ok((None, output))
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn takes_wider_rows(&self) -> bool {
        self.sharding.groups() == 1
    }

    fn take_rows(
        &mut self,
        rows: &SomeRows,
        mut output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        if let Some(gpu) = output.gpu()? {
            self.run_on(&gpu, rows, &mut output, &target)?;
            if rows.gradient || !rows.are_last() {
                return Ok((None, output));
            }
            gpu.synchronize()?;
            return Ok((Some(self.finish(rows.micro_batch)), output));
        }
        let mut sums = if rows.are_first() { Sums::default() } else { self.sums };
        self.run(&mut sums, &mut output, &target)?;
        self.sums = sums;
        Ok((rows.are_last().then(|| self.told(sums)), output))
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.told(self.on_gpu.numbers(micro_batch))
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn join(&mut self, team: &Team, outputs: &Division) -> Result<()> {
        self.classes = Some(Classes::new(team.clone(), outputs));
        Ok(())
    }

    fn score(&mut self, mut output: Tensor, target: Tensor) -> Result<Score> {
        match output.gpu()? {
            Some(gpu) => self.score_on(&gpu, &mut output, &target, false),
            None => self.run_all(&mut output, &target),
        }
    }
}
