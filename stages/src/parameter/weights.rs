//! A parameter's numbers on a GPU.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::cuda::batched_launch::{Entry, Used};
use crate::cuda::launch::{Arg, args};
use crate::cuda::{Gpu, Memory, Pinned, Ptr, Together};
use crate::device::{DType, Device, Place};
use crate::error::Result;
use crate::parameter::description::{PIECE, Part};
use crate::tensor::numbers::Numbers;

/// The threads of a block. Each has four numbers.
const THREADS: u32 = 256;

/// How many blocks `count` numbers take.
fn blocks(count: usize) -> usize {
    count.div_ceil(4 * THREADS as usize)
}

/// A parameter's numbers on a GPU: weights, gradient and the optimizer's tensors in `f32`. If products use
/// another number format, also a copy of the weights in that format.
#[derive(Debug)]
pub(crate) struct Weights {
    place: Place,
    count: usize,
    /// How many numbers the gradient has.
    trained: usize,
    value: Memory,
    grad: Memory,
    /// For the numbers that are owned.
    state: Vec<Memory>,
    owned: Range<usize>,
    copy: Option<Memory>,
    /// Where the GPU writes the sums of the squares of the gradient, one for each piece.
    squares: Arc<Pinned>,
}

impl Weights {
    /// These weights on a GPU, with a gradient of `trained` numbers. Gradient and state must still be stored.
    pub(crate) fn new(gpu: &Gpu, dtype: DType, value: &[f32], trained: usize) -> Result<Self> {
        let bytes = size_of_val(value);
        let copy = match dtype {
            DType::F32 => None,
            DType::Bf16 => Some(gpu.lasting_memory_of(dtype.bytes() * value.len())?),
        };
        let device = Device::Cuda(gpu.index());
        let weights = Self {
            place: Place { device, dtype },
            count: value.len(),
            trained,
            value: gpu.lasting_memory_of(bytes)?,
            grad: gpu.lasting_memory_of(trained * size_of::<f32>())?,
            state: Vec::new(),
            owned: 0..trained,
            copy,
            squares: Arc::new(Pinned::new(trained.div_ceil(PIECE) * size_of::<f64>())?),
        };
        weights.store_value(value)?;
        Ok(weights)
    }

    /// The GPU that they are on.
    pub(crate) fn gpu(&self) -> Result<Rc<Gpu>> {
        Gpu::of(self.value.device())
    }

    /// Where they are, and the number format of products with them.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// How many numbers the gradient has.
    pub(crate) fn trained(&self) -> usize {
        self.trained
    }

    /// The weights in `f32`.
    pub(crate) fn value(&self) -> Ptr {
        self.value.at()
    }

    /// The weights in the number format of products.
    pub(crate) fn operand(&self) -> Ptr {
        self.copy.as_ref().unwrap_or(&self.value).at()
    }

    /// As [`Parameter::own`].
    pub(crate) fn own(&mut self, numbers: Range<usize>) {
        self.owned = numbers;
    }

    /// The gradient, `f32`.
    pub(crate) fn grad(&self) -> Ptr {
        self.grad.at()
    }

    /// The gradient's memory.
    pub(crate) fn grad_memory(&self) -> Memory {
        self.grad.clone()
    }

    /// The weights' memory.
    pub(crate) fn value_memory(&self) -> Memory {
        self.value.clone()
    }

    /// Memory for another gradient.
    pub(crate) fn more_grad_memory(&self) -> Result<Memory> {
        self.gpu()?.lasting_memory_of(self.grad_bytes())
    }

    /// Exchanges the gradient's memory for another one.
    pub(crate) fn trade_grad(&mut self, memory: &mut Memory) {
        std::mem::swap(&mut self.grad, memory);
    }

    /// Sets the weights from this place on.
    pub(crate) fn set_value(&self, start: usize, bytes: &[u8]) -> Result<()> {
        let gpu = self.gpu()?;
        let at = self.value.at().offset(start * size_of::<f32>());
        gpu.upload_to(at, bytes)?;
        self.round(&gpu, start, bytes.len() / size_of::<f32>())
    }

    /// Sets the weights from this place on to `f32` numbers of the same GPU.
    pub(crate) fn copy_value(&self, start: usize, from: Ptr, count: usize) -> Result<()> {
        let gpu = self.gpu()?;
        let at = self.value.at().offset(start * size_of::<f32>());
        gpu.copy(at, from, count * size_of::<f32>())?;
        self.round(&gpu, start, count)
    }

    /// Renews the copy of these weights in the number format of products.
    fn round(&self, gpu: &Gpu, start: usize, count: usize) -> Result<()> {
        let Some(copy) = &self.copy else {
            return Ok(());
        };
        let at = self.value.at().offset(start * size_of::<f32>());
        gpu.cast_to_bf16(copy.at().offset(start * DType::Bf16.bytes()), at, count)
    }

