//! Networks of convolutions in a pipeline: weights and running means are the same as in the plain loop, bit
//! for bit.

use pipewright::stages::layers::{BatchNorm, GroupNorm};
use pipewright::stages::models::{Cnn, ResNet};
use pipewright::stages::{recompute, rng};

use super::*;

/// The models that are trained.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    ResNet,
    Cnn,
    /// Both norms beside each other; all but the running means is frozen in the first.
    Norms,
}

const ALL: [What; 3] = [What::ResNet, What::Cnn, What::Norms];
const IMAGE: [usize; 3] = [9, 7, 2];

impl What {
    fn model(self) -> pipewright::stages::Result<Model> {
        match self {
            Self::ResNet => {
                ResNet { image: IMAGE, blocks: vec![2, 1, 1], width: 4, classes: 3, seed: 5 }.model()
            }
            Self::Cnn => Cnn { image: IMAGE, channels: vec![5, 6], classes: 3, seed: 5 }.model(),
            Self::Norms => {
                let mut units = Self::Cnn.model()?.into_units();
                units.insert(1, LayerSpec::of("first", 1.0, || BatchNorm::new("first", 5, 1e-5)));
                units.insert(
                    2,
                    LayerSpec::new("groups", 1.0, || {
                        Ok(vec![Box::new(GroupNorm::new("groups", 5, 5, 1e-5)?)])
                    }),
                );
                units.insert(3, LayerSpec::of("last", 1.0, || BatchNorm::new("last", 5, 1e-5)));
                let frozen = |name: &str| Training {
                    frozen: name == "first.weight" || name == "first.bias",
                    ..Training::default()
                };
                Ok(Model::new(units).with_rules(Rules::default().with_training(frozen)))
            }
        }
    }

    fn recipe(self, micro_batches: u32) -> Recipe {
        let data = RandomRows { rows: 3, width: IMAGE.iter().product(), classes: 3 };
        recipe_of(move || self.model(), Arc::new(data), micro_batches)
    }

    fn units(self) -> u32 {
        self.model().expect("the sizes fit").names().len() as u32
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_and_cut_trains_to_the_bits_of_the_plain_loop(
        what in prop::sample::select(ALL.to_vec()),
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1_u32..6,
        micro_batches in 1_u32..7,
    ) {
        let chunks = *Schedule::chunks(name).expect("it has a name").start();
        let ranks = ranks.min(what.units() / chunks).max(1);
        prop_assume!(ranks * chunks <= what.units());
        let schedule = Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default());
        let recipe = what.recipe(micro_batches);
        prop_assert_eq!(recipe.hash_on(schedule.expect("sizes"), 2), recipe.plain_hash(2));
    }
}

#[test]
fn replicas_sharded_optimizers_servers_and_threads_change_no_bit() {
    for what in ALL {
        let plain = Recipe { gradient_groups: 4, ..what.recipe(6) }.plain_hash(3);
        for (replicas, sharded, sync, threads_per_rank) in [
            (1, false, SyncMode::Reduce, 2),
            (2, false, SyncMode::Reduce, 1),
            (2, true, SyncMode::Reduce, 1),
            (3, true, SyncMode::Reduce, 1),
            (2, false, SyncMode::Server { max_staleness: 0 }, 1),
        ] {
            let several =
                Recipe { gradient_groups: 4, replicas, sharded, sync, threads_per_rank, ..what.recipe(6) };
            assert_eq!(
                several.hash(2, "1f1b", 3),
                plain,
                "{what:?}, {replicas} replicas, sharded: {sharded}, {sync:?}, {threads_per_rank} threads"
            );
        }
    }
}

#[test]
fn recomputing_changes_no_bit() {
    for what in ALL {
        let recipe = what.recipe(3);
        for how in [Recompute::Selective, Recompute::Full] {
            let builder = recipe.builder_of(named("1f1b", 2, 3), |stage| recompute(stage, how));
            let mut pipeline = builder.launch().unwrap();
            assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(2), "{what:?}, {how:?}");
        }
    }
}

#[test]
fn losses_and_norms_are_those_of_the_plain_loop() {
    let recipe = What::ResNet.recipe(3);
    let mut plain = recipe.plain();
    let mut pipeline = recipe.pipeline(3, "1f1b");
    for step in 0..3 {
        let expected = plain.step(recipe.data.as_ref(), step, 3, &mut CrossEntropy::default());
        let report = pipeline.step().unwrap();
        assert_eq!((report.loss, report.grad_norm), expected, "step {step}");
    }
    for parameter in plain.stage.parameters() {
        let start = if parameter.name().ends_with("running_var") { 1.0 } else { 0.0 };
        if parameter.running_share().is_some() {
            assert!(parameter.value.iter().all(|&x| x != start), "{}", parameter.name());
        }
    }
}

