//! Named weights with their gradient and optimizer state.

use aligned_vec::{AVec, avec};

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

/// A weight tensor, its gradient summed over the micro-batches of a step, and the optimizer's state for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    name: String,
    dims: Vec<usize>,
    /// The weights, row-major. They begin with a line of the cache, as everything that is multiplied.
    pub value: AVec<f32>,
    /// The gradient of the summed loss; zero between steps.
    pub grad: AVec<f32>,
    /// The optimizer's tensors, each as large as `value`; empty before the first step.
    pub state: Vec<AVec<f32>>,
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
            value,
            grad: avec![0.0; count],
            state: Vec::new(),
        }
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

    /// The sum of the squared gradient in double precision, always added up in the same order.
    pub fn grad_squares(&self) -> f64 {
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
