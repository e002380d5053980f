//! The loss of preferences.

use std::fmt;

use super::base::{Loss, check_output};
use super::cuda::{SCORE, Scores};
use super::pair::{
    NO_LABEL, REFERENCE, Sums, check_pairs, labels_of, logistic, reference_of, references_of, time_of,
};
use super::{CrossEntropy, Score, SomeRows};
use crate::cpu::parts::{By, cut};
use crate::cpu::real::{Real, in_format};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory};
use crate::error::{Error, Result};
use crate::pool::Buffer;
use crate::shape::{Kind, Shape};
use crate::shards::{Division, Team};
use crate::tensor::Tensor;

/// The threads of a block that judges a pair.
const THREADS: u32 = 256;

/// Direct preference optimization: a model learns from pairs of answers to make the preferred one more likely
/// than the rejected one, compared with a reference, which is usually the model before the training.
///
/// The output are logits `[rows, time, classes]`. Rows `2 i` and `2 i + 1` are a pair: first the preferred
/// answer. The target is `ids[rows, time + 2]`: the label of each token, `u32::MAX` where it is no part of an
/// answer; then the row's [reference](Preference::reference), the log-probability of its answer. A pair
/// without labels does not count.
///
/// With the log-probability `p` of an answer, its sum over the tokens of the answer, and the reference `q`,
/// the margin of a pair is `m = (p - q)` of the preferred answer less `(p - q)` of the rejected one, and its
/// loss is `-ln sigmoid(beta m)`, in nats. Rafailov et al., "Direct preference optimization" (2023), equation
/// 7. The weight is the number of pairs.
///
/// Its metrics are the `accuracy`, the share of pairs with a margin above 0; the mean `margin`, times `beta`;
/// and the mean log-probabilities of the preferred and of the rejected answers, `chosen` and `rejected`.
///
/// ```
/// use pipewright_stages::loss::{Loss, Preference};
/// use pipewright_stages::Tensor;
///
/// // One pair of answers of one token, out of two classes: class 0 is preferred to class 1.
/// let logits = || Tensor::zeros(&[2, 1, 2]);
/// // The reference gives each answer a half.
/// let answer = |class: u32| [vec![class], Preference::reference(0.5_f64.ln()).to_vec()].concat();
/// let target = [answer(0), answer(1)].concat();
/// let target = Tensor::from_ids(&[2, 3], target)?;
///
/// let mut loss = Preference::dpo(0.1)?;
/// let (score, grad) = loss.forward(logits(), target)?;
/// // The model is the reference, so no answer is ahead. Class 0 has to become more likely in both rows.
/// assert!((score.sum - 2.0_f64.ln()).abs() < 1e-9);
/// assert!(grad.f32()[0] < 0.0 && grad.f32()[2] < 0.0);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone)]
pub struct Preference {
    /// The log-probabilities of tokens.
    tokens: CrossEntropy,
    form: Form,
    beta: f32,
    smoothing: f32,
    /// The answers of a micro-batch, one for each row.
    answers: Vec<Answer>,
    /// By how much the gradient of each answer is multiplied.
    scales: Vec<f32>,
    sums: Sums,
    /// The same, on a GPU.
    seen: Option<Seen>,
    on_gpu: Scores<{ Sums::COUNT }>,
}

/// What a GPU has seen of a micro-batch.
#[derive(Clone)]
struct Seen {
    /// The scores of the tokens.
    tokens: Memory,
    /// By how much the gradient of each answer is multiplied.
    scales: Memory,
}

/// How a margin becomes a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// By the sums of log-probabilities: `-ln sigmoid(beta m)`.
    Logistic = 0,
    /// By their means over the tokens of an answer: `(m - 1 / (2 beta))^2`.
    Square = 1,
}

/// An answer, as the model and the reference see it.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// Its log-probability.
    given: f64,
    reference: f64,
    /// How many tokens it has.
    tokens: f64,
}

impl Preference {
    /// The loss above. With a larger `beta`, the model stays nearer to the reference; 0.1 is usual.
    ///
    /// # Errors
    /// When `beta` is not a number above 0.
    pub fn dpo(beta: f32) -> Result<Self> {
        Self::new(Form::Logistic, beta)
    }

