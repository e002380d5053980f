//! Every kernel by itself, through the public layers, loss and optimizer.

use pipewright::plan::{self, Gpu};
use pipewright::stages::loss::{CrossEntropy, Loss};
use pipewright::stages::models::Gpt;
use pipewright::stages::optimizer::{AdamW, Optimizer, Update};
use pipewright::stages::{Init, Parameter, Place, Tensor, Together, rng};

use crate::sizes::{Kind, Result, Size};
use crate::table::{Guess, Table, Unit};
use crate::timer::Timer;
use crate::{images, layers};

/// What products of 8192^3 random bf16 numbers have reached on an H200, in operations per second.
pub(crate) const TOP_FLOPS: f64 = 790e12;
/// In bf16, this many numbers are twice the size of an H200's second-level cache (60 MB).
const FILLING: usize = 64 << 20;
/// Rows of logits. A step has more.
pub(crate) const HEAD_ROWS: usize = 4096;

/// What is measured, and how often.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) size: &'a Size,
    pub(crate) place: Place,
    pub(crate) rounds: usize,
    /// What predicts the times, if anything does.
    pub(crate) kind: Option<&'static Gpu>,
}

/// The work of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Floating-point operations: a multiplication and an addition count as two.
    Flops(f64),
    /// Bytes that it must read and write, each counted once.
    Bytes(f64),
}

/// A pass of a layer, or a part of one.
pub(crate) struct Pass {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
    /// What the GPU runs for it. Empty if the model does not know that.
    pub(crate) runs: Vec<plan::Kernel>,
}

impl Pass {
    /// One that is bound by its bytes, in `launches` launches.
    pub(crate) fn moving(name: &'static str, bytes: f64, launches: u32) -> Self {
        Self { name, work: Work::Bytes(bytes), runs: vec![runs(plan::Work::Bytes(bytes), launches)] }
    }
}

/// Work in `launches` launches.
pub(crate) fn runs(work: plan::Work, launches: u32) -> plan::Kernel {
    plan::Kernel { name: "", work, launches }
}

/// What a round times: each pass, in order.
pub(crate) type Run = Box<dyn FnMut(&mut Timer) -> pipewright::stages::Result<()>>;

/// A kernel, or the few kernels of a layer's passes.
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) passes: Vec<Pass>,
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
    pub(crate) fn bytes(&self, numbers: usize, accesses: usize) -> f64 {
        (self.place.dtype.bytes() * numbers * accesses) as f64
    }
}

impl Setting<'_> {
    /// The shapes, if the model is a GPT.
    pub(crate) fn shapes(&self) -> Result<Shapes> {
        match self.size.kind {
            Kind::Gpt(gpt) => Ok(Shapes { gpt, rows: self.size.rows, place: self.place }),
            Kind::Mlp(_) => Err("kernels are those of a GPT".into()),
        }
    }

    /// How many numbers fill the caches.
    pub(crate) fn filling(&self) -> Result<usize> {
        let shapes = self.shapes()?;
        Ok(FILLING.min(64 * shapes.tokens() * shapes.gpt.dim))
    }
}

/// Measures the kernels with `part` in their names, and prints a row for each pass.
pub(crate) fn measure(table: &mut Table<'_>, setting: &Setting<'_>, part: Option<&str>) -> Result<()> {
    let (shapes, filling) = (setting.shapes()?, setting.filling()?);
    table.say(&format!(
        "kernels in {} at micro-batches of {} x {}: medians of {}, caches cold",
        setting.place.dtype, shapes.rows, shapes.gpt.context, setting.rounds
    ))?;
    let mut timer = Timer::new(setting.place, filling)?;
    let top = Top::measure(shapes, filling, setting.rounds, &mut timer)?;
    table.say(&format!(
        "shares are of {:.0} TFLOP/s and {:.2} TB/s, which a large product and GELU reach here",
        top.flops / 1e12,
        top.bytes / 1e12
    ))?;
    let mut kernels = layers::kernels(shapes);
    kernels.extend(images::kernels(shapes));
    kernels.extend([("cross-entropy", Box::new(move || cross_entropy(shapes)) as Make)]);
    kernels.extend([("adamw", Box::new(move || optimizer(shapes)) as Make)]);
    kernels.retain(|(name, _)| part.is_none_or(|part| name.contains(part)));
    // One at a time, because logits are large.
    for (_, make) in kernels {
        rows(table, setting, &mut make()?, &mut timer, top)?;
    }
    Ok(())
}

/// Makes a kernel and its operands.
pub(crate) type Make = Box<dyn FnOnce() -> pipewright::stages::Result<Kernel>>;

