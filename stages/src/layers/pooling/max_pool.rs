//! Max pooling.

use crate::cuda::Grid;
use crate::cuda::launch::{args, kernel};
use crate::device::DType;
use crate::error::{Error, Result};
use crate::layers::conv::cpu::window::{Window, Windows};
use crate::layers::conv::cuda::threads;
use crate::layers::conv::images::windows;
use crate::layers::pooling::cpu as max_pool;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// The largest number of each channel in a square window: numbers `[batch, height, width, channels]` to
/// `[batch, places, places, channels]`, where a side has `(side + 2 padding - kernel) / stride + 1` places,
/// rounded down.
///
/// The border counts as smaller than all numbers. The gradient goes to the first of equally large numbers. It
/// keeps an id of four bytes for each output.
#[derive(Debug)]
pub struct MaxPool {
    name: String,
    window: Window,
}

impl MaxPool {
    /// A layer whose windows have this side and lie beside each other.
    pub fn new(name: &str, kernel: usize) -> Self {
        Self { name: name.to_owned(), window: Window { kernel, stride: kernel, padding: 0 } }
    }

    /// The same layer, whose window moves by `stride` pixels.
    #[must_use]
    pub fn with_stride(mut self, stride: usize) -> Self {
        self.window.stride = stride;
        self
    }

    /// The same layer with a border of `padding` pixels.
    #[must_use]
    pub fn with_padding(mut self, padding: usize) -> Self {
        self.window.padding = padding;
        self
    }

    fn windows_of(&self, input: &Shape) -> Result<Windows> {
        let of = windows(input, None, self.window, |channels| channels)?;
        let Window { kernel, padding, .. } = self.window;
        if padding >= kernel {
            return Err(Error::new(format!(
                "padding {padding} is not smaller than the kernel {kernel}: a window would see no pixel"
            )));
        }
        Ok(of)
    }
}

impl Layer for MaxPool {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(self.windows_of(input)?.output_shape())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let of = self.windows_of(input.shape())?;
        let shape = of.output_shape();
        let inner = input.without_rows();
        if let Some(gpu) = input.gpu()? {
            let output = input.beside(shape.dims())?;
            // Ids of four bytes, as numbers of `f32` have.
            let found = Tensor::on_gpu(&gpu, DType::F32, shape.dims())?;
            let grid = Grid::row(of.count * of.places(), threads(of.image.channels));
            let args = of.args(&args![&output, &found, &input]);
            gpu.launch(kernel!(input.dtype(), "max_pool"), grid, &args)?;
            return Ok((output, Kept::new(ctx, [found, inner])));
        }
        let mut output = Tensor::on_host(shape.dims())?;
        let mut found = Tensor::scratch_ids(shape.dims());
        let dtype = input.dtype();
        let input = input.converted(DType::F32)?;
        max_pool::forward(output.f32_mut(), found.ids_mut(), input.f32(), of.image, self.window);
        Ok((output.converted(dtype)?, Kept::new(ctx, [found, inner])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [found, inner] = saved.into_tensors();
        let shape = inner.shape().with_first(grad.dims()[0]);
        let of = self.windows_of(&shape)?;
        if let Some(gpu) = grad.gpu()? {
            let (input_grad, name) = (grad.beside(shape.dims())?, kernel!(grad.dtype(), "max_pool_backward"));
            of.each_pixel(&gpu, name, of.count, &args![&input_grad, &grad, &found])?;
            return Ok((Some(input_grad), Kept::new(ctx, [])));
        }
        let mut input_grad = Tensor::on_host(shape.dims())?;
        let dtype = grad.dtype();
        let grad = grad.converted(DType::F32)?;
        max_pool::backward(input_grad.f32_mut(), grad.f32(), found.ids(), of.image, self.window);
        Ok((Some(input_grad.converted(dtype)?), Kept::new(ctx, [])))
    }
}
