//! Named weights with their gradient and optimizer state.

use aligned_vec::{AVec, avec};

use crate::cuda::{Gpu, Weights};
use crate::device::{Device, Place};
use crate::error::Result;
use crate::identity::Shard;
use crate::rng;

/// How a parameter starts. Draws are keyed by (seed, name).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal with mean 0 and this deviation.
    Normal(f32),
    /// Uniform on `[-bound, bound)`.
    Uniform(f32),
}

/// Which numbers of a parameter are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Parameter::value`].
    Value,
    /// [`Parameter::grad`].
    Gradient,
    /// [`Parameter::state`].
    State,
}

/// A weight tensor, its gradient summed over the micro-batches of a step, and the optimizer's state for it.
///
/// Within a model a name belongs to one parameter. A layer that uses the weights of another layer holds a copy of
/// them, and says so with [`Parameter::tied`]: the gradients of all copies are summed, and the copies stay equal.
/// Two parameters of one name that nobody tied are a mistake, and the pipeline refuses them.
///
/// One that was [moved](Parameter::move_to) to a GPU has its numbers there; the fields are then what was last
/// [fetched](Parameter::fetch), and what [`Parameter::store`] takes to the GPU.
#[derive(Debug)]
pub struct Parameter {
    name: String,
    dims: Vec<usize>,
    is_tied: bool,
    shard: Shard,
    /// The weights, row-major. They begin with a line of the cache, as everything that is multiplied.
    pub value: AVec<f32>,
    /// The gradient of the summed loss; zero between steps.
    pub grad: AVec<f32>,
    /// The optimizer's tensors, each as large as `value`; empty before the first step.
    pub state: Vec<AVec<f32>>,
    on_gpu: Option<Weights>,
}

impl Parameter {
    /// A parameter with its starting weights.
    pub fn new(name: impl Into<String>, dims: &[usize], init: Init, seed: u64) -> Self {
        let name = name.into();
        let count = dims.iter().product();
        let mut value = avec![0.0; count];
        match init {
            Init::Zeros => {}
            Init::Ones => value.fill(1.0),
            Init::Normal(deviation) => rng::fill_normal(rng::key(seed, &name), deviation, &mut value),
            Init::Uniform(bound) => rng::fill_uniform(rng::key(seed, &name), bound, &mut value),
        }
        Self {
            name,
            dims: dims.to_vec(),
            is_tied: false,
            shard: Shard::WHOLE,
            value,
            grad: avec![0.0; count],
            state: Vec::new(),
            on_gpu: None,
        }
    }

    /// Makes it a tied copy of the parameter of its name, which another layer holds. It starts with that one's weights,
    /// on whatever stages the two are.
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

    /// Reads the same numbers under other dimensions, of as many numbers.
    pub(crate) fn set_dims(&mut self, dims: &[usize]) {
        debug_assert_eq!(dims.iter().product::<usize>(), self.value.len());
        self.dims = dims.to_vec();
    }

    /// Whether it is a tied copy of the parameter of its name.
    pub fn is_tied(&self) -> bool {
        self.is_tied
    }

    /// Says which part of its tensor it holds. Its dimensions and numbers are those of this part alone. Pipelines
    /// train whole parameters only so far, and refuse others.
    ///
    /// # Panics
    /// When there is no such part.
    #[must_use]
    pub fn sharded(mut self, shard: Shard) -> Self {
        assert!(
            shard.index < shard.of,
            "{shard}: the index must be below the number of shards"
        );
        self.shard = shard;
        self
    }

    /// Which part of its tensor it holds: the whole, where nobody said otherwise.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Takes its numbers to a place. On a GPU, matrix products read the weights in the place's numbers.
    ///
    /// # Errors
    /// When there is no such device or it has not as much memory.
    pub fn move_to(&mut self, place: Place) -> Result<()> {
        for part in [Part::Value, Part::Gradient, Part::State] {
            self.fetch(part)?;
        }
        self.on_gpu = match place.device {
            Device::Cpu => None,
            Device::Cuda(index) => Some(Weights::new(&*Gpu::of(index)?, place.dtype, &self.value)?),
        };
        for part in [Part::Gradient, Part::State] {
            self.store(part)?;
        }
        Ok(())
    }

