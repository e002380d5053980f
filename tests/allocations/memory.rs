//! The memory that is estimated before a run, compared with what the run takes.

use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pipewright::fabric::Membership;
use pipewright_cli::compose;
use pipewright_cli::config::Config;

use super::common::*;
use super::counting::Since;
use super::gguf;
use super::*;
use super::{alone, source, worlds};

/// The largest relative error of the estimate of what layers keep.
const ACTIVATIONS: f64 = 0.02;

/// The largest relative error of the estimate of all memory.
const ALL: f64 = 0.15;

/// After this many steps, there are as many buffers as there will be.
const STEPS: usize = 6;

/// The estimated and the measured bytes of a training.
struct Trained {
    /// The activations of each rank.
    activations: [Vec<f64>; 2],
    /// All memory, after the last step.
    all: [f64; 2],
    /// The most that was measured within a step.
    most: f64,
}

/// Trains by a config.
fn trained(config: &str) -> Trained {
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("text.txt");
    fs::write(&text, "the quick brown fox jumps over the lazy dog. ".repeat(2000)).unwrap();
    let images = folder.path().join("images");
    fs::write(&images, [&[0, 0, 8, 3, 0, 0, 1, 0, 0, 0, 0, 28, 0, 0, 0, 28][..], &[7; 256 * 784]].concat())
        .unwrap();
    let labels = folder.path().join("labels");
    fs::write(&labels, [&[0, 0, 8, 1, 0, 0, 1, 0][..], &[3; 256]].concat()).unwrap();
    let config = config
        .replace("TEXT", &format!("path = {text:?}"))
        .replace("IMAGES", &format!("kind = 'idx'\npath = {images:?}\nlabels = {labels:?}"));
    let config = Config::parse("test", &config, &[], &[]).unwrap();
    let plan = compose::plan(&config).unwrap();
    let estimated = compose::memory(&config, &plan).unwrap();
    let data = compose::data(&config).unwrap();
    let since = Since::now();
    let mut pipeline = compose::launch(&config, &data, &plan, None).unwrap();
    let mut peaks = Vec::new();
    pipeline.steps_until(STEPS as u64);
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Relaxed) {
                most = most.max(since.held());
                thread::sleep(Duration::from_micros(200));
            }
            most as f64
        });
        for _ in 0..STEPS {
            let report = pipeline.step().unwrap();
            peaks = report.ranks.iter().map(|rank| rank.peak_bytes as f64).collect();
        }
        is_over.store(true, Relaxed);
        most.join().unwrap()
    });
    let held = since.held() as f64;
    let activations = estimated.iter().map(|rank| rank.activations).collect();
    // Nothing is saved here, so there are no copies.
    let all: f64 = estimated.iter().map(|rank| rank.total() - rank.copies).sum();
    let all = f64::from(plan.replicas.count()) * all;
    Trained { activations: [activations, peaks], all: [all, held], most }
}

#[track_caller]
fn holds(name: &str, config: &str) {
    let Trained { activations: [activations, peaks], all: [all, held], .. } = trained(config);
    println!("{name}: activations {activations:?}, held {peaks:?}; all {all}, held {held}");
    for (rank, (estimated, held)) in activations.iter().zip(&peaks).enumerate() {
        let off = (estimated - held).abs() / held;
        assert!(off <= ACTIVATIONS, "{name}, rank {rank}: {estimated} estimated, {held} held");
    }
    let off = (all - held).abs() / held;
    assert!(off <= ALL, "{name}: {all} estimated, {held} held");
}

fn gpt(dim: usize, layers: usize, vocab: usize, seq: usize, pipeline: &str) -> String {
    format!(
        "[model]\ndim = {dim}\nlayers = {layers}\nheads = 4\nvocab = {vocab}\n\
         [data]\nTEXT\nseq = {seq}\n[pipeline]\n{pipeline}\n"
    )
}

