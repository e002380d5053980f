//! Products with frozen matrices in few bits, and AdamW with moments in few bits, on one thread.
//!
//! `cargo bench -p pipewright-stages --bench quantised -- [row, training or adamw] [rounds]`
//!
//! *Hot* and *cold* are as in the bench of kernels: medians over the rounds, in CPU time of the thread. A
//! round runs everything that is compared, one after the other. Ratios are medians of the ratios of each
//! round, so that a busy moment of the machine affects both sides alike.

#[path = "../tests/common/blocks.rs"]
mod blocks;
#[path = "kernels/clock.rs"]
mod clock;
#[path = "kernels/cpu.rs"]
mod cpu;

use clock::{Clock, Run, Seconds};
use pipewright_stages::layers::{Layout, Linear};
use pipewright_stages::optimizer::{AdamW, StateFormat, Update, update};
use pipewright_stages::{
    DType, Device, ForwardContext, Init, Layer, Mode, Parameter, Place, Quantisation, Result, Tensor,
    Together, rng,
};

/// Odd, so that the median is one of the measurements.
const ROUNDS: usize = 11;

/// The matrix: 2,048 rows of 8,192 numbers.
const SIZES: [usize; 2] = [8192, 2048];

/// How many numbers are updated.
const UPDATED: usize = 1 << 24;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let wanted = arguments.iter().find(|argument| argument.parse::<usize>().is_err());
    println!("{}", cpu::line());
    type Part = fn(usize) -> Result<()>;
    let parts: [(&str, Part); 3] = [("row", time_rows), ("training", time_training), ("adamw", time_updates)];
    let wanted = parts.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
    wanted.into_iter().try_for_each(|(_, time)| time(rounds))
}

