//! Attention in the shapes of `attention_peers.py`, and what it computes beside what another way has
//! computed: with `PIPEWRIGHT_ATTENTION=wgmma` its forward is by `wgmma`, which only H100 and H200 have.

use std::fs;
use std::path::Path;

use pipewright::plan;
use pipewright::stages::layers::{Attention, Heads};
use pipewright::stages::{Place, Sequential, Stage, Tensor};

use crate::kernels::{Setting, median, numbers, runs};
use crate::sizes::Result;
use crate::table::{Guess, Table, Unit};
use crate::timer::{TRAIN, Timer};

/// Sequences, tokens, query heads, key heads, width, and the operations a second that were predicted of the
/// forward by `wgmma` (see `DECISIONS.md` of attention).
type Shape = ([usize; 2], [usize; 3], f64);

/// GPT-2, Llama-3.2-1B with 2k and 8k tokens, and heads of 128.
const SHAPES: [Shape; 4] = [
    ([16, 1024], [12, 12, 64], 250e12),
    ([8, 2048], [32, 8, 64], 310e12),
    ([2, 8192], [32, 8, 64], 390e12),
    ([2, 8192], [32, 8, 128], 530e12),
];

/// For an emulated GPU: several blocks of queries, and tiles of keys.
const TINY: [Shape; 2] = [([1, 200], [2, 1, 64], 250e12), ([1, 200], [1, 1, 128], 530e12)];

/// Every so many-th number of an output or input gradient is kept.
const SAMPLED: usize = 251;

/// The largest distance to what was kept, as a part of the root mean square. Outputs in `bf16` that were
/// rounded from different sums are some 0.002 apart.
const APART: f64 = 0.01;

/// Times each shape. Compares a sample of what it computes with the file `beside`, or keeps it in `keep`.
pub(crate) fn measure(
    table: &mut Table<'_>,
    setting: &Setting<'_>,
    keep: Option<&Path>,
    beside: Option<&Path>,
) -> Result<()> {
    let is_tiny = setting.shapes()?.tokens() < SHAPES[0].0[1];
    let by_wgmma = std::env::var_os("PIPEWRIGHT_ATTENTION").is_some();
    let mut timer = Timer::new(setting.place, setting.filling()?)?;
    let mut samples: Vec<Vec<f32>> = Vec::new();
    for (tokens, heads, rate) in if is_tiny { &TINY[..] } else { &SHAPES } {
        let [query, key_value, width] = *heads;
        let product = tokens.iter().product::<usize>() as f64 * (tokens[1] * query * width) as f64;
        let (seconds, sampled) = passes(*tokens, Heads { query, key_value, width }, setting, &mut timer)?;
        samples.extend(sampled);
        for (pass, products, run, seconds) in
            [("forward", 2.0, 2.0, seconds[0]), ("backward", 5.0, 7.0, seconds[1])]
        {
            let backward = pass == "backward";
            let work = plan::Work::Attention { operations: run * product, backward };
            let by_model = setting.kind.map(|kind| kind.time(&runs(work, 1)));
            let predicted = if by_wgmma && !backward { Some(2.0 * product / rate) } else { by_model };
            let what = format!("{} x {}, {query}/{key_value} heads of {width}, {pass}", tokens[0], tokens[1]);
            let guess = Guess { what: &what, unit: Unit::Time, predicted };
            table.row(&guess, seconds, &format!("{:.1} TFLOP/s", products * product / seconds / 1e12))?;
        }
    }
    if let Some(file) = keep {
        fs::write(file, serde_json::to_vec(&samples)?)?;
    }
    match beside {
        Some(file) => compare(table, &samples, &serde_json::from_slice::<Vec<Vec<f32>>>(&fs::read(file)?)?),
        None => Ok(()),
    }
}

/// The median seconds of forward and backward, and samples of the output and the input gradient.
fn passes(
    [batch, time]: [usize; 2],
    heads: Heads,
    setting: &Setting<'_>,
    timer: &mut Timer,
) -> Result<([f64; 2], [Vec<f32>; 2])> {
    let mut stage = Sequential::new(vec![Box::new(Attention::grouped("attention", heads, None)?)]);
    stage.move_to(setting.place)?;
    let input = stage.load(numbers(&[batch, time, heads.row()])?)?;
    let grad = stage.load(numbers(&[batch, time, heads.query * heads.width])?)?;
    let (mut all, mut sampled) = ([Vec::new(), Vec::new()], None);
    // The first round makes what later ones use again.
    for round in 0..=setting.rounds {
        let (output, saved) = timer.time(|| stage.forward(TRAIN, input.clone()))?;
        let grad = timer.fresh(&grad)?;
        let (input_grad, pending) = timer.time(|| stage.backward_input(saved, grad))?;
        stage.backward_weight(pending)?;
        let seconds = timer.read()?;
        if round > 0 {
            all.iter_mut().zip(seconds).for_each(|(all, seconds)| all.push(seconds));
        }
        sampled = Some([output, input_grad.ok_or("attention has an input gradient")?]);
    }
    let [output, input_grad] = sampled.ok_or("there is a round")?;
    Ok((all.map(median), [sample(output)?, sample(input_grad)?]))
}

fn sample(tensor: Tensor) -> Result<Vec<f32>> {
    Ok(tensor.to(Place::default())?.f32().iter().step_by(SAMPLED).copied().collect())
}

/// The root mean square of the differences, as a part of that of the numbers.
fn distance(numbers: &[f32], others: &[f32]) -> f64 {
    let squares = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let away = squares(&mut numbers.iter().zip(others).map(|(&x, &y)| f64::from(x) - f64::from(y)));
    (away / squares(&mut others.iter().copied().map(f64::from))).sqrt()
}

fn compare(table: &mut Table<'_>, samples: &[Vec<f32>], others: &[Vec<f32>]) -> Result<()> {
    for (index, (sample, other)) in samples.iter().zip(others).enumerate() {
        let what = ["output", "input gradient"][index % 2];
        let away = distance(sample, other);
        table.say(&format!("shape {}: {what} is {away:.1e} away from the other way", index / 2 + 1))?;
        if away.is_nan() || away >= APART {
            return Err(format!("shape {}: {what} differs too much", index / 2 + 1).into());
        }
    }
    Ok(())
}