/// The rates that this GPU reaches, in operations and bytes per second.
#[derive(Clone, Copy)]
struct Top {
    flops: f64,
    bytes: f64,
}

impl Top {
    /// Of a product of three square matrices with `filling` numbers each, and of GELU over as many numbers.
    fn measure(shapes: Shapes, filling: usize, rounds: usize, timer: &mut Timer) -> Result<Self> {
        let rate = |kernel: &mut Kernel, timer: &mut Timer| -> Result<f64> {
            let seconds = medians(kernel, rounds, timer)?[0];
            Ok(match kernel.passes[0].work {
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
fn medians(kernel: &mut Kernel, rounds: usize, timer: &mut Timer) -> Result<Vec<f64>> {
    (kernel.run)(timer)?;
    timer.read()?;
    let mut all = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        (kernel.run)(timer)?;
        all.push(timer.read()?);
    }
    let of_pass = |index| median(all.iter().map(|round| round[index]).collect());
    Ok((0..kernel.passes.len()).map(of_pass).collect())
}

/// The number in the middle.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn rows(
    table: &mut Table<'_>,
    setting: &Setting<'_>,
    kernel: &mut Kernel,
    timer: &mut Timer,
    top: Top,
) -> Result<()> {
    let medians = medians(kernel, setting.rounds, timer)?;
    for (pass, median) in kernel.passes.iter().zip(medians) {
        let (rate, share) = match pass.work {
            Work::Flops(0.0) | Work::Bytes(0.0) => continue,
            Work::Flops(flops) => {
                (format!("{:.1} TFLOP/s", flops / median / 1e12), flops / median / top.flops)
            }
            Work::Bytes(bytes) => (format!("{:.0} GB/s", bytes / median / 1e9), bytes / median / top.bytes),
        };
        let time = |kind: &Gpu| pass.runs.iter().map(|kernel| kind.time(kernel)).sum();
        let guess = Guess {
            what: &format!("{}, {}", kernel.name, pass.name),
            unit: Unit::Time,
            predicted: setting.kind.filter(|_| !pass.runs.is_empty()).map(time),
        };
        table.row(&guess, median, &format!("{rate:>14} {:>6.1}%", 100.0 * share))?;
    }
    Ok(())
}

/// Normally distributed random numbers.
pub(crate) fn numbers(dims: &[usize]) -> pipewright::stages::Result<Tensor> {
    let mut numbers = vec![0.0; dims.iter().product()];
    rng::fill_normal(rng::key(1, "bench"), 1.0, &mut numbers);
    Tensor::from_vec(dims, numbers)
}

/// Random ids below a limit.
pub(crate) fn ids(dims: &[usize], limit: usize) -> pipewright::stages::Result<Tensor> {
    let mut draws = vec![0.0; dims.iter().product()];
    rng::fill_uniform(rng::key(1, "ids"), 0.5, &mut draws);
    let ids = draws.iter().map(|draw| ((draw + 0.5) * limit as f32) as u32);
    Tensor::from_ids(dims, ids.collect())
}

/// The loss of logits. The gradient overwrites them.
fn cross_entropy(shapes: Shapes) -> pipewright::stages::Result<Kernel> {
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
        passes: vec![Pass::moving("gradient", shapes.bytes(rows * classes, 2), 2)],
        run: Box::new(run),
    })
}

/// The update, and the gradient's norm, of the largest parameter.
fn optimizer(shapes: Shapes) -> pipewright::stages::Result<Kernel> {
    let dims = [shapes.gpt.vocab, shapes.gpt.dim];
    let count = dims.iter().product::<usize>();
    let mut parameter = Parameter::new("wte.weight".to_owned(), &dims, Init::Normal(0.02), 0);
    parameter.move_to(shapes.place)?;
    let mut step = 0;
    let run = move |timer: &mut Timer| {
        step += 1;
        let update = Update { step, learning_rate: 1e-4, scale: 1.0, micro_batches: 1 };
        timer.time(|| Together::now(|together| parameter.start_grad_squares(together)))?;
        timer.time(|| Together::now(|together| AdamW::default().update(&mut parameter, update, together)))
    };
    // Reads the gradient, reads and writes the value and two states, and in bf16 writes the copy of the
    // value.
    let copy = if shapes.place.dtype.bytes() == 4 { 0 } else { 2 };
    let each = 4 + 3 * 8 + copy;
    Ok(Kernel {
        name: format!("adamw: {count}"),
        passes: vec![
            Pass::moving("norm", 4.0 * count as f64, 1),
            Pass::moving("update", (each * count) as f64, 1),
        ],
        run: Box::new(run),
    })
}
