//! A matrix of weights, and its three products.

use std::ops::Range;

use super::divided::Side;
use super::groups_on_gpu::{Apart, Matrix as OnGpu, width};
use super::operands::{
    Factor, Held, Layout, Operand, add_turned_product, adds_in_place, multiply_next, multiply_row,
};
use crate::cpu::depth::DepthGroups;
use crate::cpu::matmul::Start;
use crate::cpu::matrix::Matrix;
use crate::cpu::real::in_format;
use crate::cuda::{self, Added, Gpu, Memory, Product, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::quantised::on_gpu::{BlocksOnGpu, FEW_ROWS};
use crate::shards::Division;
use crate::tensor::Tensor;

/// Weights `[inputs, outputs]`, in memory as their layout says, with copies packed for products.
#[derive(Debug)]
pub(crate) struct WeightMatrix {
    sizes: [usize; 2],
    layout: Layout,
    weight: Parameter,
    /// The weights packed for forward. Made by the first forward after the weights change.
    forward: Operand,
    /// The weights packed for backward-input.
    backward: Operand,
    /// The groups here, if there are several. A GPU multiplies each by itself.
    apart: Option<Apart>,
}

impl WeightMatrix {
    /// A matrix of `[inputs, outputs]` in PyTorch's layout.
    pub(crate) fn new(sizes: [usize; 2], weight: Parameter) -> Self {
        Self {
            sizes,
            layout: Layout::OutIn,
            weight: weight.asked_by_layer().taking_blocks(),
            forward: Operand::default(),
            backward: Operand::default(),
            apart: None,
        }
    }

    /// The weights.
    pub(crate) fn parameter(&self) -> &Parameter {
        &self.weight
    }

    /// The weights, for a caller that changes no weight, only gradients.
    pub(crate) fn for_gradients(&mut self) -> &mut Parameter {
        &mut self.weight
    }

    /// The weights, for a caller that may change them.
    pub(crate) fn for_weights(&mut self) -> &mut Parameter {
        self.forward.forget();
        self.backward.forget();
        &mut self.weight
    }

    /// Treats each product like one with many rows: where weights are packed for a single product then, no
    /// packed copy is kept.
    pub(crate) fn expect_many_rows(&mut self) {
        self.forward.expect_many_rows();
        self.backward.expect_many_rows();
    }

    /// Keeps this shard's inputs or outputs only. `is_first`: whether they are the first dimension in memory.
    pub(crate) fn divide(&mut self, side: Side, is_first: bool, division: &Division) {
        self.sizes[usize::from(side == Side::Outputs)] = division.len();
        self.for_weights().divide(is_first, division);
    }

    /// Adds up forward's products in these groups of the inputs, and backward-input's in these groups of the
    /// outputs. `None`: from first to last.
    pub(crate) fn add_up_in(&mut self, inputs: Option<DepthGroups>, outputs: Option<DepthGroups>) {
        self.apart = Apart::of([inputs.as_ref(), outputs.as_ref()]);
        self.forward.add_up_in(inputs);
        self.backward.add_up_in(outputs);
    }

    /// Replaces the weights.
    pub(crate) fn set(&mut self, weight: Parameter) {
        *self.for_weights() = weight.asked_by_layer().taking_blocks();
    }

    /// How the weights lie in memory.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Changes the layout, not the numbers in memory.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        let [inputs, outputs] = self.sizes;
        self.layout = layout;
        let dims = match layout {
            Layout::InOut => [inputs, outputs],
            Layout::OutIn => [outputs, inputs],
        };
        self.weight.set_dims(&dims);
    }

    /// `[inputs, outputs]`.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    /// `rows W + bias`.
    pub(crate) fn forward(&mut self, rows: &Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
        self.forward_with_room(rows, bias, 0)
    }

    /// As [`WeightMatrix::forward`], into memory with room for this many rows.
    pub(crate) fn forward_with_room(
        &mut self,
        rows: &Tensor,
        bias: Option<&Parameter>,
        room: usize,
    ) -> Result<Tensor> {
        if let Some(gpu) = rows.gpu()? {
            return self.forward_on(&gpu, rows, bias, None, room);
        }
        let mut output = rows.beside_with_room(rows.shape().with_last(self.sizes[1]).dims(), room)?;
        let weight = Held::of(&self.weight, self.layout);
        self.forward.multiply(&mut output, start(bias), rows, weight);
        Ok(output)
    }

    /// A shard's part of the sum `rows W`, in `f32`: its rows of `W` are a part of all.
    pub(crate) fn forward_part(&mut self, rows: &Tensor) -> Result<Tensor> {
        if let Some(gpu) = rows.gpu()? {
            return self.forward_part_on(&gpu, rows);
        }
        let mut sum = Tensor::on_host(rows.shape().with_last(self.sizes[1]).dims())?;
        let weight = Held::of(&self.weight, self.layout);
        self.forward.multiply_to_f32(&mut sum, rows, weight);
        Ok(sum)
    }

    /// A shard's part of the gradient of the rows, in `f32`: its columns of `W` are a part of all.
    pub(crate) fn input_grad_part(&mut self, grad: &Tensor) -> Result<Tensor> {
        if let Some(gpu) = grad.gpu()? {
            return self.input_grad_part_on(&gpu, grad);
        }
        let mut sum = Tensor::on_host(grad.shape().with_last(self.sizes[0]).dims())?;
        let weight = Held::of(&self.weight, self.layout).t();
        self.backward.multiply_to_f32(&mut sum, grad, weight);
        Ok(sum)
    }

    /// As [`WeightMatrix::forward`], when text is written: nothing is packed.
    pub(crate) fn forward_next(&mut self, rows: &Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
        if let Some(gpu) = rows.gpu()? {
            let count = rows.shape().rows();
            let Some(blocks) = self.blocks_for(count) else {
                return self.forward(rows, bias);
            };
            let output = rows.beside(rows.shape().with_last(self.sizes[1]).dims())?;
            let bias = bias.map(|bias| bias.weights().numbers());
            blocks.multiply_few(&gpu, rows.dtype(), [output.at(), rows.at()], count, bias)?;
            return Ok(output);
        }
        if rows.dtype() != DType::F32 {
            return self.forward(rows, bias);
        }
        let mut output = rows.beside(rows.shape().with_last(self.sizes[1]).dims())?;
        let weight = Held::of(&self.weight, self.layout);
        multiply_next(&mut output, start(bias), rows, weight, self.forward.groups());
        Ok(output)
    }

    /// The blocks of a quantised matrix on a GPU, if products with this number of rows read them when text is
    /// written.
    fn blocks_for(&self, rows: usize) -> Option<&BlocksOnGpu> {
        let fits = rows <= FEW_ROWS && self.layout == Layout::OutIn && !self.is_apart();
        self.weight.on_gpu().filter(|_| fits)?.blocks()
    }

    /// The gradient of the rows, for this gradient of the output.
    pub(crate) fn input_grad(&mut self, grad: &Tensor) -> Result<Tensor> {
        if let Some(gpu) = grad.gpu()? {
            return self.input_grad_on(&gpu, grad);
        }
        let [inputs, _] = self.sizes;
        let mut input_grad = grad.beside(grad.shape().with_last(inputs).dims())?;
        let weight = Held::of(&self.weight, self.layout).t();
        self.backward.multiply(&mut input_grad, Start::Zero, grad, weight);
        Ok(input_grad)
    }

    /// Adds the gradient of the weights, unless they are frozen: from some rows of a micro-batch of `all`
    /// rows. Parts of a micro-batch but the last must have whole blocks of rows.
    pub(crate) fn add_grad(&mut self, input: &Tensor, grad: &Tensor, all: usize) -> Result<()> {
        if self.weight.is_frozen() {
            return Ok(());
        }
        if let Some(gpu) = grad.gpu()? {
            return self.add_grad_on(&gpu, input, grad, all);
        }
        let (left, right) = match self.layout {
            Layout::InOut => (input, grad),
            Layout::OutIn => (grad, input),
        };
        let start = Start::of_sum(self.weight.starts_sum(adds_in_place(all)));
        add_turned_product(&mut self.weight.grad, start, left, right);
        Ok(())
    }

    /// As [`WeightMatrix::forward`], from and to these rows of larger tensors.
    pub(crate) fn forward_rows(
        &mut self,
        out: &mut Tensor,
        inputs: &Tensor,
        rows: &Range<usize>,
    ) -> Result<()> {
        let [width, outputs] = self.sizes;
        if let Some(gpu) = inputs.gpu()? {
            let product = Product { rows: rows.len(), ..self.product(inputs) };
            let weight = self.weight.weights().operand()?;
            return gpu.product_of_rows(product, first(out, rows), first(inputs, rows), weight.at());
        }
        let weight = Held::of(&self.weight, self.layout);
        in_format!(inputs.dtype(), N => {
            let inputs = Matrix::new(&inputs.numbers::<N>()[of(rows, width)], width);
            let out = &mut out.numbers_mut::<N>()[of(rows, outputs)];
            N::multiply(&mut self.forward, out, Start::Zero, inputs, weight);
        });
        Ok(())
    }

    /// As [`WeightMatrix::forward_rows`], when text is written.
    pub(crate) fn forward_rows_next(
        &mut self,
        out: &mut Tensor,
        inputs: &Tensor,
        rows: &Range<usize>,
    ) -> Result<()> {
        let (Some(gpu), Some(blocks)) = (inputs.gpu()?, self.blocks_for(rows.len())) else {
            return self.forward_rows(out, inputs, rows);
        };
        let places = [first(out, rows), first(inputs, rows)];
        blocks.multiply_few(&gpu, inputs.dtype(), places, rows.len(), None)
    }

    /// The output of one row on the CPU. Nothing is packed.
    pub(crate) fn forward_row(&self, out: &mut [f32], input: &[f32]) {
        multiply_row(out, Start::Zero, input, Held::of(&self.weight, self.layout));
    }

    /// As [`WeightMatrix::input_grad`], from and to these rows.
    pub(crate) fn backward_rows(
        &mut self,
        out: &mut Tensor,
        grads: &Tensor,
        rows: &Range<usize>,
    ) -> Result<()> {
        let [width, outputs] = self.sizes;
        if let Some(gpu) = grads.gpu()? {
            let product = Product { rows: rows.len(), ..self.turned_product(grads) };
            let weight = self.weight.weights().operand()?;
            return gpu.product_of_rows(product, first(out, rows), first(grads, rows), weight.at());
        }
        let weight = Held::of(&self.weight, self.layout).t();
        in_format!(grads.dtype(), N => {
            let grads = Matrix::new(&grads.numbers::<N>()[of(rows, outputs)], outputs);
            let out = &mut out.numbers_mut::<N>()[of(rows, width)];
            N::multiply(&mut self.backward, out, Start::Zero, grads, weight);
        });
        Ok(())
    }

    /// As [`WeightMatrix::add_grad`], from these rows, in PyTorch's layout. There may be none.
    pub(crate) fn add_grad_of_rows(
        &mut self,
        inputs: &Tensor,
        grads: &Tensor,
        rows: &Range<usize>,
    ) -> Result<()> {
        if self.weight.is_frozen() {
            return Ok(());
        }
        let gpu = grads.gpu()?;
        let starts_sum = self.weight.starts_sum(gpu.is_none() && adds_in_place(rows.len()));
        if rows.is_empty() {
            return match starts_sum {
                true => self.clear_grad(),
                false => Ok(()),
            };
        }
        if let Some(gpu) = gpu {
            let product = Product { inner: rows.len(), ..grad_product(grads, inputs, starts_sum) };
            let out = self.weight.weights().grad()?;
            return gpu.product_of_rows(product, out, first(grads, rows), first(inputs, rows));
        }
        let start = Start::of_sum(starts_sum);
        let [width, outputs] = self.sizes;
        in_format!(grads.dtype(), N => {
            let inputs = Matrix::new(&inputs.numbers::<N>()[of(rows, width)], width);
            let grads = Matrix::new(&grads.numbers::<N>()[of(rows, outputs)], outputs);
            N::add_turned_product(&mut self.weight.grad, start, grads, inputs);
        });
        Ok(())
    }

    /// Sets the gradient to zero, where it starts a sum.
    fn clear_grad(&mut self) -> Result<()> {
        match self.weight.on_gpu() {
            Some(weights) => weights.zero_grad(),
            None => {
                self.weight.grad.fill(0.0);
                Ok(())
            }
        }
    }

    /// The product of a tensor's rows with the weights, on a GPU.
    pub(super) fn product(&self, rows: &Tensor) -> Product {
        let [inputs, outputs] = self.sizes;
        let sizes = [rows.shape().rows(), inputs, outputs];
        Product { right_turned: self.layout == Layout::OutIn, ..Product::new(sizes, rows.dtype()) }
    }

    /// As [`WeightMatrix::product`], with the weights turned.
    pub(super) fn turned_product(&self, rows: &Tensor) -> Product {
        Product {
            inner: self.sizes[1],
            columns: self.sizes[0],
            right_turned: self.layout == Layout::InOut,
            left_of: self.wider(rows),
            ..self.product(rows)
        }
    }
}