    /// Identity preference optimization: the loss of a pair is `(m - 1 / (2 beta))^2`, where `m` is the
    /// margin of the mean log-probabilities over the tokens of each answer. It does not push answers ever
    /// further apart. Azar et al., "A general theoretical paradigm to understand learning from human
    /// preferences" (2023), equation 17.
    ///
    /// # Errors
    /// When `beta` is not a number above 0.
    pub fn ipo(beta: f32) -> Result<Self> {
        Self::new(Form::Square, beta)
    }

    fn new(form: Form, beta: f32) -> Result<Self> {
        if beta > 0.0 && beta.is_finite() {
            return Ok(Self {
                tokens: CrossEntropy::ignoring(NO_LABEL),
                form,
                beta,
                smoothing: 0.0,
                answers: Vec::new(),
                scales: Vec::new(),
                sums: Sums::default(),
                seen: None,
                on_gpu: Scores::default(),
            });
        }
        Err(Error::new(format!(
            "beta is {beta}: it must be a number above 0, such as 0.1; a larger one keeps the model nearer \
             to its reference"
        )))
    }

    /// Expects that this share of all pairs has its answers the wrong way around. Mitchell, "A note on DPO
    /// with noisy preferences" (2023).
    ///
    /// # Errors
    /// When `share` is not in `0..0.5`, and for [`Preference::ipo`] when it is not 0.
    pub fn smoothed(self, share: f32) -> Result<Self> {
        if !(0.0..0.5).contains(&share) {
            return Err(Error::new(format!(
                "label smoothing {share} is no share of wrong pairs: choose one in 0..0.5, such as 0.1"
            )));
        }
        if share > 0.0 && self.form == Form::Square {
            return Err(Error::new("IPO has no label smoothing: leave it out, or take DPO"));
        }
        Ok(Self { smoothing: share, ..self })
    }

    /// The same loss, of classes that are divided among shards: see [`CrossEntropy::with_shard_groups`].
    ///
    /// # Errors
    /// When `groups` is no power of two.
    pub fn with_shard_groups(self, groups: u32) -> Result<Self> {
        Ok(Self { tokens: self.tokens.with_shard_groups(groups)?, ..self })
    }

    /// The two ids at the end of a row of the target, for a log-probability in nats: the lower half of its
    /// bits, and the upper one. With 0 in each row, there is no reference.
    pub fn reference(log_probability: f64) -> [u32; 2] {
        let bits = log_probability.to_bits();
        [bits as u32, (bits >> 32) as u32]
    }

    /// Looks at the logits of some rows. With `gradient`, they become the gradient of the negative
    /// log-probabilities. After the last rows, it is known by how much that is multiplied.
    fn look(&mut self, some: &SomeRows, output: &mut Tensor, target: &Tensor, gradient: bool) -> Result<()> {
        let dims = &output.dims()[..output.dims().len() - 1];
        let labels = labels_of(target, some.rows.clone(), dims);
        if let Some(gpu) = output.gpu()? {
            return self.look_on(&gpu, some, (output, gradient), [&labels, target]);
        }
        let time = time_of(target);
        let answers = &mut self.answers;
        if some.are_first() {
            answers.clear();
            answers.extend(references_of(target).map(|ids| Answer::of(reference_of(ids))));
        }
        let losses = self.tokens.rows(output, &labels)?;
        for (at, loss) in some.rows.clone().zip(self.tokens.losses(&losses, &labels)) {
            if let Some((loss, _)) = loss {
                let answer = &mut self.answers[at / time];
                answer.given -= loss;
                answer.tokens += 1.0;
            }
        }
        if some.are_last() {
            let (mut sums, mut scales) = (Sums::default(), std::mem::take(&mut self.scales));
            scales.clear();
            for pair in self.answers.as_chunks().0 {
                scales.extend(self.judge(*pair, &mut sums));
            }
            (self.sums, self.scales) = (sums, scales);
        }
        Ok(())
    }

