//! Logits, gradients and loss curves are the same as in transformers.

use pipewright::pretrained::start_from;
use pipewright::stages::models::Rules;
use pipewright::stages::{Borders, Shape, Shard, Tensor, Training};

use super::*;
use crate::batches::Batches;

#[test]
fn logits_are_those_of_transformers() {
    for family in FAMILIES {
        let golden = Golden::read(family);
        let expected = golden.numbers("logits");
        let (_, mut builders) = stages(&folder(family), 1, 1);
        let mut model = builders.remove(0).build().expect("its weights are read");
        let data = golden.batches();
        let mut logits = Vec::new();
        for micro_batch in 0..4 {
            let (input, _) = data.micro_batch(0, MicroBatch(micro_batch)).expect("recorded");
            let at = ForwardContext { step: 0, micro_batch, mode: Mode::Evaluate };
            let (output, _) = model.forward(at, input).expect("it computes");
            logits.extend_from_slice(output.f32());
        }
        assert_near(&logits, &expected, 1e-4, family);
    }
}

/// Micro-batches of a row each, with several documents.
struct Documents {
    batches: Arc<Batches>,
    starts: Vec<Vec<u32>>,
}

impl DataSource for Documents {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        self.batches.micro_batch(step, micro_batch)
    }

    fn documents(&self, _: u64, micro_batch: MicroBatch) -> pipewright::Result<Option<Tensor>> {
        let starts = self.starts[micro_batch.index()].clone();
        Ok(Some(Tensor::from_ids(&[1, starts.len()], starts)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.batches.shapes()
    }
}

#[test]
fn documents_apart_are_trained_as_by_transformers() {
    for family in FAMILIES {
        let golden = Golden::of_documents(family);
        let data = || Arc::new(Documents { batches: golden.batches(), starts: golden.starts() });
        for (ranks, shards) in [(1, 1), (3, 1), (2, 2)] {
            // Each shard has key and value heads.
            if family != "llama3" || shards == 1 {
                compare(family, &golden, data(), (ranks, shards));
            }
        }
        let (_, mut builders) = stages(&folder(family), 1, 1);
        let mut model = builders.remove(0).build().expect("its weights are read");
        let borders = Borders::default();
        model.keep_apart(&borders).expect("all layers can");
        let mut logits = Vec::new();
        for micro_batch in 0..4 {
            let data = data();
            let (input, _) = data.micro_batch(0, MicroBatch(micro_batch)).expect("recorded");
            let at = ForwardContext { step: 0, micro_batch, mode: Mode::Evaluate };
            let starts =
                data.documents(0, MicroBatch(micro_batch)).expect("recorded").expect("there are some");
            borders.set(at, starts).expect("they are right");
            logits.extend_from_slice(model.forward(at, input).expect("it computes").0.f32());
        }
        assert_near(&logits, &golden.numbers("logits"), 1e-5, family);
    }
}

/// Trains a family's model, and compares its losses and first gradients with those of transformers.
fn is_trained_alike(family: &str, ranks: u32, shards: u32) {
    let golden = Golden::read(family);
    compare(family, &golden, golden.batches(), (ranks, shards));
}

fn compare(family: &str, golden: &Golden, data: Arc<dyn DataSource>, (ranks, shards): (u32, u32)) {
    let expected = golden.numbers("losses");
    let what = format!("{family} in {ranks} stages of {shards} shards");
    let (architecture, stages) = stages(&folder(family), ranks, shards);
    let recorder = Recorder::default();
    let gradients = Arc::clone(&recorder.gradients);
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::named("1f1b", ranks, 4).expect("it fits"))
        .stages(stages)
        .shards(shards)
        .loss(CrossEntropy::default().with_shard_groups(shards).expect("a power of two"))
        .data(data)
        .optimizer(recorder)
        .learning_rate(LearningRate::Constant(3e-3))
        .pin(false)
        .launch()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let losses: Vec<f32> = expected.iter().map(|_| pipeline.step().expect("it trains").loss as f32).collect();
    assert_near(&losses, &expected, 1e-4, &what);
    let gradients = gradients.lock().expect("no rank has panicked");
    for mapped in architecture.table() {
        let mut rest = &gradients[&mapped.name][..];
        for part in mapped.parts {
            let (got, after) = rest.split_at(part.count());
            let theirs = golden.numbers(&format!("grad.{}", in_transformers(&part.name)));
            assert_near(got, &theirs, 1e-4, &format!("{what}: {}", part.name));
            rest = after;
        }
    }
}

#[test]
fn loss_curves_and_gradients_are_those_of_transformers_for_one_to_four_stages() {
    for family in FAMILIES {
        (1..=4).for_each(|ranks| is_trained_alike(family, ranks, 1));
    }
}

/// There are as many shards as key and value heads, at most.
#[test]
fn loss_curves_and_gradients_of_shards_are_those_of_transformers() {
    for family in ["llama", "padded", "mistral", "mixtral", "qwen2", "qwen3", "gpt2"] {
        (1..=2).for_each(|ranks| is_trained_alike(family, ranks, 2));
    }
    is_trained_alike("gpt2", 2, 4);
}

/// Frozen weights are lent, if they are in the file as they are used. Others are read.
#[test]
fn a_shard_has_its_part_of_each_tensor() {
    for (family, frozen) in
        FAMILIES.into_iter().filter(|name| *name != "llama3").flat_map(|name| [(name, false), (name, true)])
    {
        let architecture = read_config(&folder(family)).expect("a known model");
        let weights = Arc::new(Weights::open(&folder(family), &architecture).expect("all tensors"));
        let rules = Rules::default().with_training(move |_| Training { frozen, ..Training::default() });
        let model = architecture.model().expect("possible sizes").with_rules(rules);
        let divided = model.with_shard_groups(2).and_then(|model| model.split(1));
        let mut stages = divided.expect("it can be divided");
        let builder = start_from(weights, None, stages.remove(0));
        let mut whole = builder.build().expect("it is read");
        for index in 0..2 {
            let mut shard = builder.build_shard(Shard { index, of: 2 }).expect("it is read");
            for (whole, own) in whole.parameters().into_iter().zip(shard.parameters()) {
                let mut expected = vec![0.0; own.value.len()];
                own.take_own(&whole.value, &mut expected);
                assert!(own.value[..] == expected[..], "{family}, shard {index}: {}", own.name());
            }
        }
    }
}

/// GPT-2's parameters have a prefix in a model with a head.
fn in_transformers(name: &str) -> String {
    let gpt2 = name.starts_with("h.") || name.starts_with("w") || name.starts_with("ln_f");
    if gpt2 { format!("transformer.{name}") } else { name.to_owned() }
}