/// The products on a GPU: see [`groups_on_gpu`](super::groups_on_gpu).
impl WeightMatrix {
    /// The width of rows of an output's gradient, if it is more than the outputs.
    fn wider(&self, grad: &Tensor) -> Option<usize> {
        Some(grad.shape().last()).filter(|width| *width > self.sizes[1])
    }

    /// `rows W + bias`, in memory with room for `room` rows. Starts with `onto`, if it is given and there are
    /// no [groups](Self::is_apart).
    pub(super) fn forward_on(
        &self,
        gpu: &Gpu,
        rows: &Tensor,
        bias: Option<&Parameter>,
        onto: Option<&Tensor>,
        room: usize,
    ) -> Result<Tensor> {
        if self.apart_at(Side::Inputs).is_some() {
            let bias = bias.map(Parameter::row);
            return self.forward_part_on(gpu, rows)?.rounded(rows.dtype(), bias);
        }
        let output = rows.beside_with_room(rows.shape().with_last(self.sizes()[1]).dims(), room)?;
        let product = Product {
            bias: bias.is_some(),
            start: cuda::Start::of_sum(onto.is_none()),
            ..self.product(rows)
        };
        let bias = bias.map(|bias| bias.weights().numbers());
        let Some(apart) = self.apart_at(Side::Outputs) else {
            let added = Added { bias, onto: onto.map(Tensor::at) };
            let weight = self.parameter().weights().operand()?;
            gpu.product(product, output.at(), rows.at(), weight.at(), added)?;
            return Ok(output);
        };
        let all = OnGpu::of(&output);
        apart.put_together(gpu, &output, |places, out| {
            let weight = self.weight_of(gpu, places)?;
            let bias = bias.map(|at| OnGpu { at, rows: 1, ..all }.columns(gpu, places)).transpose()?;
            let added = Added { bias: bias.as_ref().map(Memory::at), onto: None };
            let product = Product { columns: width(places), ..product };
            gpu.product(product, out, rows.at(), weight.at(), added)
        })?;
        Ok(output)
    }

