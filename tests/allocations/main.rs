//! A steady training step allocates nothing on the threads that do the work: the threads of the ranks and of
//! the data loader. The thread that asks for the step makes messages and a report, but no more for more
//! micro-batches or layers. Also tested: what layers keep takes as much memory as is counted for it, and a
//! damaged file takes little.

#[path = "../common/alone.rs"]
mod alone;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/composed.rs"]
mod composed;
mod counting;
mod damaged;
#[path = "../common/folders.rs"]
mod folders;
#[path = "../common/gguf.rs"]
mod gguf;
#[path = "../common/has.rs"]
mod has;
mod memory;
#[path = "../common/mixtral.rs"]
mod mixtral;
#[path = "../common/worlds.rs"]
mod worlds;

use std::ops::Range;
use std::sync::Arc;
use std::{fs, thread};

use alone::alone;
use common::*;
use composed::recipe_of_blocks;
use counting::{allocations, live_bytes, started};
use has::has;
use mixtral::recipe_of_mixtral;
use pipewright::Pipeline;
use pipewright::data::{
    self, Corpus, DataSource, Documents, Form, Images, LabelledImages, Pairs, Reference, Width, Windows,
};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{AnyLoss, Preference};
use pipewright::stages::models::{Cnn, Gpt, Mlp, ResNet};
use pipewright::stages::{
    Bytes, DType, Device, ForwardContext, Mode, Place, Recompute, Stage, Tensor, devices, recompute,
};
use pipewright::tokenizer::Tokenizer;
use tempfile::TempDir;

/// This many steps in a row must be steady. The number of buffers in use depends on which rank is faster, so
/// it reaches its maximum only after some steps.
const STEADY: usize = 40;
const PATIENCE: usize = 2000;

/// Windows of text or of tokens in a file, or images, for a model of 17 tokens or 10 classes.
fn source(kind: &str) -> Arc<dyn DataSource> {
    let folder = TempDir::new().expect("a folder");
    let path = |name| folder.path().join(name);
    let bytes: Vec<u8> = (0..1000_u32).map(|index| (index % 17) as u8).collect();
    let words: Vec<u8> = bytes.iter().flat_map(|&byte| [byte, 0]).collect();
    let pixels = [&[0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 0, 5, 0, 0, 0, 5], &bytes[..]].concat();
    let labels = [&[0, 0, 8, 1, 0, 0, 0, 40], &[3; 40][..]].concat();
    // Of bytes below 17, only white space is text.
    let text: Vec<u8> = (0..1000).map(|index| [b'\t', b'\n'][index % 2]).collect();
    for (name, bytes) in [("text", &text), ("tokens", &words), ("images", &pixels), ("labels", &labels)] {
        fs::write(path(name), bytes).expect("written");
    }
    let windows = |corpus: pipewright::Result<Corpus>| {
        let [rows, seq] = if kind == "long text" { [8, 64] } else { [2, 8] };
        let source = Windows::drawn(Arc::new(corpus.expect("tokens")), 0..1000, rows, seq, 1);
        Arc::new(source.expect("long enough"))
    };
    match kind {
        "text" | "long text" => windows(Corpus::text(&[path("text")])),
        "tokens" => windows(Corpus::tokens(&[path("tokens")], Width::U16)),
        _ => {
            let all = LabelledImages::read(&path("images"), Some(&path("labels"))).expect("a pair");
            Arc::new(Images::shuffled(Arc::new(all), 0..40, 2, 8, 1).expect("images"))
        }
    }
}

/// A GPT with dropout, tied weights, clipping and AdamW.
fn gpt(layers: usize, micro_batches: u32) -> Recipe {
    Recipe { data: source("text"), ..recipe(layers, true, micro_batches) }
}

