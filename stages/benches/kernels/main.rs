//! Every kernel by itself, on one thread, through the public layers, losses and optimizers.
//!
//! `cargo bench -p pipewright-stages --bench kernels -- [part of a name] [rounds]`
//!
//! *Hot*: the kernel has just run, so its operands are in the caches if they fit. *Cold*: other memory has
//! filled the caches, as between the passes of a real step. Each figure is the median over the rounds, in CPU
//! time of the thread. Each round runs every kernel once, so a busy moment of the machine affects all kernels
//! alike. Products are shown next to the `gemm` crate's products at the same shapes. The comparison with
//! PyTorch has the same sizes A, B and D.
//!
//! Beside each figure is its share of the bound of this CPU, whose rates are measured in the same rounds:
//! streams of as many bytes (to read, to change in place and to write), or multiply-adds and divisions in
//! registers, whichever takes longer. A stream by itself can be slower than two streams side by side, so a
//! share may exceed 1. Rotary embeddings and norms of heads have plain loops over the same tensors beside
//! them instead of streams. Products of `bf16` have no share: their instruction is not measured.

mod attention;
mod bounds;
mod clock;
mod cpu;
mod experts;
mod gemm;
mod layers;
mod plain;
mod products;
mod scores;
mod table;

use pipewright_stages::{DType, Device, Place, Result, Tensor, rng};

use bounds::Bounds;
use clock::Clock;
use table::Kernel;

/// Odd, so that the median is one of the measurements.
const ROUNDS: usize = 21;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok());
    let wanted = arguments.iter().find(|argument| argument.parse::<usize>().is_err());
    let mut kernels = products::kernels()?;
    kernels.extend(attention::kernels()?);
    kernels.extend(experts::kernels()?);
    kernels.extend(layers::kernels()?);
    kernels.extend(scores::kernels()?);
    kernels.retain(|kernel| wanted.is_none_or(|wanted| kernel.name.contains(wanted.as_str())));
    let mut footprints: Vec<usize> = kernels.iter().flat_map(Kernel::footprints).collect();
    footprints.sort_unstable();
    footprints.dedup();
    let mut rates = bounds::kernels(&footprints);
    let mut clock = Clock::new();
    for _ in 0..rounds.unwrap_or(ROUNDS) {
        let mut all = rates.iter_mut().chain(&mut kernels);
        all.try_for_each(|kernel| kernel.round(&mut clock))?;
    }
    println!("{}", cpu::line());
    let bounds = Bounds::new(&rates, &footprints);
    table::print(rates.iter().chain(&kernels), &bounds);
    Ok(())
}

/// Normally distributed random numbers.
fn numbers(count: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; count];
    rng::fill_normal(rng::key(1, "bench"), 1.0, &mut numbers);
    numbers
}

/// A tensor of normally distributed random numbers.
fn tensor(dims: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(dims, numbers(dims.iter().product()))
}

/// Random ids below a limit.
fn ids(dims: &[usize], limit: usize) -> Result<Tensor> {
    let mut draws = vec![0.0; dims.iter().product()];
    rng::fill_uniform(rng::key(1, "ids"), 0.5, &mut draws);
    let ids = draws.iter().map(|draw| ((draw + 0.5) * limit as f32) as u32);
    Tensor::from_ids(dims, ids.collect())
}

/// A copy in memory of its own, as a layer gets its input in training.
fn own(tensor: &Tensor) -> Tensor {
    let mut copy = tensor.clone();
    match tensor.place().dtype {
        DType::F32 => _ = copy.f32_mut(),
        DType::Bf16 => _ = copy.bf16_mut(),
    }
    copy
}

/// The number formats, each with what a kernel's name says of it.
const FORMATS: [(DType, &str); 2] = [(DType::F32, ""), (DType::Bf16, " bf16")];

/// The CPU, with this number format.
fn place(dtype: DType) -> Place {
    Place { device: Device::Cpu, dtype }
}
