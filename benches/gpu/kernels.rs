//! Every kernel by itself, through the public layers, loss and optimizer.

use pipewright::stages::loss::{CrossEntropy, Loss};
use pipewright::stages::models::Gpt;
use pipewright::stages::optimizer::{AdamW, Optimizer, Update};
use pipewright::stages::{Init, Parameter, Place, Result, Tensor, rng};

use crate::layers;
use crate::sizes::{Kind, Size};
use crate::timer::Timer;

/// What an H200 was seen to reach: products of 8192^3 random bf16 numbers, and a copy, bytes read and
/// written.
pub(crate) const TOP_FLOPS: f64 = 790e12;
const TOP_BYTES: f64 = 4.3e12;
/// Odd, so that a median is one of them.
const ROUNDS: usize = 21;
/// So many numbers are twice an H200's second cache, which holds 60 MB, in bf16.
const FILLING: usize = 64 << 20;
/// Rows of logits: as in a step, but less of them.
pub(crate) const HEAD_ROWS: usize = 4096;

/// What a pass does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Multiplications and additions, counted apart.
    Flops(f64),
    /// Bytes that it has to read and write, each once.
    Bytes(f64),
}

/// What is timed in a round: each pass in order.
pub(crate) type Run = Box<dyn FnMut(&mut Timer) -> Result<()>>;

/// A kernel, or the few that a layer's pass is made of.
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) passes: Vec<(&'static str, Work)>,
    pub(crate) run: Run,
}

/// The shapes that kernels are measured at.
#[derive(Clone, Copy)]
pub(crate) struct Shapes {
    pub(crate) gpt: Gpt,
    /// Sequences of a micro-batch.
    pub(crate) rows: usize,
    pub(crate) place: Place,
}

impl Shapes {
    /// Tokens of a micro-batch.
    pub(crate) fn tokens(&self) -> usize {
        self.rows * self.gpt.context
    }

    /// Tokens of which there are logits.
    pub(crate) fn head_tokens(&self) -> usize {
        self.tokens().min(HEAD_ROWS)
    }

    /// The bytes of so many numbers, each read or written so many times.
    pub(crate) fn bytes(&self, numbers: usize, accesses: usize) -> Work {
        Work::Bytes((self.place.dtype.bytes() * numbers * accesses) as f64)
    }
}

/// Measures what has `part` in its name and prints a line for each pass.
pub(crate) fn measure(size: &Size, place: Place, part: Option<&str>) -> Result<()> {
    let Kind::Gpt(gpt) = size.kind else {
        return Ok(());
    };
    let shapes = Shapes {
        gpt,
        rows: size.rows,
        place,
    };
    println!(
        "kernels in {} at micro-batches of {} x {}: medians of {ROUNDS}, caches cold",
        place.dtype, size.rows, gpt.context
    );
    println!(
        "shares are of {} TFLOP/s and {} TB/s, which one H200 was seen to reach",
        TOP_FLOPS / 1e12,
        TOP_BYTES / 1e12
    );
    println!(
        "{:<40} {:<8} {:>10} {:>16} {:>8}",
        "kernel", "pass", "us", "rate", "share"
    );
    let mut timer = Timer::new(place, FILLING.min(64 * shapes.tokens() * gpt.dim))?;
    let mut kernels = layers::kernels(shapes);
    kernels.extend([("cross-entropy", Box::new(move || cross_entropy(shapes)) as Make)]);
    kernels.extend([("adamw", Box::new(move || optimizer(shapes)) as Make)]);
    kernels.retain(|(name, _)| part.is_none_or(|part| name.contains(part)));
    // Made one after the other: logits are large.
    for (_, make) in kernels {
        of_one(&mut make()?, &mut timer)?;
    }
    Ok(())
}

/// Makes a kernel with what it works on.
pub(crate) type Make = Box<dyn FnOnce() -> Result<Kernel>>;

fn of_one(kernel: &mut Kernel, timer: &mut Timer) -> Result<()> {
    (kernel.run)(timer)?;
    timer.read()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        (kernel.run)(timer)?;
        rounds.push(timer.read()?);
    }
    for (index, &(pass, work)) in kernel.passes.iter().enumerate() {
        let mut seconds: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds[ROUNDS / 2];
        let (rate, share) = match work {
            Work::Flops(0.0) | Work::Bytes(0.0) => continue,
            Work::Flops(flops) => (
                format!("{:.1} TFLOP/s", flops / median / 1e12),
                flops / median / TOP_FLOPS,
            ),
            Work::Bytes(bytes) => (
                format!("{:.0} GB/s", bytes / median / 1e9),
                bytes / median / TOP_BYTES,
            ),
        };
        println!(
            "{:<40} {pass:<8} {:>10.1} {rate:>16} {:>7.1}%",
            kernel.name,
            1e6 * median,
            100.0 * share
        );
    }
    Ok(())
}

/// Normal numbers.
pub(crate) fn numbers(dims: &[usize]) -> Result<Tensor> {
    let mut numbers = vec![0.0; dims.iter().product()];
    rng::fill_normal(rng::key(1, "bench"), 1.0, &mut numbers);
    Tensor::from_vec(dims, numbers)
}

/// Ids below a limit.
pub(crate) fn ids(dims: &[usize], limit: usize) -> Result<Tensor> {
    let mut draws = vec![0.0; dims.iter().product()];
    rng::fill_uniform(rng::key(1, "ids"), 0.5, &mut draws);
    let ids = draws.iter().map(|draw| ((draw + 0.5) * limit as f32) as u32);
    Tensor::from_ids(dims, ids.collect())
}

/// The loss of logits and their gradient, in their place.
fn cross_entropy(shapes: Shapes) -> Result<Kernel> {
    let (rows, classes) = (shapes.head_tokens(), shapes.gpt.vocab);
    let logits = numbers(&[rows, classes])?.to(shapes.place)?;
    let target = ids(&[rows], classes)?;
    let mut loss = CrossEntropy::default();
    let run = move |timer: &mut Timer| {
        let own = timer.fresh(&logits)?;
        let target = target.clone();
        timer.time(|| loss.start(0, own, target)).map(drop)
    };
    Ok(Kernel {
        name: format!("cross-entropy: {rows} x {classes}"),
        passes: vec![("gradient", shapes.bytes(rows * classes, 2))],
        run: Box::new(run),
    })
}

/// The update and the gradient's norm of the largest parameter.
fn optimizer(shapes: Shapes) -> Result<Kernel> {
    let dims = [shapes.gpt.vocab, shapes.gpt.dim];
    let count = dims.iter().product::<usize>();
    let mut parameter = Parameter::new("wte.weight".to_owned(), &dims, Init::Normal(0.02), 0);
    parameter.move_to(shapes.place)?;
    let mut step = 0;
    let run = move |timer: &mut Timer| {
        step += 1;
        let update = Update {
            step,
            learning_rate: 1e-4,
            scale: 1.0,
        };
        timer.time(|| parameter.start_grad_squares())?;
        timer.time(|| AdamW::default().update(&mut parameter, update))
    };
    // The gradient; value and two states, read and written; in bf16 the copy of the value.
    let copy = if shapes.place.dtype.bytes() == 4 { 0 } else { 2 };
    let each = 4 + 3 * 8 + copy;
    Ok(Kernel {
        name: format!("adamw: {count}"),
        passes: vec![
            ("norm", Work::Bytes(4.0 * count as f64)),
            ("update", Work::Bytes((each * count) as f64)),
        ],
        run: Box::new(run),
    })
}
