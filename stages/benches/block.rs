//! Whole training steps of one thread, and what their parts take, in time that the thread itself had. The model is size A
//! of `benches/compare_torch`.
//!
//! `cargo bench -p pipewright-stages --bench block -- [steps]`. Kernels one by one: `--bench kernels`.

use cpu_time::ThreadTime;
use pipewright_stages::loss::{CrossEntropy, Loss, Score};
use pipewright_stages::models::Gpt;
use pipewright_stages::optimizer::{AdamW, Optimizer, Update};
use pipewright_stages::{Bytes, Mode, Moment, Result, Sequential, Stage, Tensor, rng};

const GPT: Gpt = Gpt {
    vocab: 256,
    dim: 256,
    layers: 8,
    heads: 8,
    context: 128,
    dropout: 0.0,
    tied: false,
    seed: 0,
};
const ROWS: usize = 4;
const MICRO_BATCHES: u32 = 8;

fn main() -> Result<()> {
    let steps = std::env::args().find_map(|argument| argument.parse().ok());
    time_steps(steps.unwrap_or(5).max(1))
}

fn tokens(name: &str, micro_batch: u32) -> Result<Tensor> {
    let mut draws = vec![0.0; ROWS * GPT.context];
    rng::fill_uniform(rng::key(u64::from(micro_batch), name), 128.0, &mut draws);
    Tensor::from_ids(
        &[ROWS, GPT.context],
        draws.iter().map(|draw| (draw + 128.0) as u32).collect(),
    )
}

/// Seconds of a step's parts: forward, loss, I, W, optimizer.
type Parts = [f64; 5];

fn time_steps(steps: usize) -> Result<()> {
    let mut stage = GPT.model()?.whole()?;
    let mut parts: Vec<Parts> = Vec::new();
    let mut saved = 0;
    for step in 0..steps + 1 {
        parts.push(one_step(&mut stage, step as u64, &mut saved)?);
    }
    parts.remove(0);
    parts.sort_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
    let [forward, loss, input, weight, optimizer] = parts[parts.len() / 2].map(|seconds| seconds * 1e3);
    let total = forward + loss + input + weight + optimizer;
    let tokens = ROWS * GPT.context * MICRO_BATCHES as usize;
    println!(
        "step {total:.1} ms: forward {forward:.1}, loss {loss:.1}, I {input:.1}, W {weight:.1}, optimizer {optimizer:.1}"
    );
    println!(
        "kept for one micro-batch: {:.2} MiB",
        saved as f64 / f64::from(1 << 20)
    );
    println!("tokens/s {:.1}", tokens as f64 / total * 1e3);
    Ok(())
}

fn one_step(stage: &mut Sequential, step: u64, saved_bytes: &mut u64) -> Result<Parts> {
    let mut parts = [0.0; 5];
    let mut total = Score::default();
    for micro_batch in 0..MICRO_BATCHES {
        let at = Moment {
            step,
            micro_batch,
            mode: Mode::Train,
        };
        let start = ThreadTime::now();
        let (output, saved) = stage.forward(at, tokens("x", micro_batch)?)?;
        parts[0] += start.elapsed().as_secs_f64();
        *saved_bytes = saved.bytes();
        let start = ThreadTime::now();
        let (score, grad) = CrossEntropy::default().forward(output, tokens("y", micro_batch)?)?;
        parts[1] += start.elapsed().as_secs_f64();
        total.add(score);
        let start = ThreadTime::now();
        let (_, pending) = stage.backward_input(saved, grad)?;
        parts[2] += start.elapsed().as_secs_f64();
        let start = ThreadTime::now();
        stage.backward_weight(pending)?;
        parts[3] += start.elapsed().as_secs_f64();
    }
    let start = ThreadTime::now();
    let update = Update {
        step: step + 1,
        learning_rate: 3e-4,
        scale: 1.0 / total.weight,
    };
    for parameter in stage.parameters() {
        AdamW::default().update(parameter, update);
        parameter.grad.fill(0.0);
    }
    parts[4] = start.elapsed().as_secs_f64();
    Ok(parts)
}
