//! A parameter's numbers on a GPU.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cuda::batched_launch::{Entry, Used};
use crate::cuda::launch::{Arg, args};
use crate::cuda::{Added, Gpu, Memory, Pinned, Product, Ptr, Together};
use crate::device::{DType, Device, Place};
use crate::error::{Error, Result};
use crate::parameter::description::{PIECE, Part};
use crate::parameter::gradient_memory::GradientMemory;
use crate::parameter::pieces::RowPieces;
use crate::parameter::state_format::StateFormat;
use crate::parameter::state_memory::StateMemory;
use crate::quantised::Quantised;
use crate::quantised::on_gpu::BlocksOnGpu;
use crate::tensor::Tensor;
use crate::tensor::numbers::Numbers;

/// The threads of a block. Each has four numbers.
const THREADS: u32 = 256;

/// How many weights are copied to the GPU at once where there is only room for a copy of two bytes each.
const AT_ONCE: usize = 1 << 20;

/// How many blocks `count` numbers take.
fn blocks(count: usize) -> usize {
    count.div_ceil(4 * THREADS as usize)
}

/// A parameter's numbers on a GPU: weights and gradient in `f32`, and the optimizer's tensors. If products
/// use another number format, also a copy of the weights in that format. Of a frozen matrix there is only the
/// copy, as nothing but products reads it; the host has its `f32` numbers. Of a quantised matrix there are
/// only blocks.
#[derive(Debug)]
pub(crate) struct Weights {
    place: Place,
    count: usize,
    /// How many numbers the gradient has.
    trained: usize,
    /// `None` if there is only the copy, or only blocks.
    value: Option<Memory>,
    grad: GradientMemory,
    /// The gradients of groups of rows, if there are several.
    of_rows: Vec<Memory>,
    state: StateMemory,
    /// Whether the state is on the host.
    state_on_host: bool,
    owned: Range<usize>,
    copy: Option<Memory>,
    blocks: Option<Arc<BlocksOnGpu>>,
    /// Where the GPU writes the sums of the squares of the gradient.
    squares: Arc<Pinned>,
    /// Where the numbers of each sum are, unless each has a piece: see [`RowPieces::table`].
    square_table: Option<Memory>,
}

/// The memory of weights: in `f32`, and in the number format of products.
#[derive(Clone, Debug)]
pub(crate) struct WeightMemory {
    value: Option<Memory>,
    copy: Option<Memory>,
    blocks: Option<Arc<BlocksOnGpu>>,
}

/// An optimizer's kernel for a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateKernel<'a> {
    pub(crate) name: &'static str,
    /// Arguments that are equal for many parameters.
    pub(crate) args: &'a [Arg],
    /// The formats of the tensors that it keeps.
    pub(crate) states: &'a [StateFormat],
    /// Two numbers for this parameter.
    pub(crate) own: [f32; 2],
}

/// Weights that are copied to a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnHost<'a> {
    /// In `f32`. `only_for_products`: nothing but products reads them.
    Numbers {
        value: &'a [f32],
        only_for_products: bool,
    },
    Blocks(&'a Quantised),
}

/// Weights in the number format of products. It has to live until the last product is queued.
#[derive(Debug)]
pub(crate) struct Operand {
    at: Ptr,
    /// The memory, if they are decoded only for these products.
    decoded: Option<Memory>,
}

impl Operand {
    pub(crate) fn at(&self) -> Ptr {
        self.decoded.as_ref().map_or(self.at, Memory::at)
    }
}

/// What the numbers of a gradient are added up in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping<'a> {
    /// How many groups of rows have a gradient of their own.
    pub(crate) of_rows: usize,
    /// The pieces of its norm, if its rows or columns are divided into groups.
    pub(crate) pieces: Option<&'a RowPieces>,
}