    /// As [`WeightMatrix::forward_part`].
    fn forward_part_on(&self, gpu: &Gpu, rows: &Tensor) -> Result<Tensor> {
        let sum = || rows.f32_beside(rows.shape().with_last(self.sizes()[1]).dims());
        let product = Product { out: DType::F32, ..self.product(rows) };
        self.sum_over(gpu, Side::Inputs, rows, product, sum)
    }

    /// As [`WeightMatrix::input_grad`].
    fn input_grad_on(&self, gpu: &Gpu, grad: &Tensor) -> Result<Tensor> {
        if self.apart_at(Side::Outputs).is_some() {
            return self.input_grad_part_on(gpu, grad)?.rounded(grad.dtype(), None);
        }
        let input_grad = grad.beside(grad.shape().with_last(self.sizes()[0]).dims())?;
        let product = self.turned_product(grad);
        let Some(apart) = self.apart_at(Side::Inputs) else {
            let weight = self.parameter().weights().operand()?;
            gpu.product(product, input_grad.at(), grad.at(), weight.at(), Added::default())?;
            return Ok(input_grad);
        };
        apart.put_together(gpu, &input_grad, |places, out| {
            let weight = self.weight_of(gpu, places)?;
            let product = Product { columns: width(places), ..product };
            gpu.product(product, out, grad.at(), weight.at(), Added::default())
        })?;
        Ok(input_grad)
    }

