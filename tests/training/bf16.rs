//! Training in `bf16` on the CPU: the same bits however the model is cut, near to training in `f32`, with
//! half as much memory for activations.

use pipewright::StepReport;
use pipewright::fabric::WireFrame;
use pipewright::stages::recompute;

use super::*;
use crate::plain::{PlainLayer, PlainLoss};

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

/// A recipe in `bf16`.
fn half(recipe: Recipe) -> Recipe {
    Recipe { place: HALF, ..recipe }
}

/// Sizes that are no whole tiles, dropout and, if it is tied, one table on two stages.
fn gpt(tied: bool) -> Recipe {
    let gpt = Gpt { vocab: 43, dim: 40, layers: 2, heads: 2, context: 19, dropout: 0.1, tied, seed: 3 };
    gpt_recipe(gpt, 3, 4)
}

#[test]
fn weights_are_equal_for_any_stages_schedule_and_replicas() {
    for tied in [false, true] {
        let mut recipe = half(gpt(tied));
        let plain = recipe.plain_hash(3);
        for (ranks, schedule) in [(1, "gpipe"), (2, "1f1b"), (3, "zb-h1"), (2, "zb-v"), (5, "1f1b")] {
            for (replicas, sharded) in [(1, false), (2, false), (2, true)] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                let hash = recipe.hash(ranks, schedule, 3);
                assert_eq!(hash, plain, "{ranks} ranks, {schedule}, {replicas} replicas, tied: {tied}");
            }
        }
    }
}

#[test]
fn weights_are_equal_for_any_number_of_threads() {
    let mut recipe = half(odd_mlp());
    let plain = recipe.plain_hash(2);
    for threads in [2, 3, 5] {
        recipe.threads_per_rank = threads;
        for ranks in [1, 2] {
            assert_eq!(recipe.hash(ranks, "1f1b", 2), plain, "{threads} threads, {ranks} ranks");
        }
    }
}

#[test]
fn recomputing_changes_no_bit() {
    let recipe = half(gpt(true));
    let plain = recipe.plain_hash(2);
    for how in [Recompute::Selective, Recompute::Full] {
        let builder = recipe.builder_of(named("1f1b", 2, 4), |stage| recompute(stage, how));
        let mut pipeline = builder.launch().expect("it starts");
        assert_eq!(trained(&mut pipeline, 2), plain, "{how:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn any_small_gpt_trains_to_the_same_bits(
        (layers, heads, width) in (1_usize..4, 1_usize..4, prop::sample::select(vec![3, 4, 8, 16, 20])),
        (vocab, context, rows) in (5_usize..50, 1_usize..40, 1_usize..4),
        stages in 1_u32..5,
        micro_batches in 1_u32..7,
        tied: bool,
    ) {
        let gpt = Gpt { vocab, dim: heads * width, layers, heads, context, dropout: 0.1, tied, seed: 3 };
        let recipe = half(gpt_recipe(gpt, rows, micro_batches));
        prop_assert_eq!(recipe.hash(stages, "1f1b", 2), recipe.plain_hash(2));
    }
}

/// The reports of some steps on two ranks.
fn train(recipe: &Recipe, places: Vec<Place>, steps: usize) -> Vec<StepReport> {
    let builder = recipe.builder(named("1f1b", 2, recipe.micro_batches)).places(places);
    let mut pipeline = builder.launch().expect("it starts");
    (0..steps).map(|_| pipeline.step().expect("a step")).collect()
}

#[test]
fn losses_are_those_of_f32_within_a_percent() {
    let tokens = RandomTokens { rows: 3, seq: 19, vocab: 43 };
    let recipe = Recipe {
        data: same_batch(Arc::new(tokens)),
        learning_rate: LearningRate::Constant(1e-3),
        ..gpt(false)
    };
    let [whole, half] = [Place::default(), HALF].map(|place| train(&recipe, vec![place], 20));
    for (whole, half) in whole.iter().zip(&half) {
        let off = half.loss / whole.loss - 1.0;
        assert!(off.abs() < 0.01, "step {}: {} and {}", half.step, half.loss, whole.loss);
        assert!(half.loss != whole.loss, "step {}: it computed in f32", half.step);
    }
    assert!(half[19].loss < 0.97 * half[0].loss, "{} at last", half[19].loss);
}

#[test]
fn activations_take_half_the_memory() {
    let peaks = |place| {
        let reports = train(&gpt(false), vec![place], 2);
        let ranks = &reports[1].ranks;
        ranks.iter().map(|rank| rank.peak_bytes as f64).collect::<Vec<_>>()
    };
    // Means and deviations of norms, and the sums of attention, stay in f32.
    for (half, whole) in peaks(HALF).into_iter().zip(peaks(Place::default())) {
        assert!((0.5..0.53).contains(&(half / whole)), "{half} of {whole}");
    }
}

/// The bytes that a whole GPT keeps of a micro-batch from forward to backward.
fn kept(gpt: &Gpt, rows: usize, place: Place) -> u64 {
    let data = RandomTokens { rows, seq: gpt.context, vocab: gpt.vocab as u32 };
    let (tokens, _) = data.micro_batch(0, MicroBatch(0)).expect("random tokens");
    let mut stage = gpt.model().and_then(|model| model.whole()).expect("a model");
    stage.move_to(place).expect("the CPU can");
    let input = stage.load(tokens).expect("tokens");
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    let (_, saved) = stage.forward(ctx, input).expect("a forward");
    pipewright::stages::Bytes::bytes(&saved)
}

#[test]
fn a_gpt_keeps_half_the_bytes() {
    for (layers, heads, width, rows) in [(2, 4, 16, 3), (1, 2, 40, 1), (4, 3, 24, 2)] {
        let gpt = Gpt {
            vocab: 43,
            dim: heads * width,
            layers,
            heads,
            context: 19,
            dropout: 0.1,
            tied: false,
            seed: 3,
        };
        let [whole, half] = [Place::default(), HALF].map(|place| kept(&gpt, rows, place));
        // Four bytes in both formats: ids, mean and deviation of each norm, a sum for each head.
        let tokens = (rows * gpt.context) as u64;
        let whole_numbers = tokens * (1 + 2 * (2 * layers as u64 + 1) + (layers * heads) as u64);
        assert_eq!(half, whole / 2 + 2 * whole_numbers, "{gpt:?}");
    }
}

#[test]
fn ranks_on_the_cpu_and_on_a_gpu_train_together() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = gpt(true);
    let gpu = Place { device: Device::Cuda(0), dtype: DType::Bf16 };
    let expected = train(&recipe, vec![HALF], 4);
    for places in [vec![gpu, HALF], vec![HALF, gpu]] {
        for (got, expected) in train(&recipe, places, 4).iter().zip(&expected) {
            let off = got.loss / expected.loss - 1.0;
            assert!(off.abs() < 0.01, "step {}: {} and {}", got.step, got.loss, expected.loss);
        }
    }
}