    /// Where its numbers are.
    pub fn place(&self) -> Place {
        self.on_gpu.as_ref().map_or_else(Place::default, Weights::place)
    }

    /// Its numbers on a GPU, when they are there.
    pub(crate) fn on_gpu(&self) -> Option<&Weights> {
        self.on_gpu.as_ref()
    }

    /// Its numbers on the GPU that its stage is on.
    ///
    /// # Panics
    /// When they are not there.
    pub(crate) fn weights(&self) -> &Weights {
        self.on_gpu().expect("parameters are where their stage is")
    }

    /// As [`Parameter::on_gpu`], to be changed.
    pub(crate) fn on_gpu_mut(&mut self) -> Option<&mut Weights> {
        self.on_gpu.as_mut()
    }

    /// Copies numbers from the GPU, when they are there, into the fields; waits for all work given before.
    ///
    /// # Errors
    /// What the GPU reports, of this or of work before it.
    pub fn fetch(&mut self, part: Part) -> Result<()> {
        let Some(weights) = &self.on_gpu else {
            return Ok(());
        };
        if part == Part::State && self.state.len() != weights.states() {
            self.state = vec![avec![0.0; self.value.len()]; weights.states()];
        }
        let numbers = match part {
            Part::Value => std::slice::from_mut(&mut self.value),
            Part::Gradient => std::slice::from_mut(&mut self.grad),
            Part::State => &mut self.state[..],
        };
        weights.fetch(part, numbers)
    }

    /// Copies numbers from the fields to the GPU, when that is where they are used.
    ///
    /// # Errors
    /// What the GPU reports, of this or of work before it.
    pub fn store(&mut self, part: Part) -> Result<()> {
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

    /// Makes the gradient zero.
    ///
    /// # Errors
    /// What the GPU reports, of this or of work before it.
    pub fn zero_grad(&mut self) -> Result<()> {
        if let Some(weights) = &self.on_gpu {
            return weights.zero_grad();
        }
        self.grad.fill(0.0);
        Ok(())
    }

    /// Gives the optimizer so many tensors, all zeros.
    pub fn make_state(&mut self, count: usize) {
        self.state = vec![avec![0.0; self.value.len()]; count];
    }

    /// The name, as in a checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Whether it is a matrix, which weight decay takes by default, and not a bias or norm.
    pub fn is_matrix(&self) -> bool {
        self.dims.len() >= 2
    }

    /// Lets a GPU begin with what [`Parameter::grad_squares`] tells; on the CPU nothing is to be done before.
    ///
    /// # Errors
    /// What the GPU reports, of this or of work before it.
    pub fn start_grad_squares(&self) -> Result<()> {
        self.on_gpu.as_ref().map_or(Ok(()), Weights::start_squares)
    }

    /// The sum of the squared gradient in double precision, always added up in the same order. On a GPU that of the last
    /// [start](Parameter::start_grad_squares), once the GPU is done.
    pub fn grad_squares(&self) -> f64 {
        if let Some(weights) = &self.on_gpu {
            return weights.squares();
        }
        let mut lanes = [0.0_f64; 8];
        let (chunks, rest) = self.grad.as_chunks::<8>();
        for chunk in chunks {
            for (lane, &number) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(number) * f64::from(number);
            }
        }
        let rest: f64 = rest
            .iter()
            .map(|&number| f64::from(number) * f64::from(number))
            .sum();
        lanes.iter().sum::<f64>() + rest
    }
}

impl PartialEq for Parameter {
    /// Of numbers on a GPU, those that were last fetched.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.dims == other.dims
            && self.is_tied == other.is_tied
            && self.shard == other.shard
            && self.value == other.value
            && self.grad == other.grad
            && self.state == other.state
    }
}
