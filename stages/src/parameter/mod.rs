//! Named weights with their gradient and optimizer state.

pub(crate) mod apart;
pub(crate) mod cut;
pub(crate) mod description;
pub(crate) mod divided;
pub(crate) mod gradient;
pub(crate) mod gradient_buffer;
pub(crate) mod gradient_memory;
pub(crate) mod grouped;
pub(crate) mod init;
pub(crate) mod own_gradient;
pub(crate) mod packed;
pub(crate) mod pieces;
pub(crate) mod quantised;
pub(crate) mod shared;
pub(crate) mod short_sums;
pub(crate) mod state;
pub(crate) mod state_format;
pub(crate) mod state_memory;
pub(crate) mod weights;

use std::ops::Range;
use std::sync::Arc;

use aligned_vec::AVec;
use half::bf16;

use crate::cpu::real::convert;
use crate::cuda::Gpu;
use crate::device::{DType, Device, Place};
use crate::error::{OutOfMemory, Result};
use crate::parameter::cut::Cut;
use crate::parameter::description::{Part, Training};
use crate::parameter::gradient_buffer::{Found, Sums};
use crate::parameter::init::{Init, starts_at_zero};
use crate::parameter::pieces::RowPieces;
use crate::parameter::weights::{Grouping, OnHost, Weights};
use crate::pool;
use crate::quantised::{Quantisation, Quantised};
use crate::shards::Shard;
use crate::tensor::arithmetic::Row;
use crate::tensor::numbers::Numbers;

/// A weight tensor, its gradient summed over the micro-batches of a step, and the optimizer's state for it.
///
/// Within a model a name belongs to one parameter. A layer that uses the weights of another layer holds a
/// copy of them and says so with [`Parameter::tied`]: the gradients of all copies are summed, and the copies
/// stay equal. The pipeline refuses two parameters with one name that are not tied.
///
/// The numbers of a parameter that was [moved](Parameter::move_to) to a GPU are there. Its fields then hold
/// what was last [fetched](Parameter::fetch), and [`Parameter::store`] copies them to the GPU.
#[derive(Debug)]
pub struct Parameter {
    name: String,
    pub(crate) dims: Vec<usize>,
    is_tied: bool,
    /// Whether it has the weights of another parameter of its rank: see [`Parameter::follow`].
    pub(crate) follows: bool,
    pub(crate) shard: Shard,
    pub(crate) fused: Vec<usize>,
    /// What it holds of the whole tensor, if that is divided among several shards.
    pub(crate) cut: Option<Cut>,
    /// Its pieces, if it is divided among shards.
    pub(crate) row_pieces: Option<Arc<RowPieces>>,
    training: Training,
    /// The share of a step's mean in a running mean.
    running: Option<f32>,
    /// The weights, row-major.
    pub value: Numbers,
    /// The gradient of the summed loss. After [`Parameter::start_sum`] its numbers may be unspecified. Empty
    /// if the parameter is frozen. It has only the numbers of [`Parameter::owned`] after
    /// [`Parameter::keep_own_gradient`].
    pub grad: Numbers,
    /// The optimizer's tensors, in `f32`; of tensors in another
    /// [`StateFormat`](crate::optimizer::StateFormat) the stored bytes, four in a number, and zeros after the
    /// last ones. [`Parameter::state_bytes`] says how many bytes there are. Empty before the first step.
    pub state: Vec<Numbers>,
    pub(crate) owned: Range<usize>,
    /// Whether other parameters may have the gradient's memory: see [`Parameter::lend_gradient`].
    pub(crate) lends_gradient: bool,
    /// Memory for the owned numbers of the gradient, while the gradient has all.
    pub(crate) own_grad: Numbers,
    /// Whether the optimizer's tensors stay on the host while the weights are on a GPU.
    pub(crate) state_on_host: bool,
    /// The gradients of groups of rows, if there are several.
    pub(crate) of_rows: Vec<Numbers>,
    pub(crate) sums: Sums,
    on_gpu: Option<Weights>,
    /// The number format that the layer computes in on the CPU.
    format: DType,
    /// Whether its layer can compute with blocks.
    pub(crate) takes_blocks: bool,
    /// In which blocks its numbers are stored, if not in `f32`.
    pub(crate) quantised: Option<Quantisation>,
    /// The weights in fewer bits, in place of `value`.
    pub(crate) compact: Option<Compact>,
}

/// Weights in fewer bits than `f32`.
#[derive(Debug, PartialEq)]
pub(crate) enum Compact {
    Halves(AVec<bf16>),
    Blocks(Quantised),
}