#[test]
fn a_checkpoint_has_the_running_means_and_evaluates_alike_for_any_cut() {
    let folder = tempfile::tempdir().unwrap();
    for what in [What::ResNet, What::Norms] {
        let recipe = what.recipe(4);
        let mut pipeline = recipe.pipeline(4, "zb-h1");
        train(&mut pipeline, 2);
        let place = folder.path().join(format!("{what:?}"));
        pipeline.save(&place).unwrap();
        let evaluation = pipeline.evaluate(Arc::clone(&recipe.data), 3).unwrap().loss;
        for (stages, replicas) in [(1, 1), (2, 2), (3, 1)] {
            let other = Recipe { replicas, sharded: replicas > 1, ..what.recipe(4) };
            let mut resumed = other.pipeline(stages, "1f1b");
            resumed.load(&place).unwrap();
            let again = resumed.evaluate(Arc::clone(&recipe.data), 3).unwrap().loss;
            assert_eq!(again, evaluation, "{what:?}, {stages} stages");
            assert_eq!(trained(&mut resumed, 2), recipe.plain_hash(4), "{what:?}, {stages} stages");
        }
    }
}

/// Bars in noise: of class 0 along a line, of class 1 along a column.
struct Bars;

const BAR_SIDE: usize = 8;
const BAR_ROWS: usize = 16;

impl DataSource for Bars {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let draw = |row: usize, at: usize| {
            rng::philox([3, 3], [step as u32, micro_batch.0, row as u32, at as u32])[0]
        };
        let pixel = |row: usize, at: usize| {
            let (class, place) = (draw(row, 1000) % 2, draw(row, 1001) as usize % BAR_SIDE);
            let is_bar = place == if class == 0 { at / BAR_SIDE } else { at % BAR_SIDE };
            2.0 * (rng::unit(draw(row, at)) - 0.5) + if is_bar { 1.5 } else { 0.0 }
        };
        let pixels = (0..BAR_ROWS).flat_map(|row| (0..BAR_SIDE * BAR_SIDE).map(move |at| pixel(row, at)));
        let classes = (0..BAR_ROWS).map(|row| draw(row, 1000) % 2);
        Ok((
            Tensor::from_vec(&[BAR_ROWS, BAR_SIDE, BAR_SIDE], pixels.collect())?,
            Tensor::from_ids(&[BAR_ROWS], classes.collect())?,
        ))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[BAR_ROWS, BAR_SIDE, BAR_SIDE]), Shape::ids(&[BAR_ROWS]))
    }
}

#[test]
fn networks_learn_what_they_have_not_seen_and_running_means_evaluate_it() {
    let image = [BAR_SIDE, BAR_SIDE, 1];
    let (classes, seed) = (2, 1);
    let resnet = ResNet { image, blocks: vec![1, 1], width: 8, classes, seed };
    let cnn = Cnn { image, channels: vec![8, 8], classes, seed };
    let recipes = [
        recipe_of(move || resnet.model(), Arc::new(Bars), 4),
        recipe_of(move || cnn.model(), Arc::new(Bars), 4),
    ];
    for recipe in recipes {
        let recipe = Recipe { learning_rate: LearningRate::Constant(0.01), ..recipe };
        let mut pipeline = recipe.pipeline(2, "1f1b");
        train(&mut pipeline, 60);
        // Others than training has: the bars of later steps.
        let others = changed(Arc::new(Bars), |bars, step, at| bars.micro_batch(step + 1_000_000, at));
        let evaluation = pipeline.evaluate(others, 8).unwrap();
        assert!(evaluation.metrics.get("accuracy").unwrap() > 0.95, "{evaluation:?}");
    }
}

/// Why a config is refused.
fn refusal(text: &str) -> String {
    Config::parse("my.toml", text, &[], &[]).unwrap_err().to_string()
}

#[test]
fn what_convolutions_cannot_do_is_refused_with_the_key() {
    let images = "[data]\nkind = 'idx'\npath = 'images'\n[model]\n";
    for (keys, expected) in [
        (
            "kind = 'cnn'\nimage = '28,28'",
            "my.toml:6: model.image: give height, width and channels, such as \"28,28,1\"",
        ),
        ("kind = 'resnet'\nclasses = 0", "my.toml:6: model.classes: is 0"),
        (
            "kind = 'resnet'\nblocks = '1,1,1,1,1,1,1,1,1,1,1,1,1'",
            "my.toml:6: model.blocks: 13 is too large: at most 12 groups",
        ),
        ("kind = 'cnn'\nblocks = '2,2'", "my.toml:6: model.blocks"),
        ("kind = 'resnet'\nsizes = '2,2'", "my.toml:6: model.sizes"),
    ] {
        has(&refusal(&format!("{images}{keys}")), &[expected]);
    }
    let said = refusal("[model]\nkind = 'resnet'\n");
    has(&said, &["a model of kind \"resnet\" takes images: set data.kind to \"idx\" or \"cifar10\""]);
}

#[test]
fn sizes_that_make_no_model_are_refused() {
    let refused = |keys: &str| {
        let text = format!("[data]\nkind = 'idx'\npath = 'images'\n[model]\n{keys}");
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        pipewright_cli::compose::model(&config).unwrap_err().to_string()
    };
    assert_eq!(
        refused("kind = 'cnn'\nchannels = '4,4,4,4,4'"),
        "model: images of 28 x 28 cannot be halved 5 times: choose fewer convolutions or larger images"
    );
    assert_eq!(
        refused("kind = 'resnet'\nblocks = '2,0'"),
        "model: blocks [2, 0]: give 1 to 12 groups at least one block each, such as 2,2,2,2"
    );
}
