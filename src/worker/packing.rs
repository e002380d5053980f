//! Numbers of a stage's parameters, packed on its GPU and taken out again.

use pipewright_stages::{Device, Packed, Parameter, Result as StageResult, Stage};

use super::chunk::{Chunk, visit_spans};
use super::slices::{Span, length_of};
use crate::error::Result;

impl<S: Stage> Chunk<S> {
    /// The replica's first `sums` sums of these numbers, one after the other.
    pub(super) fn pack_sums(&mut self, sums: usize, spans: &[Span], device: Device) -> Result<Packed> {
        let count = length_of(spans);
        let packed = Packed::new(device, sums * count)?;
        for sum in 0..sums {
            let one = packed.part(sum * count..(sum + 1) * count);
            self.each_part(spans, &one, |parameter, start, mut part| {
                parameter.pack_sum(sum, start, &mut part)
            })?;
        }
        Ok(packed)
    }

    /// These weights.
    pub(super) fn pack_weights(&mut self, spans: &[Span], device: Device) -> Result<Packed> {
        let packed = Packed::new(device, length_of(spans))?;
        self.each_part(spans, &packed, |parameter, start, mut part| {
            parameter.pack_value(start, &mut part)
        })?;
        Ok(packed)
    }

    /// Sets these numbers of the gradients.
    pub(super) fn unpack_gradients(&mut self, spans: &[Span], packed: &Packed) -> Result<()> {
        self.each_part(spans, packed, |parameter, start, part| {
            parameter.unpack_grad(start, &part)
        })
    }

    /// Sets these weights, after the stage's own update.
    pub(super) fn unpack_weights(&mut self, spans: &[Span], packed: &Packed) -> Result<()> {
        self.each_part(spans, packed, |parameter, start, part| {
            parameter.unpack_value(start, &part)
        })
    }

    /// Calls `act` for each span: with its parameter, its first number, and its part of `packed`.
    fn each_part(
        &mut self,
        spans: &[Span],
        packed: &Packed,
        act: impl Fn(&mut Parameter, usize, Packed) -> StageResult<()>,
    ) -> Result<()> {
        let mut at = 0;
        visit_spans(&mut self.stage, spans, |parameter, range| {
            let part = packed.part(at..at + range.len());
            at += range.len();
            Ok(act(parameter, range.start, part)?)
        })
    }
}
