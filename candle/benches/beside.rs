//! The same models by candle's tape and by our layers, on one thread: seconds of forward and backward.
//!
//! `cargo bench -p pipewright-candle`

use std::hint::black_box;
use std::time::Instant;

use candle_core::{D, DType, Device, Tensor as Candle, Var};
use candle_nn::{Activation, Module, VarBuilder, VarMap, linear, ops, seq};
use pipewright_candle::CandleLayer;
use pipewright_stages::layers::{Attention, Block, Gelu, GeluForm, LayerNorm as OurNorm, Linear, Relu};
use pipewright_stages::{ForwardContext, Init, Layer, Mode, Sequential, Stage, Tensor, chain, rng};

const DIM: usize = 128;
const HEADS: usize = 4;
const ROUNDS: usize = 31;

/// A block of GPT-2 by candle, of operations that have gradients.
fn block(weights: VarBuilder<'_>) -> candle_core::Result<impl Module + use<>> {
    let qkv = linear(DIM, 3 * DIM, weights.pp("qkv"))?;
    let out = linear(DIM, DIM, weights.pp("out"))?;
    let up = linear(DIM, 4 * DIM, weights.pp("up"))?;
    let down = linear(4 * DIM, DIM, weights.pp("down"))?;
    let norm = |weights: VarBuilder<'_>| {
        let scale = weights.get_with_hints(DIM, "weight", candle_nn::init::ONE)?;
        candle_core::Result::Ok((scale, weights.get(DIM, "bias")?))
    };
    let (n1, n2) = (norm(weights.pp("n1"))?, norm(weights.pp("n2"))?);
    Ok(move |x: &Candle| {
        let (rows, time, _) = x.dims3()?;
        let heads = |part: &Candle| {
            let split = part.reshape((rows, time, HEADS, DIM / HEADS))?;
            split.transpose(1, 2)?.contiguous()
        };
        let all = qkv.forward(&ops::layer_norm_slow(x, &n1.0, &n1.1, 1e-5)?)?.chunk(3, D::Minus1)?;
        let (q, k, v) = (heads(&all[0])?, heads(&all[1])?, heads(&all[2])?);
        let mask = ((Candle::tril2(time, DType::F32, x.device())? - 1.0)? * 1e9)?;
        let scores = (q.matmul(&k.t()?)? / ((DIM / HEADS) as f64).sqrt())?.broadcast_add(&mask)?;
        let seen = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        let seen = seen.transpose(1, 2)?.reshape((rows, time, DIM))?;
        let x = (x + out.forward(&seen)?)?;
        let inner = up.forward(&ops::layer_norm_slow(&x, &n2.0, &n2.1, 1e-5)?)?.gelu()?;
        &x + down.forward(&inner)?
    })
}

fn our_block() -> Vec<Box<dyn Layer>> {
    let linear = |name, sizes| Linear::new(name, sizes, Init::Normal(0.02), 1);
    let attention = Attention::new("attn", DIM, HEADS).expect("the sizes fit");
    let first =
        chain![OurNorm::new("n1", DIM), linear("qkv", [DIM, 3 * DIM]), attention, linear("out", [DIM; 2])];
    let second = chain![
        OurNorm::new("n2", DIM),
        linear("up", [DIM, 4 * DIM]),
        Gelu::new("gelu", GeluForm::Tanh),
        linear("down", [4 * DIM, DIM])
    ];
    chain![Block::residual("one", first), Block::residual("two", second)]
}

fn perceptron(weights: VarBuilder<'_>) -> candle_core::Result<impl Module + use<>> {
    let model = seq().add(linear(784, 512, weights.pp("0"))?).add(Activation::Relu);
    let model = model.add(linear(512, 512, weights.pp("1"))?).add(Activation::Relu);
    Ok(model.add(linear(512, 10, weights.pp("2"))?))
}