impl Weights {
    /// These weights on a GPU, with a gradient of `trained` numbers that are zero. The state must still be
    /// stored.
    pub(crate) fn new(
        gpu: &Gpu,
        dtype: DType,
        from: OnHost<'_>,
        trained: usize,
        grouping: Grouping<'_>,
    ) -> Result<Self> {
        let count = match from {
            OnHost::Numbers { value, .. } => value.len(),
            OnHost::Blocks(blocks) => blocks.rows() * blocks.columns(),
        };
        let (has_value, has_copy) = match (from, dtype) {
            (OnHost::Blocks(_), _) => (false, false),
            (_, DType::F32) => (true, false),
            (OnHost::Numbers { only_for_products, .. }, DType::Bf16) => (!only_for_products, true),
        };
        let memory = |has: bool, bytes: usize| has.then(|| gpu.lasting_memory_of(bytes)).transpose();
        let value = memory(has_value, count * size_of::<f32>())?;
        let copy = memory(has_copy, count * dtype.bytes())?;
        let device = Device::Cuda(gpu.index());
        let grad_bytes = trained * size_of::<f32>();
        let pieces = grouping.pieces.filter(|_| trained > 0);
        let sums = pieces.map_or(trained.div_ceil(PIECE), RowPieces::sums_here);
        let square_table = pieces.map(|pieces| {
            let table = pieces.table();
            let memory = gpu.lasting_memory_of(size_of_val(&table[..]))?;
            gpu.upload_to(memory.at(), bytemuck::cast_slice(&table))?;
            Ok::<_, Error>(memory)
        });
        let mut weights = Self {
            place: Place { device, dtype },
            count,
            trained,
            value,
            grad: GradientMemory::new(gpu.lasting_memory_of(grad_bytes)?),
            of_rows: (0..grouping.of_rows)
                .filter(|_| trained > 0)
                .map(|_| gpu.lasting_memory_of(grad_bytes))
                .collect::<Result<_>>()?,
            state: StateMemory::default(),
            state_on_host: false,
            owned: 0..trained,
            copy,
            blocks: None,
            squares: Arc::new(Pinned::new(sums * size_of::<f64>())?),
            square_table: square_table.transpose()?,
        };
        match from {
            OnHost::Numbers { value, .. } => weights.store_value(value)?,
            OnHost::Blocks(blocks) => weights.hold(blocks)?,
        }
        weights.zero_grad()?;
        Ok(weights)
    }

    /// The GPU that they are on.
    pub(crate) fn gpu(&self) -> Result<Rc<Gpu>> {
        Gpu::of(self.grad.device())
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
        self.value_memory().at()
    }

    /// The weights in the number format of products.
    pub(crate) fn operand(&self) -> Result<Operand> {
        if let Some(blocks) = &self.blocks {
            let decoded = blocks.decoded(&*self.gpu()?, self.place.dtype)?;
            return Ok(Operand { at: Ptr::NONE, decoded: Some(decoded) });
        }
        Ok(Operand { at: self.numbers(), decoded: None })
    }

    /// The weights in the number format of products.
    ///
    /// # Panics
    /// When they are in [blocks](Weights::blocks).
    pub(crate) fn numbers(&self) -> Ptr {
        self.copy.as_ref().unwrap_or_else(|| self.value_memory()).at()
    }

    /// The blocks, if it is a quantised matrix.
    pub(crate) fn blocks(&self) -> Option<&BlocksOnGpu> {
        self.blocks.as_deref()
    }

    /// Has these blocks from now on.
    pub(crate) fn hold(&mut self, blocks: &Quantised) -> Result<()> {
        let blocks = BlocksOnGpu::new(&*self.gpu()?, blocks)?;
        (self.value, self.copy, self.blocks) = (None, None, Some(Arc::new(blocks)));
        Ok(())
    }

    /// Has the weights of another parameter of this GPU from now on, in its memory, and no state.
    pub(crate) fn share(&mut self, leader: WeightMemory) {
        (self.value, self.copy, self.blocks) = (leader.value, leader.copy, leader.blocks);
        self.state = StateMemory::default();
    }

