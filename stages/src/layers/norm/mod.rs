//! Layer normalisation and root mean square normalisation of rows, and what other norms share with them.

pub(crate) mod cpu;
pub(crate) mod cuda;

use super::Cheap;
use crate::cpu::real::in_format;
use crate::cuda::launch::args;
use crate::cuda::{Gpu, Ptr};
use crate::device::DType;
use crate::error::{Error, Result, check_rows};
use crate::layers::norm::cpu as norm;
use crate::layers::norm::cuda::Rows;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shape::Shape;
use crate::shards::{Sharding, Team};
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::{Layer, check_added};
use crate::tensor::{Bytes, Tensor};

/// Added to the variance, as in PyTorch.
const EPSILON: f32 = 1e-5;

/// Normalises the innermost dimension to mean 0 and standard deviation 1, then scales and shifts it. Ba,
/// Kiros and Hinton, "Layer normalization" (2016).
///
/// Parameters: `{name}.weight` (starts at 1) and `{name}.bias` (starts at 0). It keeps its input and two
/// numbers for each row.
pub type LayerNorm = RowNorm<true>;

/// Divides the innermost dimension by its root mean square, then scales it: `f32[.., width]` to the same.
/// `y = g x / sqrt(mean(x^2) + epsilon)`. Zhang and Sennrich, "Root mean square layer normalization" (2019).
///
/// Parameter: the gain `{name}.weight` `[width]`, which starts at 1. It keeps its input and two numbers for
/// each row.
pub type RmsNorm = RowNorm<false>;

/// Normalises rows, then scales them. If it is centred, it also subtracts the mean, and adds a bias. It keeps
/// its input and two numbers for each row.
#[derive(Debug)]
pub struct RowNorm<const CENTRED: bool> {
    name: String,
    width: usize,
    epsilon: f32,
    weight: Parameter,
    bias: Option<Parameter>,
    sharding: Sharding,
    /// The shards, if there are several.
    team: Option<Team>,
}

impl LayerNorm {
    /// A layer for rows of `width` numbers.
    pub fn new(name: &str, width: usize) -> Self {
        Self::of_rows(name, width, EPSILON)
    }
}

impl RmsNorm {
    /// A layer for rows of `width` numbers. `epsilon` is added to the mean square.
    pub fn new(name: &str, width: usize, epsilon: f32) -> Self {
        Self::of_rows(name, width, epsilon)
    }
}

impl<const CENTRED: bool> RowNorm<CENTRED> {
    fn of_rows(name: &str, width: usize, epsilon: f32) -> Self {
        let parameter = |which, init| Parameter::new(format!("{name}.{which}"), &[width], init, 0);
        Self {
            name: name.to_owned(),
            width,
            epsilon,
            weight: parameter("weight", Init::Ones),
            bias: CENTRED.then(|| parameter("bias", Init::Zeros)),
            sharding: Sharding::default(),
            team: None,
        }
    }

    /// The same layer, whose rows are divided among shards. The gradients of its parameters are added up in
    /// groups of rows: see [`Sharding::groups`](crate::Sharding::groups).
    #[must_use]
    pub fn divided(mut self, sharding: Sharding) -> Self {
        self.sharding = sharding;
        if sharding.groups() > 1 {
            let groups = sharding.own_groups();
            self.weight.add_up_in(groups);
            self.bias.iter_mut().for_each(|bias| bias.add_up_in(groups));
        }
        self
    }

    fn is_frozen(&self) -> bool {
        self.weight.is_frozen() && self.bias.as_ref().is_none_or(Parameter::is_frozen)
    }

    /// What backward-weight needs.
    fn pending(&self, ctx: ForwardContext, weight_grads: Tensor) -> Kept {
        Kept::new(ctx, (!self.is_frozen()).then_some(weight_grads))
    }