    /// As [`WeightMatrix::input_grad_part`].
    fn input_grad_part_on(&self, gpu: &Gpu, grad: &Tensor) -> Result<Tensor> {
        let sum = || grad.f32_beside(grad.shape().with_last(self.sizes()[0]).dims());
        let product = Product { out: DType::F32, ..self.turned_product(grad) };
        self.sum_over(gpu, Side::Outputs, grad, product, sum)
    }

    /// As [`WeightMatrix::add_grad`].
    fn add_grad_on(&mut self, gpu: &Gpu, input: &Tensor, grad: &Tensor, all: usize) -> Result<()> {
        let starts_sum = self.for_gradients().starts_sum(false);
        let weights = self.parameter().weights();
        let (left, right) = match self.layout() {
            Layout::InOut => (input, grad),
            Layout::OutIn => (grad, input),
        };
        let mut product = grad_product(left, right, starts_sum);
        if self.layout() == Layout::OutIn {
            product = Product { rows: self.sizes()[1], left_of: self.wider(grad), ..product };
        }
        let Some(apart) = &self.apart else {
            // A part of a micro-batch has memory that the next part uses again.
            return match grad.shape().rows() == all {
                true => weights.add_product(gpu, product, [left, right]),
                false => gpu.product(product, weights.grad()?, left.at(), right.at(), Added::default()),
            };
        };
        let out = weights.grad()?;
        let by_rows = self.divides_rows(apart.side);
        let all = OnGpu { at: out, dtype: DType::F32, rows: product.rows, columns: product.columns };
        for places in &apart.groups {
            let sum = match starts_sum {
                true => gpu.memory_of(all.part_bytes(by_rows, places))?,
                false => all.part(gpu, by_rows, places)?,
            };
            let divided = OnGpu::of(if by_rows { left } else { right }).columns(gpu, places)?;
            let (product, left, right) = match by_rows {
                true => (Product { rows: width(places), ..product }, divided.at(), right.at()),
                false => (Product { columns: width(places), ..product }, left.at(), divided.at()),
            };
            gpu.product(product, sum.at(), left, right, Added::default())?;
            all.put(gpu, by_rows, places, &sum)?;
        }
        Ok(())
    }

