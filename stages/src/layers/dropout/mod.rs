//! Dropout.

use std::ops::Range;

use multiversion::multiversion;
use smallvec::SmallVec;

use crate::cpu::lanes::LANES;
use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::real::{Real, in_format};
use crate::cuda::Grid;
use crate::cuda::launch::{Arg, args, kernel};
use crate::error::{Error, Result, check_numbers};
use crate::rng;
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// Zeroes each number with probability `rate` and divides the others by `1 - rate`, in training only.
/// Srivastava et al., "Dropout" (2014).
///
/// What is zeroed depends only on (seed, layer name, step, micro-batch, position). Backward draws the same
/// random numbers again, so the layer keeps nothing.
#[derive(Debug)]
pub struct Dropout {
    name: String,
    rate: f32,
    key: [u32; 2],
    /// The shards, if there are several.
    team: Option<Team>,
}

impl Dropout {
    /// A layer that zeroes numbers with probability `rate`.
    ///
    /// # Errors
    /// When `rate` is not in `0..1`.
    pub fn new(name: &str, rate: f32, seed: u64) -> Result<Self> {
        if !(0.0..1.0).contains(&rate) {
            let text =
                format!("dropout {rate} is not a probability below 1: choose one in 0..1, such as 0.1");
            return Err(Error::new(text).at(name));
        }
        Ok(Self { name: name.to_owned(), rate, key: rng::key(seed, name), team: None })
    }

    /// Drops of some rows and columns of a tensor what it drops of them in the whole tensor, whose rows have
    /// `width` numbers. The tensor has rows from `first_row` on, and the columns of these ranges.
    pub(crate) fn apply_part(
        &self,
        ctx: ForwardContext,
        mut tensor: Tensor,
        (first_row, width): (usize, usize),
        columns: &[Range<usize>],
    ) -> Result<Tensor> {
        if ctx.mode == Mode::Evaluate || self.rate == 0.0 {
            return Ok(tensor);
        }
        let row = tensor.shape().last();
        if let Some(gpu) = tensor.gpu()? {
            let (at, rows, dtype) = (tensor.at_mut(&gpu)?, tensor.shape().rows(), tensor.dtype());
            let mut start = 0;
            for range in columns {
                let ([low, high], [micro_batch, step, rest]) = (self.key, moment(ctx));
                let places = [row, start, range.len(), first_row, width, range.start].map(Arg::from);
                let drawn = args![self.rate, self.scale(), low, high, micro_batch, step, rest];
                let args: SmallVec<[Arg; 14]> = [at.into()].into_iter().chain(places).chain(drawn).collect();
                gpu.launch(kernel!(dtype, "dropout_columns"), Grid::of_rows(rows, range.len()), &args)?;
                start += range.len();
            }
            return Ok(tensor);
        }
        in_format!(tensor.dtype(), N => {
            for (index, numbers) in (first_row..).zip(tensor.numbers_mut::<N>().chunks_exact_mut(row)) {
                let mut rest = numbers;
                for range in columns {
                    let (part, after) = rest.split_at_mut(range.len());
                    dropout(part, index * width + range.start, self.rate, self.key, moment(ctx));
                    rest = after;
                }
            }
        });
        Ok(tensor)
    }

    /// What numbers that stay are multiplied by.
    fn scale(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }

    fn apply(&self, ctx: ForwardContext, mut tensor: Tensor) -> Result<Tensor> {
        if ctx.mode == Mode::Evaluate || self.rate == 0.0 {
            return Ok(tensor);
        }
        let width = tensor.shape().last();
        let moment = moment(ctx);
        let first_row = self.team.as_ref().map_or(0, |team| team.own_rows().start);
        match tensor.gpu()? {
            Some(_) if first_row > 0 => {
                let all = 0..width;
                return self.apply_part(ctx, tensor, (first_row, width), std::slice::from_ref(&all));
            }
            Some(gpu) => {
                let (at, count, scale) = (tensor.at_mut(&gpu)?, tensor.shape().count(), self.scale());
                let ([low, high], [micro_batch, step, rest]) = (self.key, moment);
                let args = args![at, count, self.rate, scale, low, high, micro_batch, step, rest];
                let grid = Grid::each(count.div_ceil(64) * 2, 256);
                gpu.launch(kernel!(tensor.dtype(), "dropout"), grid, &args)?;
            }
            None => in_format!(tensor.dtype(), N => {
                let first = first_row * width;
                dropout(tensor.numbers_mut::<N>(), first, self.rate, self.key, moment);
            }),
        }
        Ok(tensor)
    }
}

impl Layer for Dropout {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        Ok(*input)
    }

    /// It drops of its rows what it drops of them among all rows.
    fn join(&mut self, team: &Team) -> Result<()> {
        self.team = Some(team.clone());
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        Ok((self.apply(ctx, input)?, Kept::new(ctx, [])))
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        Some(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        Ok((Some(self.apply(ctx, grad)?), Kept::new(ctx, [])))
    }
}

/// What random numbers depend on besides the layer and the place.
fn moment(ctx: ForwardContext) -> [u32; 3] {
    [ctx.micro_batch, ctx.step as u32, (ctx.step >> 32) as u32]
}

/// How many random numbers are made at once: four words for each of [`LANES`] counters.
const DRAWN: usize = 4 * LANES;

/// Zeroes numbers with probability `rate` and divides the others by `1 - rate`. The random numbers depend
/// only on the key, the moment (step and micro-batch) and the position, which counts from `start`.
fn dropout<N: Real>(numbers: &mut [N], start: usize, rate: f32, key: [u32; 2], moment: [u32; 3]) {
    // So that each part begins with whole draws.
    let (head, numbers) = numbers.split_at_mut((start.next_multiple_of(DRAWN) - start).min(numbers.len()));
    if !head.is_empty() {
        dropout_part(head, start / DRAWN, start % DRAWN, rate, key, moment);
    }
    let first = start.div_ceil(DRAWN);
    cut(By(numbers, DRAWN), EXP * DRAWN, |index, numbers| {
        dropout_part(numbers, first + index, 0, rate, key, moment);
    });
}

/// The part of [`dropout`] whose random numbers are draw `first`, without the first `skipped` ones, and the
/// draws after it.
#[multiversion(targets = "simd")]
fn dropout_part<N: Real>(
    numbers: &mut [N],
    first: usize,
    skipped: usize,
    rate: f32,
    key: [u32; 2],
    moment: [u32; 3],
) {
    let scale = 1.0 / (1.0 - rate);
    for (index, numbers) in (first..).zip(numbers.chunks_mut(DRAWN)) {
        let words = draw(key, (index * LANES) as u32, moment);
        for (number, &word) in numbers.iter_mut().zip(&words.as_flattened()[skipped..]) {
            let wide = number.wide();
            *number = N::narrow(if rng::unit(word) < rate { 0.0 } else { wide * scale });
        }
    }
}

/// The four words of [`LANES`] counters: all first words, then all second words, and so on.
#[inline(always)]
fn draw(key: [u32; 2], first: u32, moment: [u32; 3]) -> [[u32; LANES]; 4] {
    let mut words = [[0; LANES]; 4];
    for lane in 0..LANES {
        let drawn = rng::philox(key, [first + lane as u32, moment[0], moment[1], moment[2]]);
        for (word, drawn) in words.iter_mut().zip(drawn) {
            word[lane] = drawn;
        }
    }
    words
}