    /// Turns the output gradient into the input gradient, and adds `onto` to that, if it is given. Returns
    /// the gradients of the parameters.
    fn input_grad(
        &self,
        grad: &mut Tensor,
        onto: Option<&Tensor>,
        input: &Tensor,
        stats: &Tensor,
    ) -> Result<Tensor> {
        onto.map_or(Ok(()), |onto| check_added(input.shape(), onto))?;
        let all = self.team.as_ref().map_or(input.shape().rows(), Team::rows);
        if let Some(gpu) = grad.gpu()? {
            return self.input_grad_on(&gpu, grad, onto, [input, stats], all);
        }
        let mut weight_grads = Tensor::zeros(&[2 * self.sharding.own_groups(), self.width]);
        let gain = &self.weight.value;
        for (slot, rows) in self.sharding.groups_of_rows(all) {
            let pair = &mut weight_grads.f32_mut()[2 * slot * self.width..];
            let (gain_grad, shift_grad) = pair[..2 * self.width].split_at_mut(self.width);
            let shift_grad = CENTRED.then_some(shift_grad);
            let numbers = rows.start * self.width..rows.end * self.width;
            let stats = &stats.f32()[2 * rows.start..2 * rows.end];
            in_format!(grad.dtype(), N => {
                let grad = &mut grad.numbers_mut::<N>()[numbers.clone()];
                norm::backward(grad, &input.numbers()[numbers], stats, gain, gain_grad, shift_grad);
            });
        }
        onto.map_or(Ok(()), |onto| grad.add(onto))?;
        Ok(weight_grads)
    }

    /// As [`RowNorm::input_grad`], on a GPU. The rows are a part of `all` rows.
    fn input_grad_on(
        &self,
        gpu: &Gpu,
        grad: &mut Tensor,
        onto: Option<&Tensor>,
        [input, stats]: [&Tensor; 2],
        all: usize,
    ) -> Result<Tensor> {
        let (width, groups) = (self.width, self.sharding.own_groups());
        let weight_grads = Tensor::on_gpu(gpu, DType::F32, &[2 * groups, width])?;
        if groups > 1 {
            gpu.clear(weight_grads.at(), weight_grads.bytes() as usize)?;
        }
        let (dtype, is_centred) = (grad.dtype(), u32::from(CENTRED));
        let (at, [gain, _]) = (grad.at_mut(gpu)?, self.at());
        for (slot, places) in self.sharding.groups_of_rows(all) {
            let rows = Rows { count: places.len(), width };
            let grid = rows.summing_grid(gpu);
            let blocks = grid.blocks[0] as usize;
            let partials = gpu.memory_of(blocks * 2 * width * 4)?;
            let row = |at: Ptr| at.offset(places.start * width * dtype.bytes());
            let onto = onto.map_or(Ptr::NONE, |onto| row(onto.at()));
            let stats = stats.at().offset(places.start * 2 * 4);
            let input = row(input.at());
            let args = args![row(at), &partials, onto, input, stats, gain, rows.count, width, is_centred];
            gpu.launch(rows.backward_kernel(dtype), grid, &args)?;
            let to = weight_grads.at().offset(slot * 2 * width * 4);
            gpu.sum_rows(to, partials.at(), blocks, 2 * width)?;
        }
        Ok(weight_grads)
    }