/// Pairs of answers of at most `seq` tokens, in rows of different lengths, for a model of 512 tokens.
fn pairs(rows: usize, seq: usize) -> Arc<dyn DataSource> {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("pairs.jsonl");
    let line = |number: usize| {
        let (prompt, answer) = ("one ".repeat(1 + number % 5), " two".repeat(1 + 7 * number));
        format!("{{\"prompt\": \"{prompt}\", \"chosen\": \"{answer}\", \"rejected\": \" no\"}}\n")
    };
    fs::write(&file, (0..24).map(line).collect::<String>()).expect("written");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tokenizer/tokenizer.json");
    let tokenizer = Tokenizer::read(path.as_ref()).expect("it is kept");
    let recipe = data::Recipe { pairs: true, ..data::Recipe::new(Form::Jsonl) };
    let documents = Documents::encode(&[file], &tokenizer, &recipe, folder.path(), &mut |_| ());
    let reference = Reference::none(Arc::new(documents.expect("pairs")), seq).expect("they are pairs");
    Arc::new(Pairs::shuffled(Arc::new(reference), 0..24, rows, 4, 1).expect("even"))
}

fn launch(
    recipe: &Recipe,
    loss: AnyLoss,
    schedule: Schedule,
    how: Recompute,
    place: Place,
) -> Pipeline<impl Stage> {
    let stages = recipe.model().split(schedule.stages()).expect("enough layers");
    let stages = stages.into_iter().map(|stage| recompute(stage, how)).collect();
    let builder = Pipeline::builder().schedule(schedule).stages(stages).loss(loss);
    let builder = builder.data(Arc::clone(&recipe.data)).clip(0.5);
    let builder = builder.replicas(recipe.replicas).shards(recipe.shards).sharded(recipe.sharded);
    let builder = builder.threads_per_rank(recipe.threads_per_rank).pin(false);
    builder.places(vec![place]).launch().expect("it starts")
}

/// Trains until [`STEADY`] steps in a row allocate nothing on the pipeline's own threads. Returns the most
/// allocations of the calling thread in one of these steps.
fn steady(recipe: &Recipe, schedule: Schedule, how: Recompute) -> u64 {
    steady_on(recipe, schedule, how, Place::default())
}

/// Like [`steady`], with the stages in a place.
fn steady_on(recipe: &Recipe, schedule: Schedule, how: Recompute, place: Place) -> u64 {
    steady_with(recipe, AnyLoss::new(recipe.loss()), schedule, how, place)
}

/// Like [`steady_on`], with this loss.
fn steady_with(recipe: &Recipe, loss: AnyLoss, schedule: Schedule, how: Recompute, place: Place) -> u64 {
    let what = format!("{} x {}, {how:?}", schedule.name(), schedule.micro_batches());
    let first = started();
    let mut pipeline = launch(recipe, loss, schedule, how, place);
    pipeline.step().expect("the step succeeds");
    let own = || allocations(first..started());
    let caller = counting::thread()..counting::thread() + 1;
    let mut last_most = 0;
    let mut in_a_row = 0;
    for _ in 0..PATIENCE {
        let before = [own(), allocations(caller.clone())];
        pipeline.step().expect("the step succeeds");
        let asked = allocations(caller.clone()) - before[1];
        if own() == before[0] {
            in_a_row += 1;
            last_most = asked.max(last_most);
        } else {
            (in_a_row, last_most) = (0, 0);
        }
        if in_a_row == STEADY {
            return last_most;
        }
    }
    panic!("{what}: still allocating after {PATIENCE} steps");
}

#[test]
fn the_pipelines_threads_allocate_nothing() {
    let _alone = alone();
    for name in ["gpipe", "1f1b", "interleaved-1f1b", "zb-2p"] {
        for (how, micro_batches) in [(Recompute::None, 8), (Recompute::Cheap, 40), (Recompute::Full, 8)] {
            steady(&gpt(6, micro_batches), named(name, 2, micro_batches), how);
        }
    }
    let schedule = || named("1f1b", 4, 8);
    steady(&gpt(6, 8), schedule(), Recompute::Selective);
    let tokens = Recipe { data: source("tokens"), ..gpt(2, 8) };
    steady(&tokens, schedule(), Recompute::default());
    let sizes = vec![25, 16, 16, 10];
    let mlp = Mlp { sizes, dropout: 0.1, seed: 1 };
    steady(&recipe_of(move || mlp.model(), source("images"), 8), schedule(), Recompute::default());
}

