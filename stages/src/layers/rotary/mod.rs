//! Rotary position embedding.

pub(crate) mod cpu;
pub(crate) mod rope;

use std::rc::Rc;

use super::Heads;
use crate::cpu::real::in_format;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Grid, Ptr};
use crate::device::{DType, Device, Place};
use crate::error::{Error, Result};
use crate::layers::rotary::cpu::{Turn, turn};
use crate::layers::rotary::rope::{Rope, RopeLayout};
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::ForwardContext;
use crate::stage::borders::{Borders, OnGpu, Spans};
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// Turns queries and keys by angles that grow with their position, so that their products depend on
/// distances. Input and output are `[batch, time, (query + 2 key_value) * width]`: queries, keys and
/// values of all [`Heads`] side by side. A pair `(x, y)` at position `t` becomes `(x cos a - y sin a, y
/// cos a + x sin a)` with `a = t f`; [`Rope`] says what is a pair and what is `f`. Values pass. Su et al.,
/// "RoFormer: enhanced transformer with rotary position embedding" (2021).
///
/// It has no parameters and keeps nothing: backward turns by the opposite angles. It works in place,
/// unless another tensor shares the memory. A table of cosines and sines, computed in `f64`, is kept for
/// the longest `time` so far.
#[derive(Debug)]
pub struct Rotary {
    name: String,
    heads: Heads,
    rope: Rope,
    borders: Option<Borders>,
    /// `[times, width]`: for each position, the cosines of all pairs, then their sines.
    table: Option<Tensor>,
}

/// Where the documents of a micro-batch begin.
#[derive(Default)]
struct Starts {
    here: Option<Tensor>,
    on_gpu: Option<Rc<OnGpu>>,
}

impl Rotary {
    /// A layer for these heads.
    ///
    /// # Errors When the heads do not fit each other ([`Heads`]), their width is odd, or a number of
    /// `rope` is out of its range.
    pub fn new(name: &str, heads: Heads, rope: Rope) -> Result<Self> {
        let width = heads.width;
        let has_pairs = match width.is_multiple_of(2) {
            true => Ok(()),
            false => Err(Error::new(format!(
                "heads of {width} numbers cannot be turned, since a rotary embedding turns pairs: choose \
                 an even width"
            ))),
        };
        heads.check().and(has_pairs).and(rope.check()).map_err(|error: Error| error.at(name))?;
        Ok(Self { name: name.to_owned(), heads, rope, borders: None, table: None })
    }

    /// The table for `time` positions on this device. It is made for the next power of two, so that sequences
    /// which grow by one position do not make it each time.
    fn table(&mut self, time: usize, device: Device) -> Result<Tensor> {
        let kept = self.table.take();
        let kept = kept.filter(|table| table.dims()[0] >= time && table.place().device == device);
        let table = match kept {
            Some(table) => table,
            None => {
                let width = self.heads.width;
                let mut table = Tensor::on_host(&[time.next_power_of_two(), width])?;
                self.rope.fill(table.f32_mut(), width);
                let dtype = DType::F32;
                table.to(Place { device, dtype })?
            }
        };
        self.table = Some(table.clone());
        Ok(table)
    }

    /// The tensor of a micro-batch, turned by the positions in its documents.
    fn turned_in(&mut self, ctx: ForwardContext, tensor: Tensor, is_back: bool) -> Result<Tensor> {
        let rows = [tensor.dims()[0], tensor.dims()[1]];
        let starts = match &self.borders {
            None => Starts::default(),
            Some(borders) => Starts {
                here: borders.of(ctx, rows)?,
                on_gpu: match tensor.gpu()? {
                    Some(gpu) => borders.on_gpu(&gpu, ctx, rows)?,
                    None => None,
                },
            },
        };
        self.turned(tensor, (0, &starts), is_back)
    }

    /// The tensor, turned as rows that follow `past` others. The documents in it begin at `starts`.
    fn turned(
        &mut self,
        mut tensor: Tensor,
        (past, starts): (usize, &Starts),
        is_back: bool,
    ) -> Result<Tensor> {
        let time = tensor.dims()[1];
        let table = self.table(past + time, tensor.place().device)?;
        let Heads { query, key_value, width } = self.heads;
        let turn_by = Turn {
            spans: Spans { time, starts: starts.here.as_ref().map(Tensor::ids) },
            row: self.heads.row(),
            turned: (query + key_value) * width,
            width,
            in_pairs: self.rope.layout == RopeLayout::Pairs,
            is_back,
        };
        match tensor.gpu()? {
            Some(gpu) => {
                let (at, table) = (tensor.at_mut(&gpu)?, table.at().offset(4 * past * width));
                let Turn { row, turned, in_pairs, .. } = turn_by;
                let rows = tensor.shape().rows();
                let (in_pairs, sign) = (u32::from(in_pairs), if is_back { -1.0 } else { 1.0_f32 });
                let starts = starts.on_gpu.as_ref().map_or(Ptr::NONE, |on_gpu| on_gpu.starts.at());
                let args = args![at, table, time, row, turned, width, in_pairs, sign, starts];
                gpu.launch(kernel!(tensor.dtype(), "rotary"), Grid::of_rows(rows, turned / 2), &args)?;
            }
            None => in_format!(tensor.dtype(), N => {
                turn(tensor.numbers_mut::<N>(), &table.f32()[past * width..], turn_by);
            }),
        }
        Ok(tensor)
    }
}

impl Layer for Rotary {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.heads.check_rows(input)?;
        Ok(*input)
    }

    /// Its heads are this shard's.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.borders = Some(borders.clone());
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        Ok((self.turned_in(ctx, input, false)?, Kept::new(ctx, [])))
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        self.output_shape(input.shape())?;
        self.turned(input, (past, &Starts::default()), false)
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        Some(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(self.turned_in(saved.ctx, grad, true)?), Kept::new(saved.ctx, [])))
    }
}
