//! Products of some columns of wider rows on a GPU. An adapter has such products. They read and add to the
//! columns where these are, and nothing else moves them.

use std::ops::Range;

use super::weight_matrix::{WeightMatrix, grad_product};
use crate::cuda::{Added, Gpu, Product, Ptr, Scale, Start};
use crate::error::Result;
use crate::tensor::Tensor;

/// Some columns of a tensor's rows, and a factor.
#[derive(Debug)]
pub(super) struct Scaled<'a> {
    pub(super) columns: &'a Range<usize>,
    pub(super) scale: f32,
}

impl Scaled<'_> {
    /// Where the first of the columns lies.
    fn first(&self, at: Ptr, of: &Tensor) -> Ptr {
        at.offset(self.columns.start * of.dtype().bytes())
    }

    /// The width of the rows, if they have other columns too.
    fn within(&self, of: &Tensor) -> Option<usize> {
        Some(of.shape().last()).filter(|width| *width > self.columns.len())
    }
}

impl WeightMatrix {
    /// `rows W`, in rows that are `width` wide, in memory with room for `room` rows. What comes after the
    /// output in a row is not set.
    pub(super) fn forward_wider(
        &self,
        gpu: &Gpu,
        rows: &Tensor,
        [width, room]: [usize; 2],
    ) -> Result<Tensor> {
        let output = rows.beside_with_room(rows.shape().with_last(width).dims(), room)?;
        let product = Product { out_of: Some(width), ..self.product(rows) };
        let weight = self.parameter().weights().operand()?;
        gpu.product(product, output.at(), rows.at(), weight.at(), Added::default())?;
        Ok(output)
    }

    /// Adds `scale (rows W)` to some columns of the output.
    pub(super) fn add_to_columns(
        &self,
        gpu: &Gpu,
        rows: &Tensor,
        output: &mut Tensor,
        to: &Scaled<'_>,
    ) -> Result<()> {
        let product = Product {
            start: Start::Old,
            scale: Scale::of(to.scale),
            out_of: to.within(output),
            ..self.product(rows)
        };
        let out = to.first(output.at_mut(gpu)?, output);
        let weight = self.parameter().weights().operand()?;
        gpu.product_anywhere(product, out, rows.at(), weight.at())
    }

    /// The gradient of the rows, from some columns of the output's gradient, times `scale`.
    pub(super) fn input_grad_of_columns(
        &self,
        gpu: &Gpu,
        grad: &Tensor,
        from: &Scaled<'_>,
    ) -> Result<Tensor> {
        let input_grad = grad.beside(grad.shape().with_last(self.sizes()[0]).dims())?;
        let product =
            Product { scale: Scale::of(from.scale), left_of: from.within(grad), ..self.turned_product(grad) };
        let weight = self.parameter().weights().operand()?;
        gpu.product_anywhere(product, input_grad.at(), from.first(grad.at(), grad), weight.at())?;
        Ok(input_grad)
    }

    /// Adds the gradient of the rows to another one.
    pub(super) fn add_input_grad(&self, gpu: &Gpu, grad: &Tensor, onto: &mut Tensor) -> Result<()> {
        let product = Product { start: Start::Old, ..self.turned_product(grad) };
        let weight = self.parameter().weights().operand()?;
        gpu.product_anywhere(product, onto.at_mut(gpu)?, grad.at(), weight.at())
    }

    /// Adds the gradient of the weights, unless they are frozen, from some columns of the output's gradient,
    /// times `scale`.
    pub(super) fn add_grad_of_columns(
        &mut self,
        gpu: &Gpu,
        input: &Tensor,
        grad: &Tensor,
        from: &Scaled<'_>,
    ) -> Result<()> {
        if self.parameter().is_frozen() {
            return Ok(());
        }
        let starts_sum = self.for_gradients().starts_sum(false);
        let product = Product {
            rows: from.columns.len(),
            scale: Scale::of(from.scale),
            left_of: from.within(grad),
            ..grad_product(grad, input, starts_sum)
        };
        let out = self.parameter().weights().grad()?;
        gpu.product_anywhere(product, out, from.first(grad.at(), grad), input.at())
    }
}