#[test]
fn memory_of_a_gpt_is_what_was_estimated_for_several_shapes_and_schedules() {
    let _alone = alone();
    let small = "micro_batches = 4\nmicro_batch_size = 2";
    let wide = "stages = 2\nmicro_batches = 4\nmicro_batch_size = 8\nschedule = 'gpipe'";
    for (name, config) in [
        ("one rank", gpt(128, 2, 256, 64, &format!("stages = 1\n{small}"))),
        ("1f1b", gpt(64, 4, 256, 64, &format!("stages = 4\n{small}"))),
        ("gpipe, many rows", gpt(64, 2, 256, 128, wide)),
        ("zb-h1", gpt(96, 3, 300, 64, &format!("stages = 2\nschedule = 'zb-h1'\n{small}"))),
        ("a large vocabulary", gpt(64, 2, 5000, 64, &format!("stages = 2\n{small}"))),
        (
            "interleaved",
            gpt(64, 4, 256, 64, &format!("stages = 4\nchunks = 2\nschedule = 'interleaved-1f1b'\n{small}")),
        ),
        ("full", gpt(64, 4, 256, 64, &format!("stages = 2\nrecompute = 'full'\n{small}"))),
        ("selective", gpt(64, 4, 256, 64, &format!("stages = 2\nrecompute = 'selective'\n{small}"))),
    ] {
        holds(name, &config);
    }
}

#[test]
fn memory_of_a_llama_and_its_kin_is_what_was_estimated() {
    let _alone = alone();
    let grouped = |kind: &str, keys: &str| {
        format!(
            "[model]\nkind = '{kind}'\ndim = 128\nlayers = 4\nheads = 8\nkv_heads = 2\nhead_width = 32\n\
             ffn = 320\nvocab = 256\n{keys}[data]\nTEXT\nseq = 64\n\
             [pipeline]\nstages = 2\nmicro_batches = 4\nmicro_batch_size = 2\n"
        )
    };
    for (name, config) in [
        ("llama", grouped("llama", "tied = true\n")),
        ("mistral, zb-h1", grouped("mistral", "window = 24\n") + "schedule = 'zb-h1'"),
        ("qwen2, bf16", grouped("qwen2", "") + "dtype = 'bf16'"),
        ("qwen3", grouped("qwen3", "")),
        ("selective", grouped("qwen3", "") + "recompute = 'selective'"),
        ("full", grouped("llama", "") + "recompute = 'full'"),
        ("a large vocabulary", grouped("llama", "").replace("256", "5000")),
    ] {
        holds(name, &config);
    }
}

#[test]
fn memory_in_bf16_is_what_was_estimated() {
    let _alone = alone();
    let small = "micro_batches = 4\nmicro_batch_size = 2\ndtype = 'bf16'\nstages = 2";
    for recompute in ["none", "cheap", "selective", "full"] {
        let config = gpt(128, 4, 256, 64, &format!("{small}\nrecompute = '{recompute}'"));
        holds(recompute, &config);
    }
    let wide = "stages = 2\nmicro_batches = 4\nmicro_batch_size = 8\ndtype = 'bf16'";
    holds("many rows", &gpt(64, 2, 256, 128, wide));
    let model = "[model]\nkind = 'mlp'\nsizes = '784,512,256,10'\n[data]\nIMAGES\n[pipeline]\n";
    holds("perceptron", &format!("{model}{wide}\n"));
}

#[test]
fn memory_of_a_mixture_of_experts_is_what_was_estimated() {
    let _alone = alone();
    let model = "[model]\nkind = 'mixtral'\ndim = 96\nlayers = 2\nffn = 160\nexperts = 4\n";
    let rest = "[data]\nTEXT\nseq = 64\n[pipeline]\nmicro_batches = 4\nmicro_batch_size = 2\n";
    for pipeline in ["stages = 2", "stages = 2\ndtype = 'bf16'", "stages = 1\nrecompute = 'selective'"] {
        holds(pipeline, &format!("{model}{rest}{pipeline}\n"));
    }
}

#[test]
fn memory_of_a_perceptron_is_what_was_estimated() {
    let _alone = alone();
    let model = "[model]\nkind = 'mlp'\nsizes = '784,512,256,10'\n[data]\nIMAGES\n[pipeline]\n";
    for (name, pipeline, rest) in [
        ("adamw", "stages = 2\nmicro_batches = 4\nmicro_batch_size = 8", ""),
        ("sgd", "stages = 1\nmicro_batches = 2\nmicro_batch_size = 32", "[optimizer]\nkind = 'sgd'"),
    ] {
        holds(name, &format!("{model}{pipeline}\n{rest}\n"));
    }
}

