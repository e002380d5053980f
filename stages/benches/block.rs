//! Whole training steps of one rank, and the times of their parts. Times are CPU time of the thread or, if it
//! has helpers, wall time. The models are sizes A and B of `benches/compare_torch`.
//!
//! `cargo bench -p pipewright-stages --bench block -- [A or B] [steps] [threads]`. For single kernels:
//! `--bench kernels`.

use std::time::Instant;

use cpu_time::ThreadTime;
use pipewright_stages::loss::{CrossEntropy, Loss, Score};
use pipewright_stages::models::Gpt;
use pipewright_stages::optimizer::{AdamW, Optimizer, Update};
use pipewright_stages::{
    Bytes, ForwardContext, Mode, Result, Sequential, Stage, Tensor, Together, rng, threads,
};

/// A model and the rows of its micro-batches.
#[derive(Clone, Copy)]
struct Size {
    gpt: Gpt,
    rows: usize,
}

const A: Size = Size { gpt: GPT, rows: 4 };
const B: Size = Size { gpt: Gpt { dim: 512, context: 256, ..GPT }, rows: 2 };
const GPT: Gpt =
    Gpt { vocab: 256, dim: 256, layers: 8, heads: 8, context: 128, dropout: 0.0, tied: false, seed: 0 };
const MICRO_BATCHES: u32 = 8;

/// A start, in CPU time of the thread and in wall time.
struct Clock(ThreadTime, Instant);

impl Clock {
    fn start() -> Self {
        Self(ThreadTime::now(), Instant::now())
    }

    fn seconds(&self) -> f64 {
        match threads::count() {
            1 => self.0.elapsed().as_secs_f64(),
            _ => self.1.elapsed().as_secs_f64(),
        }
    }
}

/// Seconds of a step's parts: forward, loss, backward-input (I), backward-weight (W), optimizer.
type Parts = [f64; 5];

fn main() -> Result<()> {
    let mut counts = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let (steps, count) = (counts.next().unwrap_or(5), counts.next().unwrap_or(1));
    let size = if std::env::args().any(|argument| argument == "B") { B } else { A };
    let _threads = threads::start(count, |_| ())?;
    size.time_steps(steps.max(1))
}

impl Size {
    fn tokens(self, name: &str, micro_batch: u32) -> Result<Tensor> {
        let shape = [self.rows, self.gpt.context];
        let mut draws = vec![0.0; shape[0] * shape[1]];
        rng::fill_uniform(rng::key(u64::from(micro_batch), name), 128.0, &mut draws);
        Tensor::from_ids(&shape, draws.iter().map(|draw| (draw + 128.0) as u32).collect())
    }

    fn time_steps(self, steps: usize) -> Result<()> {
        let mut stage = self.gpt.model()?.whole()?;
        let mut parts: Vec<Parts> = Vec::new();
        let mut saved = 0;
        for step in 0..steps + 1 {
            parts.push(self.one_step(&mut stage, step as u64, &mut saved)?);
        }
        parts.remove(0);
        parts.sort_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
        let [forward, loss, input, weight, optimizer] = parts[parts.len() / 2].map(|seconds| seconds * 1e3);
        let total = forward + loss + input + weight + optimizer;
        let tokens = self.rows * self.gpt.context * MICRO_BATCHES as usize;
        println!(
            "step {total:.1} ms: forward {forward:.1}, loss {loss:.1}, \
             I {input:.1}, W {weight:.1}, optimizer {optimizer:.1}"
        );
        println!("kept for one micro-batch: {:.2} MiB", saved as f64 / f64::from(1 << 20));
        println!("tokens/s {:.1}", tokens as f64 / total * 1e3);
        Ok(())
    }

    fn one_step(self, stage: &mut Sequential, step: u64, saved_bytes: &mut u64) -> Result<Parts> {
        let mut parts = [0.0; 5];
        let mut total = Score::default();
        for micro_batch in 0..MICRO_BATCHES {
            let at = ForwardContext { step, micro_batch, mode: Mode::Train };
            let start = Clock::start();
            let (output, saved) = stage.forward(at, self.tokens("x", micro_batch)?)?;
            parts[0] += start.seconds();
            *saved_bytes = saved.bytes();
            let start = Clock::start();
            let (score, grad) = CrossEntropy::default().forward(output, self.tokens("y", micro_batch)?)?;
            parts[1] += start.seconds();
            total.add(score);
            let start = Clock::start();
            let (_, pending) = stage.backward_input(saved, grad)?;
            parts[2] += start.seconds();
            let start = Clock::start();
            stage.backward_weight(pending)?;
            parts[3] += start.seconds();
        }
        let start = Clock::start();
        let update =
            Update { step: step + 1, learning_rate: 3e-4, scale: 1.0 / total.weight, micro_batches: 1 };
        for parameter in stage.parameters() {
            Together::now(|together| AdamW::default().update(parameter, update, together))
                .expect("the CPU can");
            parameter.grad.fill(0.0);
        }
        parts[4] = start.seconds();
        Ok(parts)
    }
}