fn our_perceptron() -> Vec<Box<dyn Layer>> {
    let linear = |name, sizes| Linear::new(name, sizes, Init::Normal(0.05), 1);
    chain![
        linear("0", [784, 512]),
        Relu::new("r0"),
        linear("1", [512, 512]),
        Relu::new("r1"),
        linear("2", [512, 10])
    ]
}

/// Seconds of a forward and a backward pass, and, if weights changed before, of copying them too.
fn pass(stage: &mut Sequential, input: &Tensor, changed: bool) -> f64 {
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    if changed {
        stage.visit_parameters(&mut |_| ());
    }
    let begin = Instant::now();
    let (output, saved) = stage.forward(ctx, input.clone()).expect("forward");
    black_box(stage.backward(saved, output).expect("backward"));
    begin.elapsed().as_secs_f64()
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn compare(name: &str, dims: &[usize], ours: Vec<Box<dyn Layer>>, theirs: CandleLayer) {
    let mut numbers = vec![0.0; dims.iter().product()];
    rng::fill_normal([1, 2], 1.0, &mut numbers);
    let input = Tensor::from_vec(dims, numbers).expect("it fills the shape");
    let (mut ours, mut theirs) = (Sequential::new(ours), Sequential::new(chain![theirs]));
    let (mut our, mut their, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 3 {
        let seconds = (pass(&mut ours, &input, false), pass(&mut theirs, &input, false));
        let with_copy = pass(&mut theirs, &input, true);
        if round >= 3 {
            our.push(seconds.0);
            their.push(seconds.1);
            copied.push(with_copy);
        }
    }
    let (our, their, copied) = (median(our), median(their), median(copied));
    println!(
        "{name}: ours {:.2} ms, candle {:.2} ms, ratio {:.2}; after an update {:.2} ms",
        our * 1e3,
        their * 1e3,
        their / our,
        copied * 1e3
    );
}

/// Milliseconds of a pass, on each of `threads` threads at once.
fn together<T>(threads: usize, make: fn() -> T, pass: fn(&mut T)) -> f64 {
    let run = || {
        let mut model = make();
        (0..3).for_each(|_| pass(&mut model));
        let begin = Instant::now();
        (0..ROUNDS).for_each(|_| pass(&mut model));
        begin.elapsed().as_secs_f64() / ROUNDS as f64
    };
    let seconds: Vec<f64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    1e3 * seconds.iter().sum::<f64>() / threads as f64
}

fn rows() -> Tensor {
    let mut numbers = vec![0.0; 4 * 64 * DIM];
    rng::fill_normal([1, 2], 1.0, &mut numbers);
    Tensor::from_vec(&[4, 64, DIM], numbers).expect("it fills the shape")
}

/// The block in a layer, whose kernels stay on the thread of their rank, and alone, as candle runs it.
fn ranks() {
    for threads in [1, 2] {
        let layer = together(
            threads,
            || Sequential::new(chain![CandleLayer::new("block", 1, block).expect("it builds")]),
            |stage| {
                pass(stage, &rows(), false);
            },
        );
        let alone = together(
            threads,
            || {
                let map = VarMap::new();
                let weights = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
                (block(weights).expect("it builds"), map)
            },
            |(module, _)| {
                let x = Var::from_slice(rows().f32(), (4, 64, DIM), &Device::Cpu).expect("a variable");
                let output = module.forward(&x).and_then(|y| y.sum_all()?.backward());
                drop(black_box(output.expect("backward")));
            },
        );
        println!("{threads} threads at once: in a layer {layer:.2} ms a pass, candle alone {alone:.2} ms");
    }
}

fn main() {
    ranks();
    let layer = |name| CandleLayer::new(name, 1, perceptron).expect("it can be built");
    compare("MLP 784-512-512-10, 64 rows", &[64, 784], our_perceptron(), layer("mlp"));
    let layer = CandleLayer::new("block", 1, block).expect("it can be built");
    compare("GPT block, dim 128, 4 x 64 tokens", &[4, 64, DIM], our_block(), layer);
}