#[test]
fn memory_without_a_barrier_is_what_was_estimated() {
    let _alone = alone();
    let pipeline = "stages = 2\nmicro_batches = 4\nmicro_batch_size = 2\nbarrier = false";
    holds("adamw", &gpt(128, 4, 256, 64, &format!("{pipeline}\n[optimizer]\nclip = 0.0")));
    holds("8 bits", &gpt(128, 4, 256, 64, &format!("{pipeline}\n[optimizer]\nclip = 0.0\nstate = '8bit'")));
    holds(
        "adapters",
        &gpt(128, 4, 256, 64, &format!("{pipeline}\n[optimizer]\nclip = 0.0\n[lora]\nrank = 4")),
    );
    let sharded = format!("{pipeline}\nreplicas = 2\n[optimizer]\nclip = 0.0\nsharded = true");
    holds("sharded with", &gpt(128, 4, 256, 64, &sharded.replace("barrier = false", "barrier = true")));
    holds("sharded", &gpt(128, 4, 256, 64, &sharded));
}

/// Of eight stages a rank, two have whole gradients at a time, and each keeps what the replica owns.
#[test]
fn memory_that_stages_use_for_their_gradients_one_after_the_other_is_what_was_estimated() {
    let _alone = alone();
    for (ranks, replicas, groups) in [(1, 2, 2), (1, 2, 8), (2, 2, 2), (1, 4, 4)] {
        let pipeline = format!(
            "stages = {}\nreplicas = {replicas}\nchunks = 8\nschedule = 'looped-bfs'\n\
             micro_batches = {}\nmicro_batch_size = 1\ngradient_groups = {groups}\n\
             [optimizer]\nsharded = true",
            8 * ranks,
            4 * replicas
        );
        let Trained { all: [estimated, _], most, .. } = trained(&gpt(256, 14, 256, 16, &pipeline));
        let name = format!("{ranks} ranks, {replicas} replicas, {groups} groups");
        println!("{name}: {estimated} estimated, {most} held at most");
        let off = (estimated - most).abs() / most;
        // If no memory were lent, it would be 5 % more with 2 replicas and 11 % more with 4.
        assert!(off <= 0.05, "{name}: {estimated} estimated, {most} held at most");
    }
}

#[test]
fn memory_with_the_gradient_of_each_sample_is_what_was_estimated() {
    let _alone = alone();
    let model = "[model]\nkind = 'mlp'\nsizes = '784,512,256,10'\n[data]\nIMAGES\n[pipeline]\n\
                 micro_batch_size = 1\n";
    for (name, pipeline) in [
        ("one stage", "stages = 1\nmicro_batches = 16"),
        ("two halves", "stages = 2\nmicro_batches = 12\nschedule = 'zb-h1'"),
        ("many groups", "stages = 2\nmicro_batches = 16\ngradient_groups = 16"),
        ("replicas", "stages = 2\nmicro_batches = 16\nreplicas = 2"),
    ] {
        let private = format!("{model}{pipeline}\n[privacy]\nclip = 1.0\nnoise = 0.0\n");
        holds(name, &private);
    }
}

#[test]
fn memory_of_networks_of_convolutions_is_what_was_estimated() {
    let _alone = alone();
    for (name, model) in [
        ("cnn", "kind = 'cnn'\nchannels = '16,32'"),
        ("resnet", "kind = 'resnet'\nblocks = '1,1,1'\nwidth = 16"),
    ] {
        for (schedule, recompute) in [("1f1b", "none"), ("zb-h1", "selective")] {
            holds(
                name,
                &format!(
                    "[model]\n{model}\n[data]\nIMAGES\n[pipeline]\nstages = 2\nmicro_batches = 4\n\
                     micro_batch_size = 8\nschedule = '{schedule}'\nrecompute = '{recompute}'\n"
                ),
            );
        }
    }
}