impl Parameter {
    /// A parameter with its starting weights.
    pub fn new(name: impl Into<String>, dims: &[usize], init: Init, seed: u64) -> Self {
        let count = dims.iter().product();
        let numbers = || if starts_at_zero() { Numbers::later(count) } else { Numbers::zeros(count) };
        let parameter = Self {
            name: name.into(),
            dims: dims.to_vec(),
            is_tied: false,
            follows: false,
            shard: Shard::WHOLE,
            fused: Vec::new(),
            cut: None,
            row_pieces: None,
            training: Training::default(),
            running: None,
            value: numbers(),
            grad: numbers(),
            state: Vec::new(),
            owned: 0..count,
            lends_gradient: false,
            own_grad: Numbers::none(),
            state_on_host: false,
            of_rows: Vec::new(),
            sums: Sums::default(),
            on_gpu: None,
            format: DType::F32,
            takes_blocks: false,
            quantised: None,
            compact: None,
        };
        match starts_at_zero() {
            true => parameter,
            false => parameter.started(init, seed),
        }
    }

    /// The same parameter with these starting weights.
    pub(crate) fn started(mut self, init: Init, seed: u64) -> Self {
        init.fill(seed, &self.name, &mut self.value);
        self
    }

    /// Says how it is trained, if not like all others. It must be said before the numbers are
    /// [moved](Parameter::move_to).
    ///
    /// ```
    /// use pipewright_stages::{Init, Parameter, Training};
    ///
    /// let mut table = Parameter::new("wte.weight", &[50, 8], Init::Normal(0.02), 1);
    /// table.train_by(Training { frozen: true, ..Training::default() });
    /// assert!(table.is_frozen() && table.grad.is_empty());
    /// ```
    ///
    /// # Panics
    /// When the parameter is on a GPU already.
    pub fn train_by(&mut self, training: Training) {
        assert!(self.on_gpu.is_none(), "{}: it is on a GPU already", self.name);
        if training.frozen != self.training.frozen {
            let count = if training.frozen { 0 } else { self.count() };
            self.grad = Numbers::zeros(count);
            self.of_rows.iter_mut().for_each(|sum| *sum = Numbers::zeros(count));
            self.state = Vec::new();
            self.owned = 0..count;
        }
        self.training = training;
    }

    /// How it is trained.
    pub fn training(&self) -> Training {
        self.training
    }

    /// Whether its weights stay as they are: see [`Training::frozen`].
    pub fn is_frozen(&self) -> bool {
        self.training.frozen
    }

    /// How many numbers its gradient has: as many as the weights, or none if it is frozen.
    pub fn trained(&self) -> usize {
        match self.training.frozen {
            true => 0,
            false => self.count(),
        }
    }

    /// Makes this a tied copy of the parameter with the same name, which another layer holds. It starts with
    /// the weights of that parameter. The two may be on different stages.
    ///
    /// ```
    /// use pipewright_stages::{Init, Parameter};
    ///
    /// let table = Parameter::new("wte.weight", &[50, 8], Init::Normal(0.02), 1);
    /// let output = Parameter::new("wte.weight", &[50, 8], Init::Zeros, 1).tied();
    /// assert!(!table.is_tied() && output.is_tied());
    /// ```
    #[must_use]
    pub fn tied(mut self) -> Self {
        self.is_tied = true;
        self
    }

    /// Makes this a running mean of what a layer sees, and no weight. Instead of a gradient, the layer adds
    /// the numbers of each micro-batch, once, in backward-weight. At the end of a step the value moves by
    /// this share towards the mean over all micro-batches of the batch:
    /// [`optimizer::update`](crate::optimizer::update). The optimizer has no state for it, and it is not in
    /// the gradient's norm.
    ///
    /// So the numbers are added up as gradients are: in micro-batch order, over replicas by the tree. For any
    /// cut, schedule and replicas they are the same, bit for bit, and they are in checkpoints.
    #[must_use]
    pub fn running(mut self, share: f32) -> Self {
        self.running = Some(share);
        self
    }

    /// The share of a step's mean in a running mean.
    pub fn running_share(&self) -> Option<f32> {
        self.running
    }

    /// Whether an optimizer updates it, and so has state for it: not if it is frozen, a running mean, or
    /// [follows](Parameter::follow) another one.
    pub fn is_optimized(&self) -> bool {
        !self.is_frozen() && self.running.is_none() && !self.follows
    }

    /// Gives the same numbers other dimensions.
    pub(crate) fn set_dims(&mut self, dims: &[usize]) {
        debug_assert_eq!(dims.iter().product::<usize>(), self.count());
        self.fused = Vec::new();
        self.dims = dims.to_vec();
    }