#[test]
fn a_ranks_other_threads_allocate_nothing() {
    let _alone = alone();
    let gpt =
        Gpt { vocab: 17, dim: 96, layers: 2, heads: 4, context: 64, dropout: 0.1, tied: false, seed: 1 };
    let recipe = Recipe { threads_per_rank: 2, ..recipe_of(move || gpt.model(), source("long text"), 4) };
    steady(&recipe, named("1f1b", 2, 4), Recompute::Selective);
}

#[test]
fn a_step_of_replicas_allocates_nothing() {
    let _alone = alone();
    for sharded in [false, true] {
        let mut recipe = gpt(2, 8);
        (recipe.replicas, recipe.sharded) = (2, sharded);
        steady(&recipe, named("1f1b", 1, 8), Recompute::default());
    }
}

#[test]
fn documents_that_are_kept_apart_allocate_nothing() {
    let _alone = alone();
    let recipe = gpt(2, 8);
    let recipe = Recipe { data: Arc::new(Apart(Arc::clone(&recipe.data))), ..recipe };
    for how in Recompute::ALL {
        steady(&recipe, named("1f1b", 2, 8), how);
    }
}

#[test]
fn pairs_of_answers_allocate_nothing() {
    let _alone = alone();
    let gpt =
        Gpt { vocab: 512, dim: 8, layers: 2, heads: 2, context: 128, dropout: 0.0, tied: false, seed: 1 };
    // In the second case the head goes by rows.
    for (rows, seq) in [(2, 16), (8, 128)] {
        let recipe = recipe_of(move || gpt.model(), pairs(rows, seq), 4);
        let loss = AnyLoss::new(Preference::dpo(0.1).expect("above 0"));
        steady_with(&recipe, loss, named("1f1b", 2, 4), Recompute::default(), Place::default());
    }
}

#[test]
fn a_step_of_shards_allocates_nothing() {
    let _alone = alone();
    for make in [|| gpt(2, 8), || Recipe { data: source("long text"), ..recipe_of_mixtral(8, 4) }] {
        let recipe: Recipe = Recipe { shards: 2, shard_groups: 2, ..make() };
        steady(&recipe, named("1f1b", 1, recipe.micro_batches), Recompute::default());
    }
}

#[test]
fn what_the_caller_allocates_does_not_grow() {
    let _alone = alone();
    let most = |name: &str, layers, micro_batches| {
        steady(&gpt(layers, micro_batches), named(name, 2, micro_batches), Recompute::default())
    };
    let smallest = most("1f1b", 2, 2);
    assert!(smallest <= 40, "{smallest} for two ranks");
    assert_eq!(most("1f1b", 2, 64), smallest);
    assert_eq!(most("1f1b", 12, 2), smallest);
    assert_eq!(most("interleaved-1f1b", 6, 8), smallest);
}

/// The bytes counted and the bytes allocated for what forward keeps of some micro-batches, on a thread whose
/// pool is empty.
fn kept_and_taken(how: Recompute) -> [f64; 2] {
    let gpt =
        Gpt { vocab: 64, dim: 64, layers: 2, heads: 4, context: 64, dropout: 0.1, tied: false, seed: 1 };
    let stages = gpt.model().and_then(|model| model.split(1));
    let mut stages = stages.expect("one stage").into_iter();
    let stage = stages.next().map(|build| recompute(build, how).build());
    let mut stage = stage.expect("one stage").expect("it is built");
    let mut forward = |micro_batch| {
        let mode = Mode::Train;
        let at = ForwardContext { step: 0, micro_batch, mode };
        let ids = Tensor::scratch_ids(&[4, 64]);
        stage.forward(at, ids).expect("forward").1
    };
    // From the second micro-batch on, what is not kept reuses buffers.
    let _first = forward(0);
    let before = live_bytes();
    let others: Vec<_> = (1..9).map(&mut forward).collect();
    let counted: f64 = others.iter().map(|kept| kept.bytes() as f64).sum();
    [counted, (live_bytes() - before) as f64]
}