    /// Whether a GPU multiplies several groups, each by itself.
    pub(super) fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// The groups of a side, if a GPU multiplies several, each by itself.
    pub(super) fn apart_at(&self, side: Side) -> Option<&Apart> {
        self.apart.as_ref().filter(|apart| apart.side == side)
    }

    /// Whether this side of the weights is the first dimension in memory.
    fn divides_rows(&self, side: Side) -> bool {
        (side == Side::Inputs) == (self.layout() == Layout::InOut)
    }

    /// The sum of a product whose depth is this side, in the groups of it that are here.
    fn sum_over(
        &self,
        gpu: &Gpu,
        side: Side,
        rows: &Tensor,
        product: Product,
        empty: impl Fn() -> Result<Tensor>,
    ) -> Result<Tensor> {
        let Some(apart) = self.apart_at(side) else {
            let sum = empty()?;
            let weight = self.parameter().weights().operand()?;
            gpu.product(product, sum.at(), rows.at(), weight.at(), Added::default())?;
            return Ok(sum);
        };
        apart.add_up(empty, |places, out| {
            let part = OnGpu::of(rows).columns(gpu, places)?;
            let weight = self.weight_of(gpu, places)?;
            let product = Product { inner: width(places), ..product };
            gpu.product(product, out, part.at(), weight.at(), Added::default())
        })
    }

    /// The weights of a group alone.
    fn weight_of(&self, gpu: &Gpu, places: &[Range<usize>]) -> Result<Memory> {
        let side = self.apart.as_ref().map_or(Side::Outputs, |apart| apart.side);
        let weights = self.parameter().weights();
        let dims = self.parameter().dims();
        let dtype = weights.place().dtype;
        let operand = weights.operand()?;
        let all = OnGpu { at: operand.at(), dtype, rows: dims[0], columns: dims[1] };
        all.part(gpu, self.divides_rows(side), places)
    }
}

/// The product that adds to a gradient of weights, on a GPU.
pub(super) fn grad_product(left: &Tensor, right: &Tensor, starts_sum: bool) -> Product {
    let sizes = [left.shape().last(), left.shape().rows(), right.shape().last()];
    Product {
        left_turned: true,
        out: DType::F32,
        start: cuda::Start::of_sum(starts_sum),
        ..Product::new(sizes, left.dtype())
    }
}

/// What the product is added to.
fn start(bias: Option<&Parameter>) -> Start<'_> {
    bias.map_or(Start::Zero, |bias| Start::Row(&bias.value))
}

/// The numbers of these rows.
fn of(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

/// Where the first of these rows lies on its GPU.
fn first(tensor: &Tensor, rows: &Range<usize>) -> Ptr {
    let row = tensor.shape().last() * tensor.dtype().bytes();
    tensor.at().offset(rows.start * row)
}