/// What some runs take, in rounds.
fn measure(rounds: usize, runs: &mut [Run]) -> Result<Vec<Vec<Seconds>>> {
    let (mut clock, mut samples) = (Clock::new(), runs.iter().map(|_| Vec::new()).collect::<Vec<_>>());
    for _ in 0..rounds {
        for (run, samples) in runs.iter_mut().zip(&mut samples) {
            samples.push(clock.round(run)?);
        }
    }
    Ok(samples)
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The median of a pass, hot and cold.
fn medians(samples: &[Seconds], pass: usize) -> [f64; 2] {
    [median(samples.iter().map(|one| one.hot[pass])), median(samples.iter().map(|one| one.cold[pass]))]
}

/// Prints how many numbers a second each run takes.
fn print_rates(what: &str, numbers: usize, names: &[String], samples: &[Vec<Seconds>]) {
    println!("\n{what:<24}{:>8}{:>8}  thousand millions of numbers a second, hot and cold", "hot", "cold");
    for (name, own) in names.iter().zip(samples) {
        let [hot, cold] = medians(own, 0).map(|seconds| numbers as f64 / seconds * 1e-9);
        println!("{name:<24}{hot:>8.2}{cold:>8.2}");
    }
}

/// A linear layer without bias, whose matrix is frozen: blocks of this kind, or their numbers.
fn layer(kind: Quantisation, is_quantised: bool) -> Linear {
    let mut layer = Linear::new("linear", SIZES, Init::Zeros, 0).with_layout(Layout::OutIn).without_bias();
    let blocks = blocks::of_kinds(&[(kind, SIZES[1])], SIZES[0]);
    blocks::give(layer.parameters().swap_remove(0), blocks, is_quantised);
    layer
}

fn rows(count: usize, width: usize, dtype: DType) -> Result<Tensor> {
    let mut numbers = vec![0.0; count * width];
    rng::fill_normal(rng::key(1, "bench"), 1.0, &mut numbers);
    Tensor::from_vec(&[count, width], numbers)?.to(Place { device: Device::Cpu, dtype })
}

/// One row by the matrix in each kind of blocks, as when text is written.
fn time_rows(rounds: usize) -> Result<()> {
    let run = |mut layer: Linear| -> Result<Run> {
        let row = rows(1, SIZES[0], DType::F32)?;
        Ok(Box::new(move |clock: &mut Clock| {
            let row = row.clone();
            clock.time(|| layer.forward_next(0, row)).map(drop)
        }))
    };
    let kinds = Quantisation::ALL;
    let mut names: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
    names.push("f32".to_owned());
    let layers = kinds.iter().map(|kind| layer(*kind, true)).chain([layer(kinds[0], false)]);
    let mut runs = layers.map(run).collect::<Result<Vec<Run>>>()?;
    print_rates("one row", SIZES[0] * SIZES[1], &names, &measure(rounds, &mut runs)?);
    Ok(())
}

const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

/// The forward and the backward-input of some rows.
fn both_passes(mut layer: Linear, count: usize, dtype: DType) -> Result<Run> {
    let (input, grad) = (rows(count, SIZES[0], dtype)?, rows(count, SIZES[1], dtype)?);
    Ok(Box::new(move |clock: &mut Clock| {
        let (input, grad) = (input.clone(), grad.clone());
        let (output, saved) = clock.time(|| layer.forward(AT, input))?;
        drop(output);
        clock.time(|| layer.backward_input(saved, grad)).map(drop)
    }))
}

/// Forward and backward-input over blocks, beside the same numbers in `f32`, which are packed once and kept.
fn time_training(rounds: usize) -> Result<()> {
    println!(
        "\n{:<24}{:>18}{:>18}  times as long as packed numbers",
        "training", "forward", "backward-input"
    );
    println!("{:<24}{:>9}{:>9}{:>9}{:>9}", "", "hot", "cold", "hot", "cold");
    for dtype in [DType::F32, DType::Bf16] {
        for kind in [Quantisation::Nf4, Quantisation::Q8_0] {
            for count in [64, 256, 512] {
                let mut runs = [true, false]
                    .into_iter()
                    .map(|is_quantised| both_passes(layer(kind, is_quantised), count, dtype))
                    .collect::<Result<Vec<Run>>>()?;
                let samples = measure(rounds, &mut runs)?;
                let ratio = |seconds: fn(&Seconds) -> &[f64], pass: usize| {
                    let pairs = samples[0].iter().zip(&samples[1]);
                    median(pairs.map(|(blocks, packed)| seconds(blocks)[pass] / seconds(packed)[pass]))
                };
                let name = format!("{kind:?}, {count} rows, {dtype:?}");
                let [forward, backward] =
                    [0, 1].map(|pass| [ratio(|one| &one.hot, pass), ratio(|one| &one.cold, pass)]);
                let all = [forward, backward].concat();
                println!("{name:<24}{}", all.iter().map(|one| format!("{one:>9.2}")).collect::<String>());
            }
        }
    }
    Ok(())
}

/// The update of AdamW, with its moments in each format.
fn time_updates(rounds: usize) -> Result<()> {
    let formats = [StateFormat::F32, StateFormat::Bf16, StateFormat::Blocks];
    let run = |state: StateFormat| -> Run {
        let optimizer = AdamW { state, ..AdamW::default() };
        let mut parameter = Parameter::new("weight", &[UPDATED / 4096, 4096], Init::Normal(0.02), 0);
        rng::fill_normal(rng::key(1, "gradient"), 0.1, &mut parameter.grad);
        let mut step = 0;
        Box::new(move |clock: &mut Clock| {
            step += 1;
            let now = Update { step, learning_rate: 1e-3, scale: 1.0, micro_batches: 1 };
            clock.time(|| Together::now(|together| update(&optimizer, &mut parameter, now, together)))
        })
    };
    let mut runs = formats.map(run);
    let names = formats.map(|format| format!("AdamW, moments in {format:?}"));
    print_rates("update", UPDATED, &names, &measure(rounds, &mut runs)?);
    Ok(())
}