    /// Whether this is a tied copy of the parameter with the same name.
    pub fn is_tied(&self) -> bool {
        self.is_tied
    }

    /// The part of its tensor that this parameter holds. The default is the whole tensor.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Says that the optimizer updates only these numbers here, and has state only for them. Other replicas
    /// update the others. It must be said before there is any state.
    ///
    /// # Panics
    /// When there is state, or when there are no such numbers.
    pub fn own(&mut self, numbers: Range<usize>) {
        assert!(
            numbers.start <= numbers.end && numbers.end <= self.trained(),
            "{}: it has no numbers {numbers:?}",
            self.name
        );
        assert!(self.state.is_empty(), "{}: it has state already", self.name);
        if let Some(weights) = &mut self.on_gpu {
            weights.own(numbers.clone());
        }
        self.owned = numbers;
    }

    /// The numbers that the optimizer updates here: all of them, unless [`Parameter::own`] said otherwise.
    /// None if the parameter is frozen.
    pub fn owned(&self) -> Range<usize> {
        self.owned.clone()
    }

    /// What an optimizer needs on the CPU: the weights that it updates, their gradients, and its tensors.
    pub fn owned_parts(&mut self) -> (&mut [f32], &[f32], &mut [Numbers]) {
        let owned = self.owned.clone();
        let in_gradient = self.in_gradient(owned.clone());
        (&mut self.value[owned], &self.grad[in_gradient], &mut self.state)
    }

    /// Moves the numbers to a place. On a GPU, matrix products read a copy of the weights in the place's
    /// number format.
    ///
    /// # Errors
    /// When there is no such device, or it has too little memory.
    pub fn move_to(&mut self, place: Place) -> Result<()> {
        for part in [Part::Value, Part::Gradient, Part::State] {
            self.fetch(part)?;
        }
        self.format = place.dtype;
        self.on_gpu = match place.device {
            Device::Cpu => None,
            Device::Cuda(index) => {
                let grouping = Grouping { of_rows: self.of_rows.len(), pieces: self.row_pieces.as_deref() };
                let gpu = Gpu::of(index)?;
                let numbers;
                let from = if let Some(blocks) = self.blocks() {
                    OnHost::Blocks(blocks)
                } else {
                    numbers = self.numbers();
                    // Layers read a matrix only in products, and a vector also by itself.
                    let only_for_products = self.is_frozen() && self.dims.len() >= 2;
                    OnHost::Numbers { value: &numbers, only_for_products }
                };
                let mut weights = Weights::new(&gpu, place.dtype, from, self.trained(), grouping)?;
                weights.own(self.owned.clone());
                weights.keep_state(self.state_on_host);
                Some(weights)
            }
        };
        // A gradient of zeros is there already.
        if self.grad.iter().any(|number| *number != 0.0) {
            self.store(Part::Gradient)?;
        }
        self.store(Part::State)
    }

    /// Where the numbers are, and the number format of the layer there.
    pub fn place(&self) -> Place {
        let here = Place { device: Device::Cpu, dtype: self.format };
        self.on_gpu.as_ref().map_or(here, Weights::place)
    }

    /// The numbers on a GPU, if they are on one.
    pub(crate) fn on_gpu(&self) -> Option<&Weights> {
        self.on_gpu.as_ref()
    }

    /// The numbers on the GPU of the parameter's stage.
    ///
    /// # Panics
    /// When they are not on a GPU.
    pub(crate) fn weights(&self) -> &Weights {
        self.on_gpu().expect("a parameter is on the device of its stage")
    }