    /// Adds a pair to the sums. Returns by how much the gradient of each answer's negative log-probability is
    /// multiplied.
    fn judge(&self, answers: [Answer; 2], sums: &mut Sums) -> [f32; 2] {
        if answers.iter().all(|answer| answer.tokens == 0.0) {
            return [0.0; 2];
        }
        let shares = answers.map(|answer| match self.form {
            Form::Logistic => 1.0,
            Form::Square => 1.0 / answer.tokens.max(1.0),
        });
        let [chosen, rejected] = [0, 1].map(|of| (answers[of].given - answers[of].reference) * shares[of]);
        let (apart, beta) = (chosen - rejected, f64::from(self.beta));
        let (loss, slope) = match self.form {
            Form::Logistic => {
                let (loss, slope) = logistic(beta * apart, self.smoothing);
                (loss, self.beta * slope)
            }
            Form::Square => {
                let apart = apart - 0.5 / beta;
                (apart * apart, (2.0 * apart) as f32)
            }
        };
        sums.add(loss, beta * apart, answers.map(|answer| answer.given));
        [-slope * shares[0] as f32, slope * shares[1] as f32]
    }

    /// As [`Preference::look`], on a GPU.
    fn look_on(
        &mut self,
        gpu: &Gpu,
        some: &SomeRows,
        (output, gradient): (&mut Tensor, bool),
        [labels, target]: [&Tensor; 2],
    ) -> Result<()> {
        let rows = target.dims()[0];
        let seen = match self.seen.take().filter(|_| !some.are_first()) {
            Some(seen) => seen,
            None => Seen {
                tokens: gpu.memory_of(some.all * SCORE)?,
                scales: gpu.memory_of(rows * size_of::<f32>())?,
            },
        };
        let at = seen.tokens.at().offset(some.rows.start * SCORE);
        self.tokens.rows_on(gpu, (some.columns, gradient), output, labels, at)?;
        if some.are_last() {
            let mut references = Tensor::scratch_ids(&[rows, REFERENCE]);
            let to = references.ids_mut().as_chunks_mut().0;
            to.iter_mut().zip(references_of(target)).for_each(|(to, ids)| *to = ids);
            let references = gpu.upload(bytemuck::cast_slice(references.ids()))?;
            let scores = gpu.memory_of(rows / 2 * size_of::<[f64; Sums::COUNT]>())?;
            let Seen { tokens, scales } = &seen;
            let (time, form) = (time_of(target), self.form as u32);
            let args = args![tokens, &references, &scores, scales, time, form, self.beta, self.smoothing];
            gpu.launch("preference", Grid::row(rows / 2, THREADS), &args)?;
            let place = self.on_gpu.place(some.micro_batch, true)?;
            gpu.sum_doubles(place, scores.at(), rows / 2, Sums::COUNT)?;
        }
        self.seen = Some(seen);
        Ok(())
    }

    /// Turns the logits of some rows, after all were looked at, into the gradient of the negative
    /// log-probabilities.
    fn grads(&mut self, some: &SomeRows, output: &mut Tensor, target: &Tensor) -> Result<()> {
        let labels = labels_of(target, some.rows.clone(), &output.dims()[..output.dims().len() - 1]);
        let Some(gpu) = output.gpu()? else {
            return self.tokens.rows(output, &labels).map(drop);
        };
        // The scores are known: these are not read.
        let scores = gpu.memory_of(some.rows.len() * SCORE)?;
        self.tokens.rows_on(&gpu, (some.columns, true), output, &labels, scores.at())
    }

    /// Multiplies the gradient of each row by what its answer has. `time`: how many rows an answer has.
    fn scale(&mut self, some: &SomeRows, output: &mut Tensor, time: usize) -> Result<()> {
        let (first, width) = (some.rows.start, output.shape().last());
        if let Some(gpu) = output.gpu()? {
            let seen = self.seen.as_ref().expect("all rows were looked at");
            let args = args![output.at_mut(&gpu)?, &seen.scales, width, time, first];
            gpu.launch(kernel!(output.dtype(), "scale_rows"), Grid::of_rows(some.rows.len(), width), &args)?;
            if some.are_last() {
                self.seen = None;
            }
            return Ok(());
        }
        let mut scales = Buffer::pooled(some.rows.len());
        for (scale, row) in scales.iter_mut().zip(some.rows.clone()) {
            *scale = self.scales[row / time];
        }
        in_format!(output.dtype(), N => scale_each(output.numbers_mut::<N>(), width, &scales));
        Ok(())
    }

