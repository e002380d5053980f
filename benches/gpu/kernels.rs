//! Every kernel by itself, through the public layers, loss and optimizer.

use pipewright::stages::loss::{CrossEntropy, Loss};
use pipewright::stages::models::Gpt;
use pipewright::stages::optimizer::{AdamW, Optimizer, Update};
use pipewright::stages::{Init, Parameter, Place, Result, Tensor, rng};

use crate::sizes::{Kind, Size};
use crate::timer::Timer;
use crate::{images, layers};

/// What products of 8192^3 random bf16 numbers have reached on an H200, in operations per second.
pub(crate) const TOP_FLOPS: f64 = 790e12;
/// Odd, so that the median is one of the measurements.
const ROUNDS: usize = 21;
/// In bf16, this many numbers are twice the size of an H200's second-level cache (60 MB).
const FILLING: usize = 64 << 20;
/// Rows of logits. A step has more.
pub(crate) const HEAD_ROWS: usize = 4096;

/// The work of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Floating-point operations: a multiplication and an addition count as two.
    Flops(f64),
    /// Bytes that it must read and write, each counted once.
    Bytes(f64),
}

/// What a round times: each pass, in order.
pub(crate) type Run = Box<dyn FnMut(&mut Timer) -> Result<()>>;

/// A kernel, or the few kernels of a layer's pass.
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) passes: Vec<(&'static str, Work)>,
    pub(crate) run: Run,
}

/// The shapes of the measured kernels.
#[derive(Clone, Copy)]
pub(crate) struct Shapes {
    pub(crate) gpt: Gpt,
    /// Sequences in a micro-batch.
    pub(crate) rows: usize,
    pub(crate) place: Place,
}

impl Shapes {
    /// Tokens in a micro-batch.
    pub(crate) fn tokens(&self) -> usize {
        self.rows * self.gpt.context
    }

    /// Tokens that have logits.
    pub(crate) fn head_tokens(&self) -> usize {
        self.tokens().min(HEAD_ROWS)
    }

    /// The bytes of this many numbers, each read or written `accesses` times.
    pub(crate) fn bytes(&self, numbers: usize, accesses: usize) -> Work {
        Work::Bytes((self.place.dtype.bytes() * numbers * accesses) as f64)
    }
}

/// Measures the kernels with `part` in their names, and prints a line for each pass.
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
    let filling = FILLING.min(64 * shapes.tokens() * gpt.dim);
    let mut timer = Timer::new(place, filling)?;
    let top = Top::measure(shapes, filling, &mut timer)?;
    println!(
        "shares are of {:.0} TFLOP/s and {:.2} TB/s, which a large product and GELU reach here",
        top.flops / 1e12,
        top.bytes / 1e12
    );
    println!(
        "{:<40} {:<8} {:>10} {:>16} {:>8}",
        "kernel", "pass", "us", "rate", "share"
    );
    let mut kernels = layers::kernels(shapes);
    kernels.extend(images::kernels(shapes));
    kernels.extend([("cross-entropy", Box::new(move || cross_entropy(shapes)) as Make)]);
    kernels.extend([("adamw", Box::new(move || optimizer(shapes)) as Make)]);
    kernels.retain(|(name, _)| part.is_none_or(|part| name.contains(part)));
    // One at a time, because logits are large.
    for (_, make) in kernels {
        print(&mut make()?, &mut timer, top)?;
    }
    Ok(())
}

/// Makes a kernel and its operands.
pub(crate) type Make = Box<dyn FnOnce() -> Result<Kernel>>;

/// The rates that this GPU reaches, in operations and bytes per second.
#[derive(Clone, Copy)]
struct Top {
    flops: f64,
    bytes: f64,
}

impl Top {
    /// Of a product of three square matrices with `filling` numbers each, and of GELU over so many numbers.
    fn measure(shapes: Shapes, filling: usize, timer: &mut Timer) -> Result<Self> {
        let rate = |kernel: &mut Kernel, timer: &mut Timer| -> Result<f64> {
            let seconds = medians(kernel, timer)?[0];
            Ok(match kernel.passes[0].1 {
                Work::Flops(work) | Work::Bytes(work) => work / seconds,
            })
        };
        Ok(Self {
            flops: rate(&mut layers::square(shapes, filling.isqrt())?, timer)?,
            bytes: rate(&mut layers::gelu(shapes, filling)?, timer)?,
        })
    }
}

/// The median seconds of each pass of a kernel.
fn medians(kernel: &mut Kernel, timer: &mut Timer) -> Result<Vec<f64>> {
    (kernel.run)(timer)?;
    timer.read()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        (kernel.run)(timer)?;
        rounds.push(timer.read()?);
    }
    let of_pass = |index| {
        let mut seconds: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
        seconds.sort_by(f64::total_cmp);
        seconds[ROUNDS / 2]
    };
    Ok((0..kernel.passes.len()).map(of_pass).collect())
}

fn print(kernel: &mut Kernel, timer: &mut Timer, top: Top) -> Result<()> {
    let medians = medians(kernel, timer)?;
    for (&(pass, work), median) in kernel.passes.iter().zip(medians) {
        let (rate, share) = match work {
            Work::Flops(0.0) | Work::Bytes(0.0) => continue,
            Work::Flops(flops) => (
                format!("{:.1} TFLOP/s", flops / median / 1e12),
                flops / median / top.flops,
            ),
            Work::Bytes(bytes) => (
                format!("{:.0} GB/s", bytes / median / 1e9),
                bytes / median / top.bytes,
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

/// Normally distributed random numbers.
pub(crate) fn numbers(dims: &[usize]) -> Result<Tensor> {
    let mut numbers = vec![0.0; dims.iter().product()];
    rng::fill_normal(rng::key(1, "bench"), 1.0, &mut numbers);
    Tensor::from_vec(dims, numbers)
}

/// Random ids below a limit.
pub(crate) fn ids(dims: &[usize], limit: usize) -> Result<Tensor> {
    let mut draws = vec![0.0; dims.iter().product()];
    rng::fill_uniform(rng::key(1, "ids"), 0.5, &mut draws);
    let ids = draws.iter().map(|draw| ((draw + 0.5) * limit as f32) as u32);
    Tensor::from_ids(dims, ids.collect())
}

/// The loss of logits. The gradient overwrites them.
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

/// The update, and the gradient's norm, of the largest parameter.
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
            micro_batches: 1,
        };
        timer.time(|| parameter.start_grad_squares())?;
        timer.time(|| AdamW::default().update(&mut parameter, update))
    };
    // Reads the gradient, reads and writes the value and two states, and in bf16 writes the copy of the
    // value.
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