    /// The memory of the weights.
    pub(crate) fn shared(&self) -> WeightMemory {
        let Self { value, copy, blocks, .. } = self;
        WeightMemory { value: value.clone(), copy: copy.clone(), blocks: blocks.clone() }
    }

    /// As [`Parameter::own`].
    pub(crate) fn own(&mut self, numbers: Range<usize>) {
        self.owned = numbers;
    }

    /// Says whether the state, which there is not yet, is on the host.
    pub(crate) fn keep_state(&mut self, on_host: bool) {
        self.state_on_host = on_host;
    }

    /// The gradient, `f32`, for work on the compute stream.
    pub(crate) fn grad(&self) -> Result<Ptr> {
        self.grad.settled().map(Memory::at)
    }

    /// The gradient's memory, for work on the compute stream.
    pub(crate) fn grad_memory(&self) -> Result<Memory> {
        self.grad.settled().cloned()
    }

    /// Adds a product of two tensors to the gradient, as the product says. Both are a whole micro-batch.
    pub(crate) fn add_product(&self, gpu: &Gpu, product: Product, [left, right]: [&Tensor; 2]) -> Result<()> {
        let memory = [left, right].map(Tensor::device_memory);
        if self.grad.write_beside(gpu, product, memory)? {
            return Ok(());
        }
        gpu.product(product, self.grad()?, left.at(), right.at(), Added::default())
    }

    /// The memory of the weights in `f32`.
    ///
    /// # Panics
    /// When there is only the copy for products.
    pub(crate) fn value_memory(&self) -> &Memory {
        self.value.as_ref().expect("only products read a frozen matrix")
    }

    /// Memory for another gradient.
    pub(crate) fn more_grad_memory(&self) -> Result<Memory> {
        self.gpu()?.lasting_memory_of(self.grad_bytes())
    }

    /// Exchanges the gradient's memory for another one.
    pub(crate) fn trade_grad(&mut self, memory: &mut Memory) -> Result<()> {
        self.grad.trade(memory)
    }

    /// Sets the weights from this place on.
    pub(crate) fn set_value(&self, start: usize, bytes: &[u8]) -> Result<()> {
        let gpu = self.gpu()?;
        let at = self.value().offset(start * size_of::<f32>());
        gpu.upload_to(at, bytes)?;
        self.round(&gpu, start, bytes.len() / size_of::<f32>())
    }

    /// Sets the weights from this place on to `f32` numbers of the same GPU.
    pub(crate) fn copy_value(&self, start: usize, from: Ptr, count: usize) -> Result<()> {
        let gpu = self.gpu()?;
        let at = self.value().offset(start * size_of::<f32>());
        gpu.copy(at, from, count * size_of::<f32>())?;
        self.round(&gpu, start, count)
    }

    /// Renews the copy of these weights in the number format of products.
    fn round(&self, gpu: &Gpu, start: usize, count: usize) -> Result<()> {
        let Some(copy) = &self.copy else {
            return Ok(());
        };
        let at = self.value().offset(start * size_of::<f32>());
        gpu.cast_to_bf16(copy.at().offset(start * DType::Bf16.bytes()), at, count)
    }

    /// Makes a tensor of the optimizer for each number of words, all zeros.
    fn make_state(&mut self, words: impl Iterator<Item = usize>) -> Result<()> {
        self.state = StateMemory::new(&*self.gpu()?, self.state_on_host, words)?;
        Ok(())
    }

    fn grad_bytes(&self) -> usize {
        self.trained * size_of::<f32>()
    }

    /// Sets the gradient to zero.
    pub(crate) fn zero_grad(&self) -> Result<()> {
        if self.trained == 0 {
            return Ok(());
        }
        let gpu = self.gpu()?;
        let all = std::iter::once(self.grad.settled()?).chain(&self.of_rows);
        all.into_iter().try_for_each(|memory| gpu.clear(memory.at(), self.grad_bytes()))
    }

