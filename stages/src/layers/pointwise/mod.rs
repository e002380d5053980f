//! Layers that compute each number from one number: a formula for the CPU, and one in `kernel.cu`.

pub(crate) mod cpu;
pub(crate) mod gelu;
pub(crate) mod relu;
pub(crate) mod sigmoid;
pub(crate) mod tanh;

use crate::cpu::real::{Real, in_format};
use crate::device::DType;
use crate::error::{Result, check_numbers};
use crate::layers::linear::column_sums::ColumnSums;
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use cpu::Loops;

/// A layer that computes each number of its output from one number of its input, on any shape.
pub(crate) trait Pointwise: std::fmt::Debug + 'static {
    /// As [`Layer::name`].
    fn name(&self) -> &str;

    /// The loops of the CPU.
    fn on_cpu<N: Real>(&self) -> Loops<N>;

    /// The kernels of forward and backward. `None` if it runs on the CPU only, in `f32`.
    fn on_gpu(&self, _dtype: DType) -> Option<[&'static str; 2]> {
        None
    }

    /// Where the sums for the bias of the layer before go, if a GPU makes them, and the kernel of a backward
    /// that makes them too.
    fn sums(&self, _dtype: DType) -> Option<(&ColumnSums, &'static str)> {
        None
    }
}

impl<P: Pointwise> Layer for P {
    fn name(&self) -> &str {
        Pointwise::name(self)
    }

    fn runs_on_gpus(&self) -> bool {
        self.on_gpu(DType::F32).is_some()
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        Ok(*input)
    }

    /// It treats each row alone.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        in_format!(input.dtype(), N => forward::<N>(self, ctx, input))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        match self.on_cpu::<f32>() {
            Loops::OfInput(..) => Ok(Kept::new(ctx, [input])),
            Loops::OfOutput(..) => Ok(self.forward(ctx, input)?.1),
        }
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [kept] = saved.into_tensors();
        match grad.gpu()? {
            Some(gpu) => match self.sums(grad.dtype()).filter(|(sums, _)| sums.are_used()) {
                Some((sums, kernel)) => sums.make(&gpu, kernel, &mut grad, kept.at())?,
                None => {
                    let [_, kernel] = kernels(self, grad.dtype());
                    let count = grad.shape().count();
                    gpu.each(kernel, [grad.at_mut(&gpu)?, kept.at()], count)?;
                }
            },
            None => in_format!(grad.dtype(), N => match self.on_cpu::<N>() {
                Loops::OfInput(_, backward) | Loops::OfOutput(_, backward) => {
                    backward(grad.numbers_mut(), kept.numbers());
                }
            }),
        }
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}

fn forward<N: Real>(layer: &impl Pointwise, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
    let (dtype, count) = (input.dtype(), input.shape().count());
    match layer.on_cpu::<N>() {
        Loops::OfInput(forward, _) => {
            let mut output = input.beside(input.dims())?;
            match input.gpu()? {
                Some(gpu) => gpu.each(kernels(layer, dtype)[0], [output.at(), input.at()], count)?,
                None => forward(output.numbers_mut(), input.numbers()),
            }
            Ok((output, Kept::new(ctx, [input])))
        }
        Loops::OfOutput(forward, _) => {
            let mut output = input;
            match output.gpu()? {
                Some(gpu) => gpu.each(kernels(layer, dtype)[0], [output.at_mut(&gpu)?], count)?,
                None => forward(output.numbers_mut()),
            }
            Ok((output.clone(), Kept::new(ctx, [output])))
        }
    }
}

fn kernels(layer: &impl Pointwise, dtype: DType) -> [&'static str; 2] {
    layer.on_gpu(dtype).expect("checked: the layer runs on GPUs")
}
