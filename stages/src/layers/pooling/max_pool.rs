//! Max pooling.

use crate::device::DType;
use crate::error::{Result, SettingError};
use crate::layers::conv::cpu::window::{Image, Window};
use crate::layers::conv::cuda::Windows;
use crate::layers::conv::images::{shape, windows};
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

    fn sizes_of(&self, input: &Shape) -> Result<(usize, Image, Image)> {
        let sizes = windows(input, None, self.window, |channels| channels)?;
        let Window { kernel, padding, .. } = self.window;
        if padding >= kernel {
            return Err(SettingError::Padding { padding, kernel }.into());
        }
        Ok(sizes)
    }

    fn windows_of(&self, input: &Shape) -> Result<Windows> {
        let (count, image, seen) = self.sizes_of(input)?;
        Ok(Windows { count, image, seen, window: self.window })
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
        let (count, _, seen) = self.sizes_of(input)?;
        Ok(shape(count, seen))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let (count, image, seen) = self.sizes_of(input.shape())?;
        let dims = shape(count, seen);
        // An empty tensor carries the inner dimensions to backward.
        let inner = Tensor::scratch(input.shape().with_first(0).dims());
        if let Some(gpu) = input.gpu()? {
            let output = input.beside(dims.dims())?;
            // Ids of four bytes, as numbers of `f32` have.
            let found = Tensor::on_gpu(&gpu, DType::F32, dims.dims())?;
            let of = self.windows_of(input.shape())?;
            gpu.max_pool(input.dtype(), output.at(), found.at(), input.at(), of)?;
            return Ok((output, Kept::new(ctx, [found, inner])));
        }
        let mut output = Tensor::on_host(dims.dims())?;
        let mut found = Tensor::scratch_ids(dims.dims());
        let dtype = input.dtype();
        let input = input.converted(DType::F32)?;
        max_pool::forward(output.f32_mut(), found.ids_mut(), input.f32(), image, self.window);
        Ok((output.converted(dtype)?, Kept::new(ctx, [found, inner])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [found, inner] = saved.into_tensors();
        let shape = inner.shape().with_first(grad.dims()[0]);
        if let Some(gpu) = grad.gpu()? {
            let input_grad = grad.beside(shape.dims())?;
            let of = self.windows_of(&shape)?;
            gpu.max_pool_backward(grad.dtype(), input_grad.at(), grad.at(), found.at(), of)?;
            return Ok((Some(input_grad), Kept::new(ctx, [])));
        }
        let (_, image, _) = self.sizes_of(&shape)?;
        let mut input_grad = Tensor::on_host(shape.dims())?;
        let dtype = grad.dtype();
        let grad = grad.converted(DType::F32)?;
        max_pool::backward(input_grad.f32_mut(), grad.f32(), found.ids(), image, self.window);
        Ok((Some(input_grad.converted(dtype)?), Kept::new(ctx, [])))
    }
}