    /// The weights as a row of `f32`, where they are.
    pub(crate) fn row(&self) -> Row<'_> {
        match &self.on_gpu {
            Some(weights) => Row::OnGpu(weights.value()),
            None => Row::OnHost(&self.value),
        }
    }

    /// Like [`Parameter::on_gpu`], to be changed.
    pub(crate) fn on_gpu_mut(&mut self) -> Option<&mut Weights> {
        self.on_gpu.as_mut()
    }

    /// Copies numbers from the GPU into the fields, after all work queued before. Does nothing on the CPU.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn fetch(&mut self, part: Part) -> Result<()> {
        let Some(weights) = self.on_gpu.as_ref().filter(|_| self.has(part)) else {
            return Ok(());
        };
        let words = weights.state_words();
        if part == Part::State && self.state.len() != words.len() {
            self.state = words.into_iter().map(Numbers::zeros).collect();
        }
        let numbers = match part {
            Part::Value => std::slice::from_mut(&mut self.value),
            Part::Gradient => std::slice::from_mut(&mut self.grad),
            Part::State => &mut self.state[..],
        };
        weights.fetch(part, numbers)
    }

    /// Copies numbers from the fields to the GPU. Does nothing on the CPU.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn store(&mut self, part: Part) -> Result<()> {
        if !self.has(part) {
            return Ok(());
        }
        let Some(weights) = &mut self.on_gpu else {
            return Ok(());
        };
        let numbers = match part {
            Part::Value => std::slice::from_ref(&self.value),
            Part::Gradient => std::slice::from_ref(&self.grad),
            Part::State => &self.state[..],
        };
        weights.store(part, numbers)
    }

    /// Sets the gradient to zero.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn zero_grad(&mut self) -> Result<()> {
        self.sums.found = Found::Sum;
        if let Some(weights) = &self.on_gpu {
            return weights.zero_grad();
        }
        self.grad.fill(0.0);
        self.of_rows.iter_mut().for_each(|sum| sum.fill(0.0));
        Ok(())
    }

    /// The name, also used in checkpoints.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// How many weights it has, however they are stored.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether it is a matrix, not a bias or a norm's scale or shift. By default, weight decay applies to
    /// matrices.
    pub fn is_matrix(&self) -> bool {
        self.dims.len() >= 2
    }
}

/// Of state in few bits, the numbers mean nothing.
fn bytes(numbers: &[f32]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

impl PartialEq for Parameter {
    /// On a GPU, this compares what was fetched last.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.dims == other.dims
            && self.is_tied == other.is_tied
            && self.shard == other.shard
            && self.fused == other.fused
            && self.training == other.training
            && self.running == other.running
            && self.value == other.value
            && self.quantised == other.quantised
            && self.compact == other.compact
            && self.grad == other.grad
            && self.state.len() == other.state.len()
            && self.state.iter().zip(&other.state).all(|(own, other)| bytes(own) == bytes(other))
    }
}

impl Parameter {
    /// Holds the weights in 16 bits from now on, rounded to nearest, and frees [`Parameter::value`] and
    /// [`Parameter::grad`]. For a layer that will only be asked for outputs.
    pub(crate) fn hold_in_bf16(&mut self) {
        if self.compact.is_some() {
            return;
        }
        let mut halves = pool::allocate(self.value.len())
            .unwrap_or_else(|| panic!("{}", OutOfMemory::on_host::<bf16>(self.value.len())));
        convert::<bf16, f32>(&mut halves, &self.value);
        self.train_by(Training { frozen: true, ..self.training() });
        self.compact = Some(Compact::Halves(halves));
        self.value = Numbers::none();
    }

    /// The weights, if they are held in 16 bits.
    pub(crate) fn halves(&self) -> Option<&[bf16]> {
        match &self.compact {
            Some(Compact::Halves(halves)) => Some(halves),
            _ => None,
        }
    }
}

impl Parameter {
    /// Says that it is several tensors of the model's family, one behind the other along the first dimension,
    /// such as queries, keys and values: these are their sizes there. An optimizer whose update of a number
    /// depends on other numbers treats each tensor by itself, as it would if they were apart.
    ///
    /// ```
    /// use pipewright_stages::{Init, Parameter};
    ///
    /// let mut qkv = Parameter::new("attn.qkv.weight", &[8, 3], Init::Zeros, 1);
    /// assert_eq!(qkv.tensors(), [24]);
    /// qkv.fuse(&[4, 2, 2]);
    /// assert_eq!(qkv.tensors(), [12, 6, 6]);
    /// ```
    ///
    /// # Panics
    /// When the sizes do not add up to the first dimension.
    pub fn fuse(&mut self, sizes: &[usize]) {
        assert_eq!(
            Some(&sizes.iter().sum()),
            self.dims().first(),
            "{}: the sizes of its tensors",
            self.name()
        );
        self.fused = sizes.to_vec();
    }

    /// The sizes of its tensors along the first dimension: see [`Parameter::fuse`]. Empty if it is one
    /// tensor.
    pub fn fused(&self) -> &[usize] {
        &self.fused
    }

    /// How many numbers each of its tensors has: see [`Parameter::fuse`].
    pub fn tensors(&self) -> Vec<usize> {
        match (&self.fused[..], self.dims()) {
            ([], dims) => vec![dims.iter().product()],
            (sizes, [_, rest @ ..]) => {
                let each = rest.iter().product::<usize>();
                sizes.iter().map(|size| size * each).collect()
            }
            (_, []) => unreachable!("`fuse`: the sizes add up to the first dimension"),
        }
    }
}