#[test]
fn what_forward_keeps_takes_the_memory_that_is_counted() {
    let _alone = alone();
    for how in [Recompute::None, Recompute::Cheap, Recompute::Selective] {
        let run = thread::spawn(move || kept_and_taken(how));
        let [counted, taken] = run.join().expect("no panic");
        assert!(taken >= counted && taken < 1.02 * counted, "{how:?}: {taken} bytes for {counted}");
    }
}

#[test]
fn nor_do_ranks_in_bf16() {
    let _alone = alone();
    let place = Place { device: Device::Cpu, dtype: DType::Bf16 };
    for (name, ranks) in [("1f1b", 1), ("zb-2p", 2)] {
        steady_on(&gpt(1, 4), named(name, ranks, 4), Recompute::default(), place);
    }
}

/// How many tokens an expert gets is another number in each micro-batch.
#[test]
fn nor_do_experts() {
    let _alone = alone();
    let half = Place { device: Device::Cpu, dtype: DType::Bf16 };
    for (place, threads_per_rank) in [(Place::default(), 1), (half, 1), (Place::default(), 2)] {
        let recipe = Recipe { threads_per_rank, data: source("long text"), ..recipe_of_mixtral(8, 4) };
        steady_on(&recipe, named("zb-2p", 2, 4), Recompute::default(), place);
    }
}

#[test]
fn nor_do_composed_layers() {
    let _alone = alone();
    for (name, ranks) in [("1f1b", 1), ("zb-2p", 3)] {
        for how in [Recompute::None, Recompute::Cheap, Recompute::Selective] {
            let schedule = named(name, ranks, 4);
            let recipe = Recipe { data: source("images"), ..recipe_of_blocks(4) };
            steady(&recipe, schedule, how);
        }
    }
}

#[test]
fn nor_do_convolutions() {
    let _alone = alone();
    let resnet = ResNet { image: [5, 5, 1], blocks: vec![1, 1], width: 4, classes: 10, seed: 1 };
    let cnn = Cnn { image: [5, 5, 1], channels: vec![3, 4], classes: 10, seed: 1 };
    for how in [Recompute::None, Recompute::Cheap, Recompute::Selective] {
        let schedule = || named("zb-2p", 2, 4);
        let net = resnet.clone();
        steady(&recipe_of(move || net.model(), source("images"), 4), schedule(), how);
        let net = cnn.clone();
        steady(&recipe_of(move || net.model(), source("images"), 4), schedule(), how);
    }
}

#[test]
fn nor_do_ranks_on_a_gpu_here_or_there() {
    let _alone = alone();
    if emulator::start().is_none() {
        return;
    }
    let place = Place { device: Device::Cuda(0), dtype: DType::Bf16 };
    let free = || devices::probe().gpus.expect("there is one")[0].free;
    for (name, ranks) in [("1f1b", 1), ("zb-2p", 2)] {
        let recipe = gpt(1, 4);
        let schedule = || named(name, ranks, 4);
        steady_on(&recipe, schedule(), Recompute::Selective, place);
        let mut pipeline =
            launch(&recipe, AnyLoss::new(recipe.loss()), schedule(), Recompute::Selective, place);
        let mut in_a_row = 0;
        let mut before = None;
        for _ in 0..PATIENCE {
            pipeline.step().expect("the step succeeds");
            let now = free();
            in_a_row = if now == before { in_a_row + 1 } else { 0 };
            before = now;
            if in_a_row == STEADY {
                break;
            }
        }
        assert_eq!(in_a_row, STEADY, "{name}: still taking memory of the GPU");
    }
}