#[test]
fn a_wire_between_processes_has_two_bytes_a_number() {
    let wire = Tensor::from_vec(&[2, 3], vec![1.0, -2.5, 3.0, 0.1, f32::NAN, 1e30]).expect("six numbers");
    let wire = wire.to(HALF).expect("the CPU can").to_host().expect("it is there");
    let (mut description, mut numbers) = (Vec::new(), Vec::new());
    wire.describe(&mut description);
    wire.write(&mut numbers).expect("memory takes all");
    assert_eq!((wire.bytes(), numbers.len()), (12, 12));
    let read = |bytes| Tensor::read(&description, bytes, &mut numbers.as_slice());
    let back = read(12).expect("it was written");
    assert_eq!(back.place(), HALF);
    assert_eq!(back.as_bytes(), wire.as_bytes());
    assert!(read(24).is_err(), "the length is that of other numbers");
}

/// The refusal of a pipeline with this layer, in `bf16`.
fn refusal(layer: LayerSpec, loss: impl Loss<Tensor> + Clone) -> String {
    let data = RandomRows { rows: 2, width: 4, classes: 4 };
    let launched = Pipeline::builder()
        .schedule(named("1f1b", 1, 1))
        .stages(Model::new(vec![layer]).split(1).expect("a layer"))
        .loss(loss)
        .data(Arc::new(data))
        .places(vec![HALF])
        .pin(false)
        .launch();
    launched.expect_err("refused").to_string()
}

#[test]
fn layers_and_losses_of_ones_own_are_refused_where_they_cannot_read_the_numbers() {
    let told = refusal(LayerSpec::of("plain", 1.0, || PlainLayer), CrossEntropy::default());
    has(&told, &["plain: this layer computes in f32 only: set dtype to f32"]);
    let linear = || Linear::new("out", [4, 4], Init::Ones, 0);
    let told = refusal(LayerSpec::of("out", 1.0, linear), PlainLoss);
    has(&told, &["rank 0: the loss takes numbers of f32 only: "]);
}