#[test]
fn memory_over_a_quantised_base_is_what_was_estimated() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("m.gguf");
    // Matrices of 16 bits, so that the folder's are of 32.
    fs::write(&file, gguf::quantised(&[1], true).bytes()).unwrap();
    let [plain, tokens] = ["plain", "tokens"].map(|name| folder.path().join(name));
    pipewright::pretrained::import(&file, &plain).unwrap();
    fs::write(&tokens, [7, 0].repeat(4000)).unwrap();
    for base in ["q4", "q8"] {
        for pipeline in ["stages = 1", "stages = 2\ndtype = 'bf16'", "stages = 1\nthreads_per_rank = 2"] {
            let config = format!(
                "[model]\npath = {plain:?}\nbase = '{base}'\n[lora]\nrank = 4\ntargets = ['h.*']\n\
                 [data]\nkind = 'tokens'\npath = {tokens:?}\nseq = 64\n\
                 [pipeline]\nmicro_batches = 4\nmicro_batch_size = 2\n{pipeline}\n"
            );
            holds(&format!("{base}, {pipeline}"), &config);
        }
    }
}

#[test]
fn frozen_weights_are_in_no_snapshot() {
    let _alone = alone();
    let held = |restarts: u32| {
        let config = gpt(128, 4, 256, 16, "stages = 1\nmicro_batches = 2\nmicro_batch_size = 1");
        let config = format!("{config}[lora]\nrank = 2\n[train]\nrestarts = {restarts}\n");
        trained(&config).all[1]
    };
    let (without, with) = (held(0), held(3));
    // Twelve matrices in each of four blocks.
    let weights = (4 * 12 * 128 * 128 * size_of::<f32>()) as f64;
    assert!(with - without < 0.2 * weights, "{with} and {without} of {weights}");
}

#[test]
fn processes_hold_four_snapshots_of_each_rank() {
    let _alone = alone();
    let gpt =
        Gpt { vocab: 17, dim: 128, layers: 4, heads: 2, context: 8, dropout: 0.0, tied: false, seed: 1 };
    let held = |restarts: bool| {
        let since = Since::now();
        let first = Membership { replaces: restarts, ..worlds::place(2, worlds::free_address()) };
        let together = Barrier::new(2);
        let held = worlds::in_processes_like(&first, |world| {
            let recipe = recipe_of(move || gpt.model(), source("text"), 2);
            let schedule = Schedule::one_f_one_b(2, 2).unwrap();
            let mut builder = recipe.builder(schedule).world(world);
            if restarts {
                builder = builder.restarts(1, NonZeroU32::MIN);
            }
            let mut pipeline = builder.launch().unwrap();
            train(&mut pipeline, STEPS as u64);
            let numbers = pipeline.parameters().iter().map(|info| info.dims.iter().product::<usize>());
            let numbers: usize = numbers.sum();
            together.wait();
            let held = since.held();
            together.wait();
            (held as f64, numbers)
        });
        held[0]
    };
    let ((without, numbers), (with, _)) = (held(false), held(true));
    // AdamW keeps two numbers for each.
    let snapshots = (with - without) / (3 * numbers * size_of::<f32>()) as f64;
    assert!(snapshots > 2.0 && snapshots < 4.2, "{snapshots} snapshots");
}

/// Micro-batches of many shapes would each leave their memory behind.
#[test]
fn micro_batches_of_many_shapes_take_no_more_than_twice_the_memory_of_the_largest() {
    let _alone = alone();
    let gpt = |source: Arc<dyn DataSource>| {
        let gpt =
            Gpt { vocab: 31, dim: 32, layers: 2, heads: 2, context: 256, dropout: 0.0, tied: false, seed: 3 };
        let recipe = Recipe { data: source, ..gpt_recipe(gpt, 4, 4) };
        let since = Since::now();
        let mut pipeline = recipe.pipeline(2, "1f1b");
        let mut most = 0;
        for _ in 0..150 {
            pipeline.step().expect("a step");
            most = most.max(since.held());
        }
        most
    };
    let largest = RandomTokens { rows: 16, seq: 256, vocab: 31 };
    let [fixed, varied] = [Arc::new(largest) as Arc<dyn DataSource>, Arc::new(Varied(largest, 1))].map(gpt);
    println!("fixed {fixed}, varied {varied}");
    assert!(varied < 2 * fixed, "{varied} bytes, and {fixed} with the largest shape only");
}