    fn make_state(&mut self, count: usize) -> Result<()> {
        let gpu = self.gpu()?;
        let bytes = self.owned.len() * size_of::<f32>();
        let zeros = || {
            let memory = gpu.lasting_memory_of(bytes)?;
            gpu.clear(memory.at(), bytes)?;
            Ok(memory)
        };
        self.state = (0..count).map(|_| zeros()).collect::<Result<_>>()?;
        Ok(())
    }

    fn grad_bytes(&self) -> usize {
        self.trained * size_of::<f32>()
    }

    /// Sets the gradient to zero.
    pub(crate) fn zero_grad(&self) -> Result<()> {
        match self.trained {
            0 => Ok(()),
            _ => self.gpu()?.clear(self.grad.at(), self.grad_bytes()),
        }
    }

    /// Adds `f32` numbers to the gradient.
    pub(crate) fn add_grad(&self, gpu: &Gpu, more: Ptr) -> Result<()> {
        gpu.add(DType::F32, self.grad(), self.grad(), more, self.trained)
    }

    /// Queues an optimizer's kernel, together with other parameters of the same `args`. It updates the
    /// weights that are owned here, and keeps `states` tensors. `own` are two numbers for this parameter.
    pub(crate) fn update(
        &mut self,
        kernel: &'static str,
        args: &[Arg],
        states: usize,
        own: [f32; 2],
        together: &mut Together,
    ) -> Result<()> {
        if self.state.len() != states {
            self.make_state(states)?;
        }
        let (start, count) = (self.owned.start, self.owned.len());
        let full = |memory: &Memory| memory.at().offset(size_of::<f32>() * start).0;
        let half = |memory: &Memory| memory.at().offset(DType::Bf16.bytes() * start).0;
        let state = |index| self.state.get(index).map_or(Ptr::NONE, Memory::at).0;
        let words = [
            full(&self.value),
            full(&self.grad),
            state(0),
            state(1),
            self.copy.as_ref().map_or(Ptr::NONE.0, half),
            count as u64,
            bytemuck::cast(own),
        ];
        let memory = [&self.value, &self.grad].into_iter().chain(&self.copy);
        let entry = Entry {
            words: &words,
            of: self.grad(),
            blocks: blocks(count),
            memory: memory.chain(&self.state).map(Used::from).collect(),
        };
        together.add(&*self.gpu()?, (kernel, THREADS), args, entry)
    }

    /// Queues the sums of the squares of the gradient, one for each piece, together with other parameters.
    pub(crate) fn start_squares(&self, together: &mut Together) -> Result<()> {
        let entry = Entry {
            words: &[self.squares.at().0, self.grad.at().0, self.trained as u64],
            of: self.grad(),
            blocks: self.trained.div_ceil(PIECE),
            memory: [Used::from(&self.squares), Used::from(&self.grad)].into_iter().collect(),
        };
        let args = args![PIECE];
        together.add(&*self.gpu()?, ("sum_squares", THREADS), &args, entry)
    }

    /// Sets the gradient to zero, together with other parameters.
    pub(crate) fn clear_grad(&self, together: &mut Together) -> Result<()> {
        let entry = Entry {
            words: &[self.grad.at().0, self.trained as u64],
            of: self.grad(),
            blocks: blocks(self.trained),
            memory: [Used::from(&self.grad)].into_iter().collect(),
        };
        together.add(&*self.gpu()?, ("clear_gradients", THREADS), &[], entry)
    }

    /// The sums that were queued last, one for each piece. All work queued before must be done.
    pub(crate) fn squares(&self) -> &[f64] {
        self.squares.numbers()
    }

    fn store_value(&self, value: &[f32]) -> Result<()> {
        let gpu = self.gpu()?;
        gpu.upload_to(self.value.at(), bytemuck::cast_slice(value))?;
        self.round(&gpu, 0, self.count)
    }

    /// Copies numbers from the host.
    pub(crate) fn store(&mut self, part: Part, numbers: &[Numbers]) -> Result<()> {
        let gpu = self.gpu()?;
        match part {
            Part::Value => return self.store_value(&numbers[0]),
            Part::Gradient => return gpu.upload_to(self.grad.at(), bytemuck::cast_slice(&numbers[0])),
            Part::State => {}
        }
        if self.state.len() != numbers.len() {
            self.make_state(numbers.len())?;
        }
        let mut pairs = self.state.iter().zip(numbers);
        pairs.try_for_each(|(memory, numbers)| gpu.upload_to(memory.at(), bytemuck::cast_slice(numbers)))
    }

    /// Copies numbers to the host. Waits for all work queued before.
    pub(crate) fn fetch(&self, part: Part, numbers: &mut [Numbers]) -> Result<()> {
        let gpu = self.gpu()?;
        let memories = match part {
            Part::Value => std::slice::from_ref(&self.value),
            Part::Gradient => std::slice::from_ref(&self.grad),
            Part::State => &self.state[..],
        };
        let mut pairs = memories.iter().zip(numbers);
        pairs.try_for_each(|(memory, numbers)| gpu.download(memory.at(), bytemuck::cast_slice_mut(numbers)))
    }

    /// How many tensors the optimizer has.
    pub(crate) fn states(&self) -> usize {
        self.state.len()
    }
}