    /// Adds `f32` numbers to the gradient of a group of rows.
    pub(crate) fn add_grad_of_rows(&self, gpu: &Gpu, group: usize, more: Ptr) -> Result<()> {
        let sum = self.of_rows.get(group).map_or_else(|| self.grad(), |sum| Ok(sum.at()))?;
        gpu.add(DType::F32, sum, sum, more, self.trained)
    }

    /// Adds up the groups of rows by the tree, if there are several.
    pub(crate) fn join_rows(&self) -> Result<()> {
        let Some(total) = self.of_rows.first().filter(|_| self.trained > 0) else {
            return Ok(());
        };
        let gpu = self.gpu()?;
        let mut apart = 1;
        while apart < self.of_rows.len() {
            for pair in self.of_rows.chunks_exact(2 * apart) {
                let (sum, more) = (pair[0].at(), pair[apart].at());
                gpu.add(DType::F32, sum, sum, more, self.trained)?;
            }
            apart *= 2;
        }
        gpu.copy(self.grad()?, total.at(), self.grad_bytes())
    }

    /// Copies the gradient to this place of a tensor.
    pub(crate) fn copy_grad_to(&self, to: Ptr) -> Result<()> {
        self.gpu()?.copy(to, self.grad()?, self.grad_bytes())
    }

    /// Takes the gradient from this place of a tensor.
    pub(crate) fn copy_grad_from(&self, from: Ptr) -> Result<()> {
        self.gpu()?.copy(self.grad()?, from, self.grad_bytes())
    }

    /// Adds `f32` numbers to the gradient.
    pub(crate) fn add_grad(&self, gpu: &Gpu, more: Ptr) -> Result<()> {
        let sum = self.grad()?;
        gpu.add(DType::F32, sum, sum, more, self.trained)
    }

    /// Queues an optimizer's kernel, together with other parameters of the same arguments. It updates the
    /// weights that are owned here. If the state is on the host, it is queued for one part after the other,
    /// without waiting for other parameters.
    pub(crate) fn update(&mut self, kernel: UpdateKernel<'_>, together: &mut Together) -> Result<()> {
        let UpdateKernel { states, .. } = kernel;
        let count = self.owned.len();
        if self.state_words().len() != states.len() {
            self.make_state(states.iter().map(|format| format.words(count)))?;
        }
        let gpu = self.gpu()?;
        match &self.state {
            StateMemory::OnDevice(tensors) => {
                let at = |index: usize| tensors.get(index).map_or(Ptr::NONE, |tensor| tensor.memory.at());
                let used = tensors.iter().map(|tensor| Used::from(&tensor.memory));
                self.queue(&gpu, kernel, 0..count, [at(0), at(1)], used, together)
            }
            StateMemory::OnHost(state) => state.pass(&gpu, states, count, |part, at| {
                self.queue(&gpu, kernel, part, at, None, together)?;
                together.launch()
            }),
        }
    }

    /// Queues an optimizer's kernel for some of the numbers that are owned. Its state for them is at these
    /// addresses, and in memory that the launch uses.
    fn queue(
        &self,
        gpu: &Gpu,
        kernel: UpdateKernel<'_>,
        part: Range<usize>,
        [first, second]: [Ptr; 2],
        used: impl IntoIterator<Item = Used>,
        together: &mut Together,
    ) -> Result<()> {
        let start = self.owned.start + part.start;
        let grad = self.grad.settled()?;
        let full = |memory: &Memory| memory.at().offset(size_of::<f32>() * start).0;
        let half = |memory: &Memory| memory.at().offset(DType::Bf16.bytes() * start).0;
        let words = [
            full(self.value_memory()),
            full(grad),
            first.0,
            second.0,
            self.copy.as_ref().map_or(Ptr::NONE.0, half),
            part.len() as u64,
            bytemuck::cast(kernel.own),
        ];
        let memory = [self.value_memory(), grad].into_iter().chain(&self.copy).map(Used::from);
        let entry = Entry {
            words: &words,
            of: grad.at(),
            blocks: blocks(part.len()),
            memory: memory.chain(used).collect(),
        };
        together.add(gpu, (kernel.name, THREADS), kernel.args, entry)
    }