    /// The score of a micro-batch whose rows were all looked at, once its device is done.
    fn told(&self, micro_batch: u32, is_on_gpu: bool) -> Score {
        match is_on_gpu {
            true => Sums::of(self.on_gpu.numbers(micro_batch)).score(),
            false => self.sums.score(),
        }
    }

    /// Looks at all rows of a micro-batch. With `gradient`, the logits become the gradient of the loss.
    fn run(&mut self, micro_batch: u32, output: &mut Tensor, target: &Tensor, gradient: bool) -> Result<()> {
        self.check(output.shape(), target.shape())?;
        let (all, columns) = (output.shape().rows(), output.shape().last());
        let some = SomeRows { micro_batch, rows: 0..all, all, columns, gradient };
        self.look(&some, output, target, gradient)?;
        match gradient {
            true => self.scale(&some, output, time_of(target)),
            false => {
                self.seen = None;
                Ok(())
            }
        }
    }

    /// As [`Preference::run`], and waits for the score.
    fn run_now(&mut self, mut output: Tensor, target: &Tensor, gradient: bool) -> Result<(Score, Tensor)> {
        self.run(0, &mut output, target, gradient)?;
        let gpu = output.gpu()?;
        if let Some(gpu) = &gpu {
            gpu.synchronize()?;
        }
        Ok((self.told(0, gpu.is_some()), output))
    }
}

impl Answer {
    /// An answer that the model has not seen yet.
    fn of(reference: f64) -> Self {
        Self { given: 0.0, reference, tokens: 0.0 }
    }
}

/// Multiplies rows of numbers, each by its scale.
fn scale_each<N: Real>(numbers: &mut [N], width: usize, scales: &[f32]) {
    cut((By(numbers, width), By(scales, 1)), width, |_, (numbers, scales)| {
        for (numbers, scale) in numbers.chunks_exact_mut(width).zip(scales) {
            numbers.iter_mut().for_each(|number| *number = N::narrow(number.wide() * scale));
        }
    });
}

/// Only the settings: the room for scores differs from process to process.
impl fmt::Debug for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Preference { tokens, form, beta, smoothing, .. } = self;
        f.debug_struct("Preference")
            .field("form", form)
            .field("beta", beta)
            .field("smoothing", smoothing)
            .field("tokens", tokens)
            .finish()
    }
}

impl Loss<Tensor> for Preference {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        let logits = output.kind() == Kind::F32 && output.dims().len() == 3 && output.last() > 0;
        check_output(logits, "f32[rows, time, classes]", output)?;
        check_pairs(output.dims()[0], output.dims()[1], target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.run_now(output, &target, true)
    }

    fn start(
        &mut self,
        micro_batch: u32,
        mut output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        self.run(micro_batch, &mut output, &target, true)?;
        let is_known = output.gpu()?.is_none();
        Ok((is_known.then(|| self.told(micro_batch, false)), output))
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.told(micro_batch, true)
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn takes_wider_rows(&self) -> bool {
        self.tokens.takes_wider_rows()
    }

    fn compares_rows(&self) -> bool {
        true
    }

    fn look_at(&mut self, rows: &SomeRows, mut output: Tensor, target: Tensor) -> Result<()> {
        self.look(rows, &mut output, &target, false)
    }

    fn take_rows(
        &mut self,
        rows: &SomeRows,
        mut output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        let gpu = output.gpu()?;
        if !rows.gradient {
            self.look(rows, &mut output, &target, false)?;
            if let Some(gpu) = gpu.as_ref().filter(|_| rows.are_last()) {
                self.seen = None;
                gpu.synchronize()?;
            }
        } else {
            self.grads(rows, &mut output, &target)?;
            self.scale(rows, &mut output, time_of(&target))?;
        }
        let is_known = rows.are_last() && !(rows.gradient && gpu.is_some());
        Ok((is_known.then(|| self.told(rows.micro_batch, gpu.is_some())), output))
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn join(&mut self, team: &Team, outputs: &Division) -> Result<()> {
        self.tokens.join(team, outputs)
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        Ok(self.run_now(output, &target, false)?.0)
    }
}
