//! What one thread does: every layer's forward, backward-input (I) and backward-weight (W), and whole training steps.
//!
//! `cargo bench -p pipewright-stages --bench block -- [steps] [layers whose name holds this]`. The model is
//! size A of `benches/compare_torch`.

use std::time::Instant;

use pipewright_stages::layers::{Attention, Dropout, Embedding, Gelu, GeluForm, LayerNorm, Layout, Linear};
use pipewright_stages::loss::{CrossEntropy, Loss, Score};
use pipewright_stages::models::Gpt;
use pipewright_stages::optimizer::{AdamW, Optimizer, Update};
use pipewright_stages::{Bytes, Init, Layer, Mode, Moment, Result, Sequential, Stage, Tensor, rng};

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
const REPEATS: usize = 60;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let steps = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(5);
    let wanted = arguments
        .iter()
        .find(|argument| argument.parse::<usize>().is_err());
    println!(
        "{:<24} {:>9} {:>9} {:>9}  (us, fastest of {REPEATS})",
        "layer", "forward", "I", "W"
    );
    for (mut layer, input) in layers()? {
        if wanted.is_none_or(|wanted| layer.name().contains(wanted.as_str())) {
            time_layer(layer.as_mut(), &input)?;
        }
    }
    if steps > 0 { time_steps(steps) } else { Ok(()) }
}

fn random(dims: &[usize]) -> Result<Tensor> {
    let mut numbers = vec![0.0; dims.iter().product()];
    rng::fill_normal(rng::key(1, "bench"), 1.0, &mut numbers);
    Tensor::from_vec(dims, numbers)
}

fn tokens(name: &str, micro_batch: u32) -> Result<Tensor> {
    let mut draws = vec![0.0; ROWS * GPT.context];
    rng::fill_uniform(rng::key(u64::from(micro_batch), name), 128.0, &mut draws);
    Tensor::from_ids(
        &[ROWS, GPT.context],
        draws.iter().map(|draw| (draw + 128.0) as u32).collect(),
    )
}

/// Each layer of a block with its input.
fn layers() -> Result<Vec<(Box<dyn Layer>, Tensor)>> {
    let dim = GPT.dim;
    let wide = |width| random(&[ROWS, GPT.context, width]);
    let linear = |name: &str, layout, sizes| {
        Box::new(Linear::new(name, layout, sizes, Init::Normal(0.02), 0).with_bias(Init::Zeros))
    };
    Ok(vec![
        (
            Box::new(Embedding::new("embedding", GPT.vocab, GPT.context, dim, 0)),
            tokens("x", 0)?,
        ),
        (Box::new(LayerNorm::new("layer norm", dim)), wide(dim)?),
        (linear("256 x 768", Layout::InOut, [dim, 3 * dim]), wide(dim)?),
        (
            Box::new(Attention::new("attention", dim, GPT.heads)?),
            wide(3 * dim)?,
        ),
        (linear("256 x 256", Layout::InOut, [dim, dim]), wide(dim)?),
        (linear("256 x 1024", Layout::InOut, [dim, 4 * dim]), wide(dim)?),
        (
            Box::new(Gelu::new("gelu, tanh form", GeluForm::Tanh)),
            wide(4 * dim)?,
        ),
        (
            Box::new(Gelu::new("gelu, exact", GeluForm::Exact)),
            wide(4 * dim)?,
        ),
        (
            linear("1024 x 256", Layout::InOut, [4 * dim, dim]),
            wide(4 * dim)?,
        ),
        (
            linear("256 x 256, PyTorch's", Layout::OutIn, [dim, GPT.vocab]),
            wide(dim)?,
        ),
        (Box::new(Dropout::new("dropout", 0.1, 0)?), wide(dim)?),
    ])
}

fn time_layer(layer: &mut dyn Layer, input: &Tensor) -> Result<()> {
    let at = Moment {
        step: 0,
        micro_batch: 0,
        mode: Mode::Train,
    };
    let grad = random(layer.output_shape(input.shape())?.dims())?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..REPEATS {
        let start = Instant::now();
        let (_output, saved) = layer.forward(at, input.clone())?;
        times[0].push(start.elapsed());
        // A layer may write over a gradient that is its own.
        let mut grad = grad.clone();
        grad.f32_mut();
        let start = Instant::now();
        let (_input_grad, pending) = layer.backward_input(saved, grad)?;
        times[1].push(start.elapsed());
        let start = Instant::now();
        layer.backward_weight(pending)?;
        times[2].push(start.elapsed());
    }
    let [forward, input, weight] =
        times.map(|times| times.into_iter().min().unwrap_or_default().as_secs_f64() * 1e6);
    println!("{:<24} {forward:>9.1} {input:>9.1} {weight:>9.1}", layer.name());
    Ok(())
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
        "\nstep {total:.1} ms: forward {forward:.1}, loss {loss:.1}, I {input:.1}, W {weight:.1}, optimizer {optimizer:.1}"
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
        let start = Instant::now();
        let (output, saved) = stage.forward(at, tokens("x", micro_batch)?)?;
        parts[0] += start.elapsed().as_secs_f64();
        *saved_bytes = saved.bytes();
        let start = Instant::now();
        let (score, grad) = CrossEntropy::default().forward(output, tokens("y", micro_batch)?)?;
        parts[1] += start.elapsed().as_secs_f64();
        total.add(score);
        let start = Instant::now();
        let (_, pending) = stage.backward_input(saved, grad)?;
        parts[2] += start.elapsed().as_secs_f64();
        let start = Instant::now();
        stage.backward_weight(pending)?;
        parts[3] += start.elapsed().as_secs_f64();
    }
    let start = Instant::now();
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
