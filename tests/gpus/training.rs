//! The results of a step on a GPU.

use pipewright::stages::models::Gpt;

use super::*;
use crate::mixtral::recipe_of_mixtral;

pub(crate) const GPU: Device = Device::Cuda(0);

pub(crate) fn on(device: Device, dtype: DType) -> Place {
    Place { device, dtype }
}

/// A small perceptron with dropout and clipping.
fn perceptron() -> Recipe {
    let data = RandomRows { rows: 3, width: 10, classes: 5 };
    let model = || Mlp { sizes: vec![10, 9, 7, 5], dropout: 0.1, seed: 3 }.model();
    recipe_of(model, Arc::new(data), 4)
}

/// Reports of some steps, and the hash of the weights after them.
pub(crate) fn train(recipe: &Recipe, schedule: Schedule, places: Vec<Place>) -> (Vec<StepReport>, String) {
    let mut pipeline = recipe.builder(schedule).places(places).launch().expect("it starts");
    let reports = (0..4).map(|_| pipeline.step().expect("a step")).collect();
    (reports, pipeline.weights_hash().expect("a hash"))
}

pub(crate) fn assert_close(got: &[StepReport], expected: &[StepReport], within: f64) {
    for (got, expected) in got.iter().zip(expected) {
        let off = (got.loss - expected.loss).abs();
        assert!(off < within, "step {}: loss {} and {}", got.step, got.loss, expected.loss);
        let off = (got.grad_norm / expected.grad_norm - 1.0).abs();
        assert!(off < within, "step {}: norm {} and {}", got.step, got.grad_norm, expected.grad_norm);
    }
}

fn gpt(tied: bool) -> Recipe {
    recipe(2, tied, 4)
}

#[test]
fn a_perceptron_learns_on_a_gpu_what_it_learns_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = perceptron();
    let (expected, _) = train(&recipe, named("1f1b", 2, 4), vec![]);
    let (got, _) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
    assert_close(&got, &expected, 1e-5);
}

#[test]
fn a_gpt_learns_on_a_gpu_what_it_learns_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    for tied in [false, true] {
        let recipe = gpt(tied);
        let (expected, _) = train(&recipe, named("1f1b", 2, 4), vec![]);
        let (got, _) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
        assert_close(&got, &expected, 1e-4);
        let (got, _) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::Bf16)]);
        assert_close(&got, &expected, 5e-2);
    }
}

#[test]
fn heads_that_have_fused_attention_learn_the_same() {
    if emulator::start().is_none() {
        return;
    }
    let gpt =
        Gpt { vocab: 17, dim: 128, layers: 1, heads: 2, context: 20, dropout: 0.0, tied: false, seed: 3 };
    let recipe = gpt_recipe(gpt, 2, 4);
    let (expected, _) = train(&recipe, named("1f1b", 2, 4), vec![]);
    let (got, _) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::Bf16)]);
    assert_close(&got, &expected, 5e-2);
}

#[test]
fn a_gpu_gives_the_same_bits_for_any_stages_and_schedule() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let recipe = gpt(true);
        let (_, expected) = train(&recipe, named("1f1b", 1, 4), vec![on(GPU, dtype)]);
        for (schedule, ranks) in
            [("gpipe", 2), ("1f1b", 3), ("zb-h1", 2), ("zb-v", 2), ("interleaved-1f1b", 2)]
        {
            let (_, got) = train(&recipe, named(schedule, ranks, 4), vec![on(GPU, dtype)]);
            assert_eq!(got, expected, "{schedule}, {ranks} ranks, {dtype}");
        }
    }
}

#[test]
fn a_mixture_of_experts_learns_on_a_gpu_what_it_learns_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = recipe_of_mixtral(1, 4);
    let (expected, _) = train(&recipe, named("1f1b", 2, 4), vec![]);
    for (dtype, within) in [(DType::F32, 1e-4), (DType::Bf16, 5e-2)] {
        let (got, hash) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, dtype)]);
        assert_close(&got, &expected, within);
        for (schedule, ranks) in [("gpipe", 1), ("zb-h1", 3)] {
            let (_, again) = train(&recipe, named(schedule, ranks, 4), vec![on(GPU, dtype)]);
            assert_eq!(again, hash, "{schedule}, {ranks} ranks, {dtype}");
        }
    }
}

/// Both replicas, and both ranks of each, share a GPU. Experts without tokens have a part in every sum.
#[test]
fn experts_of_replicas_on_gpus_have_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    let mut recipe = recipe_of_mixtral(1, 4);
    let (_, expected) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
    recipe.replicas = 2;
    let (_, got) = train(&recipe, named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
    assert_eq!(got, expected);
}