    /// Queues the sums of the squares of the gradient, together with other parameters: one for each piece, or
    /// for each group of each piece.
    pub(crate) fn start_squares(&self, together: &mut Together) -> Result<()> {
        let grad = self.grad.settled()?;
        if let Some(table) = &self.square_table {
            let sums = self.squares.numbers().len();
            let used = [Used::from(&self.squares), Used::from(grad), Used::from(table)];
            let entry = Entry {
                words: &[self.squares.at().0, grad.at().0, table.at().0, sums as u64],
                of: grad.at(),
                blocks: sums,
                memory: used.into_iter().collect(),
            };
            return together.add(&*self.gpu()?, ("sum_squares_of_parts", THREADS), &[], entry);
        }
        let entry = Entry {
            words: &[self.squares.at().0, grad.at().0, self.trained as u64],
            of: grad.at(),
            blocks: self.trained.div_ceil(PIECE),
            memory: [Used::from(&self.squares), Used::from(grad)].into_iter().collect(),
        };
        let args = args![PIECE];
        together.add(&*self.gpu()?, ("sum_squares", THREADS), &args, entry)
    }

    /// Sets the gradient to zero, together with other parameters.
    pub(crate) fn clear_grad(&self, together: &mut Together) -> Result<()> {
        let gpu = self.gpu()?;
        for memory in std::iter::once(self.grad.settled()?).chain(&self.of_rows) {
            let entry = Entry {
                words: &[memory.at().0, self.trained as u64],
                of: memory.at(),
                blocks: blocks(self.trained),
                memory: [Used::from(memory)].into_iter().collect(),
            };
            together.add(&gpu, ("clear_gradients", THREADS), &[], entry)?;
        }
        Ok(())
    }

    /// The sums that were queued last. All work queued before must be done.
    pub(crate) fn squares(&self) -> &[f64] {
        self.squares.numbers()
    }

    fn store_value(&self, value: &[f32]) -> Result<()> {
        let gpu = self.gpu()?;
        if let (None, Some(copy)) = (&self.value, &self.copy) {
            for (index, numbers) in value.chunks(AT_ONCE).enumerate() {
                let from = gpu.upload(bytemuck::cast_slice(numbers))?;
                let to = copy.at().offset(index * AT_ONCE * DType::Bf16.bytes());
                gpu.cast_to_bf16(to, from.at(), numbers.len())?;
            }
            return Ok(());
        }
        gpu.upload_to(self.value(), bytemuck::cast_slice(value))?;
        self.round(&gpu, 0, self.count)
    }

    /// Copies numbers from the host.
    pub(crate) fn store(&mut self, part: Part, numbers: &[Numbers]) -> Result<()> {
        let gpu = self.gpu()?;
        match part {
            Part::Value => return self.store_value(&numbers[0]),
            Part::Gradient => return gpu.upload_to(self.grad()?, bytemuck::cast_slice(&numbers[0])),
            Part::State => {}
        }
        if self.state_words().len() != numbers.len() {
            self.make_state(numbers.iter().map(|numbers| numbers.len()))?;
        }
        self.state.store(&gpu, numbers)
    }

    /// Copies numbers to the host, unless it has them. Waits for all work queued before.
    pub(crate) fn fetch(&self, part: Part, numbers: &mut [Numbers]) -> Result<()> {
        let gpu = self.gpu()?;
        let memory = match part {
            Part::Value => self.value.as_ref(),
            Part::Gradient => Some(self.grad.settled()?),
            Part::State => return self.state.fetch(&gpu, numbers),
        };
        let mut pairs = memory.into_iter().zip(numbers);
        pairs.try_for_each(|(memory, numbers)| gpu.download(memory.at(), bytemuck::cast_slice_mut(numbers)))
    }

    /// How many words each of the optimizer's tensors has.
    pub(crate) fn state_words(&self) -> SmallVec<[usize; 2]> {
        self.state.words()
    }
}