    /// As [`RowNorm::backward`], and computes the output again.
    fn backward_and_output(
        &self,
        saved: Kept,
        mut grad: Tensor,
        onto: Option<&Tensor>,
    ) -> Result<(Tensor, Kept, Tensor)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let weight_grads = self.input_grad(&mut grad, onto, &input, &stats)?;
        let mut output = input.beside(input.dims())?;
        if let Some(gpu) = input.gpu()? {
            let ([gain, shift], rows) = (self.at(), self.rows(&input));
            let args = args![&output, &stats, &input, gain, shift, rows.count, rows.width];
            gpu.launch(rows.again_kernel(input.dtype()), rows.grid(&gpu), &args)?;
        } else {
            let (gain, shift) = self.values();
            in_format!(input.dtype(), N => {
                let (output, input) = (output.numbers_mut::<N>(), input.numbers());
                norm::forward_again(output, stats.f32(), input, gain, shift);
            });
        }
        Ok((grad, self.pending(ctx, weight_grads), output))
    }

    /// The input gradient, with `onto` added to it, if it is given, and what backward-weight needs.
    fn backward(&self, saved: Kept, mut grad: Tensor, onto: Option<&Tensor>) -> Result<(Tensor, Kept)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        let weight_grads = self.input_grad(&mut grad, onto, &input, &stats)?;
        Ok((grad, self.pending(ctx, weight_grads)))
    }

    fn rows(&self, input: &Tensor) -> Rows {
        Rows { count: input.shape().rows(), width: self.width }
    }

    /// The addresses of scale and shift on the GPU.
    fn at(&self) -> [Ptr; 2] {
        let at = |parameter: &Parameter| parameter.weights().value();
        [at(&self.weight), self.bias.as_ref().map_or(Ptr::NONE, at)]
    }

    /// Scale and shift on the CPU.
    fn values(&self) -> (&[f32], Option<&[f32]>) {
        (&self.weight.value, self.bias.as_ref().map(|bias| &bias.value[..]))
    }
}

impl<const CENTRED: bool> Cheap for RowNorm<CENTRED> {
    fn backward_with_output(&mut self, saved: Kept, grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        self.backward_and_output(saved, grad, None)
    }

    fn backward_with_output_onto(
        &mut self,
        saved: Kept,
        grad: Tensor,
        onto: Tensor,
    ) -> Result<(Tensor, Kept, Tensor)> {
        self.backward_and_output(saved, grad, Some(&onto))
    }
}

impl<const CENTRED: bool> Layer for RowNorm<CENTRED> {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.width)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        let mut stats = input.f32_beside(&[shape.rows(), 2])?;
        if let Some(gpu) = input.gpu()? {
            let ([gain, shift], rows) = (self.at(), self.rows(&input));
            let args = args![&output, &stats, &input, gain, shift, rows.count, rows.width, self.epsilon];
            gpu.launch(rows.forward_kernel(input.dtype()), rows.grid(&gpu), &args)?;
            return Ok((output, Kept::new(ctx, [input, stats])));
        }
        let (gain, shift) = self.values();
        in_format!(input.dtype(), N => {
            let (output, from) = (output.numbers_mut::<N>(), input.numbers());
            norm::forward(output, stats.f32_mut(), from, gain, shift, self.epsilon);
        });
        Ok((output, Kept::new(ctx, [input, stats])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (input_grad, pending) = self.backward(saved, grad, None)?;
        Ok((Some(input_grad), pending))
    }

    fn backward_input_onto(&mut self, saved: Kept, grad: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        self.backward(saved, grad, Some(&onto))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let parameters = [Some(&mut self.weight), self.bias.as_mut()];
        add_grads(parameters, pending)
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        if self.sharding.shard() != team.shard() {
            return Err(Error::new("its rows are not divided: see `RowNorm::divided`"));
        }
        self.team = Some(team.clone());
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.weight);
        self.bias.iter_mut().for_each(visit);
    }
}

/// Adds to the gradients of a norm's parameters the rows of `f32` that backward-input has made: for each
/// group of rows, in turn one for each, or for nobody. If all are frozen, it has made none.
pub(crate) fn add_grads<const N: usize>(
    mut parameters: [Option<&mut Parameter>; N],
    pending: Kept,
) -> Result<()> {
    if parameters.iter().flatten().all(|parameter| parameter.is_frozen()) {
        return Ok(());
    }
    let [adds] = pending.into_tensors();
    let width = adds.shape().last();
    for row in 0..adds.shape().rows() {
        let Some(parameter) = &mut parameters[row % N] else {
            continue;
        };
        if parameter.is_frozen() {
            continue;
        }
        let start = row * width;
        parameter.add_grad_of_rows(row / N, &adds, start)?;
    }
    Ok(())
}