#[test]
fn ranks_on_different_devices_train_together() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = gpt(true);
    let (expected, _) = train(&recipe, named("1f1b", 3, 4), vec![]);
    let (cpu, gpu) = (Place::default(), on(GPU, DType::F32));
    let mut all = vec![vec![gpu, cpu, gpu], vec![cpu, gpu, cpu]];
    if devices::probe().gpus.expect("there is one").len() > 1 {
        let other = on(Device::Cuda(1), DType::F32);
        all.extend([vec![gpu, other, cpu], vec![other, gpu, other]]);
    }
    for places in all {
        let (got, _) = train(&recipe, named("1f1b", 3, 4), places);
        assert_close(&got, &expected, 1e-4);
    }
}

#[test]
fn a_run_on_gpus_goes_on_from_its_checkpoint_bit_for_bit_and_on_the_cpu_too() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = gpt(true);
    let folder = tempfile::tempdir().expect("a folder");
    let place = vec![on(GPU, DType::Bf16)];
    let launch = |places: &Vec<Place>, ranks| {
        let builder = recipe.builder(named("1f1b", ranks, 4));
        builder.places(places.clone()).launch().expect("it starts")
    };
    let mut whole = launch(&place, 2);
    (0..2).for_each(|_| drop(whole.step().expect("a step")));
    whole.save(folder.path().join("two")).expect("it is saved");
    whole.save_beside(folder.path().join("beside")).expect("it is copied");
    let next = whole.step().expect("a step");
    whole.wait_until_saved().expect("it is written");
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let [two, beside] = ["two", "beside"].map(|name| {
            let path = folder.path().join(name).join(file);
            std::fs::read(path).expect("it is there")
        });
        assert!(two == beside, "{file}: copied before the step");
    }
    let mut again = launch(&place, 1);
    again.load(folder.path().join("two")).expect("it is loaded");
    assert_eq!(again.step().expect("a step").loss, next.loss);
    assert_eq!(again.weights_hash().expect("a hash"), whole.weights_hash().expect("a hash"));
    let mut on_cpu = launch(&vec![], 2);
    on_cpu.load(folder.path().join("two")).expect("it is loaded");
    assert_close(&[on_cpu.step().expect("a step")], &[next], 5e-2);
}

#[test]
fn a_steps_times_and_trace_are_those_of_the_device() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = gpt(false);
    let builder = recipe.builder(named("1f1b", 2, 4));
    let mut pipeline = builder.places(vec![on(GPU, DType::F32)]).launch().expect("it starts");
    let (report, timeline) = pipeline.step_traced().expect("a step");
    for (rank, passes) in report.ranks.iter().zip(&timeline.ranks) {
        let sum: f64 = passes.iter().map(|pass| pass.end - pass.start).sum();
        assert!((rank.busy - sum).abs() < 1e-3, "busy {} and {sum} in passes", rank.busy);
        assert!(passes.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-6), "in order");
        assert!(passes.iter().all(|pass| pass.start <= pass.end));
    }
    assert_eq!(timeline.transfers.len(), 8);
}

/// The stages are a linear layer, a ReLU alone, and the rest. The second stage changes the first one's output
/// in place, keeps it, and sends it on. So three ranks use one block of memory.
#[test]
fn memory_that_three_ranks_use_is_used_again_when_the_last_is_done() {
    if emulator::start().is_none() {
        return;
    }
    let linear = |name: &'static str, sizes| {
        let init = Init::Uniform(0.3);
        let layer = move || Linear::new(name, sizes, init, 5).with_layout(Layout::InOut);
        LayerSpec::of(name, 1.0, layer)
    };
    let data = RandomRows { rows: 3, width: 10, classes: 5 };
    let model = move || {
        Ok(Model::new(vec![
            linear("first", [10, 12]),
            LayerSpec::of("relu", 1.0, || Relu::new("relu")),
            linear("last", [12, 5]),
        ]))
    };
    let recipe = recipe_of(model, Arc::new(data), 8);
    for name in ["zb-h1", "1f1b", "gpipe"] {
        let schedule = || Schedule::named(name, 3, 8).expect("the sizes fit");
        let (expected, _) = train(&recipe, schedule(), vec![]);
        let (got, _) = train(&recipe, schedule(), vec![on(GPU, DType::F32)]);
        assert_close(&got, &expected, 1e-5);
    }
}
