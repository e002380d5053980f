//! Frozen parameters, adapters, and parameters that are trained in their own way, in a pipeline.

use pipewright::error::Error;
use pipewright::stages::recompute;

use super::*;

const FROZEN: Training = Training { frozen: true, rate: 1.0, weight_decay: None };

/// What is trained of a GPT.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// All but the tables and the first block: the first stages have nothing to do backward.
    LaterBlocks,
    /// Adapters, with dropout, and nothing else.
    Adapters,
    /// Biases.
    Biases,
    /// The last norm.
    LastNorm,
    /// Everything, but not alike.
    NotAlike,
}

const ALL: [What; 5] = [What::LaterBlocks, What::Adapters, What::Biases, What::LastNorm, What::NotAlike];

impl What {
    fn training(self, name: &str) -> Training {
        let frozen = match self {
            Self::LaterBlocks => name.starts_with('w') || name.starts_with("h.0."),
            Self::Adapters => !name.contains(".lora_"),
            Self::Biases => !name.ends_with(".bias"),
            Self::LastNorm => !name.starts_with("ln_f"),
            Self::NotAlike => false,
        };
        let differs = self == Self::NotAlike && name.starts_with("h.1.");
        Training { frozen, rate: if differs { 0.25 } else { 1.0 }, weight_decay: differs.then_some(0.5) }
    }

    fn rules(self) -> Rules {
        let lora = Lora { rank: 2, alpha: 3.0, dropout: 0.2, seed: 5 };
        let chosen = move |target: &str| {
            let is_chosen =
                self == Self::Adapters && (target.ends_with("c_attn") || target.ends_with("c_fc"));
            is_chosen.then_some(lora)
        };
        Rules::default().with_lora(chosen).with_training(move |name| self.training(name))
    }
}

fn gpt(tied: bool) -> Gpt {
    Gpt { vocab: 17, dim: 16, layers: 3, heads: 2, context: 8, dropout: 0.1, tied, seed: 3 }
}

/// A GPT with adapters, and nothing else is trained.
pub(super) fn recipe_with_adapters(micro_batches: u32) -> Recipe {
    recipe(What::Adapters, false, micro_batches)
}

fn recipe(what: What, tied: bool, micro_batches: u32) -> Recipe {
    let data = RandomTokens { rows: 2, seq: 8, vocab: 17 };
    let model = move || Ok(gpt(tied).model()?.with_rules(what.rules()));
    recipe_of(model, Arc::new(data), micro_batches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_trains_to_the_bits_of_the_plain_loop(
        what in prop::sample::select(ALL.to_vec()),
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1_u32..5,
        micro_batches in 1_u32..6,
        tied: bool,
    ) {
        let chunks = *Schedule::chunks(name).expect("it has a name").start();
        // The model has eight units.
        let ranks = ranks.min(8 / chunks);
        let schedule = Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default());
        let recipe = recipe(what, tied, micro_batches);
        prop_assert_eq!(recipe.hash_on(schedule.expect("sizes"), 2), recipe.plain_hash(2));
    }
}

#[test]
fn replicas_sharded_optimizers_and_servers_change_no_bit() {
    for what in ALL {
        for (replicas, sharded, sync) in [
            (2, false, SyncMode::Reduce),
            (2, true, SyncMode::Reduce),
            (3, true, SyncMode::Reduce),
            (2, false, SyncMode::Server { max_staleness: 0 }),
        ] {
            let plain = Recipe { gradient_groups: 4, ..recipe(what, true, 4) };
            let several = Recipe { gradient_groups: 4, replicas, sharded, sync, ..recipe(what, true, 4) };
            assert_eq!(
                several.hash(2, "1f1b", 3),
                plain.plain_hash(3),
                "{what:?}, {replicas} replicas, sharded: {sharded}, {sync:?}"
            );
        }
    }
}

#[test]
fn recomputing_changes_no_bit() {
    for what in ALL {
        let recipe = recipe(what, true, 3);
        for how in [Recompute::Selective, Recompute::Full] {
            let builder = recipe.builder_of(named("1f1b", 2, 3), |stage| recompute(stage, how));
            let mut pipeline = builder.launch().unwrap();
            assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(2), "{what:?}, {how:?}");
        }
    }
}

#[test]
fn frozen_weights_stay_and_have_no_optimizer_state() {
    let folder = tempfile::tempdir().unwrap();
    for what in ALL {
        let recipe = recipe(what, false, 4);
        let mut pipeline = recipe.pipeline(3, "zb-h1");
        train(&mut pipeline, 2);
        let place = folder.path().join(format!("{what:?}"));
        pipeline.save(&place).unwrap();
        let mut resumed = recipe.pipeline(2, "1f1b");
        resumed.load(&place).unwrap();
        for _ in 0..2 {
            pipeline.step().unwrap();
            resumed.step().unwrap();
        }
        let hash = pipeline.weights_hash().unwrap();
        assert_eq!(hash, resumed.weights_hash().unwrap(), "{what:?}");
        assert_eq!(hash, recipe.plain_hash(4), "{what:?}");

        let mut start = (recipe.model)().whole().unwrap();
        let mut after = (recipe.model)().whole().unwrap();
        let checkpoint = Checkpoint::open(&place).unwrap();
        checkpoint.read_weights(after.parameters()).unwrap();
        let pairs = start.parameters().into_iter().zip(after.parameters());
        for (before, after) in pairs {
            assert_eq!(before.value == after.value, before.is_frozen(), "{what:?}: {}", before.name());
        }
        let trained = start.parameters().iter().filter(|one| !one.is_frozen()).count();
        assert_eq!(checkpoint.verify().unwrap().tensors[1], 2 * trained, "{what:?}");
    }
}

#[test]
fn a_tied_parameter_is_frozen_everywhere_or_nowhere() {
    let recipe = recipe(What::NotAlike, true, 2);
    let freezing = |stage: pipewright::stages::StageBuilder<pipewright::stages::Sequential>| {
        let build = move || {
            let mut stage = stage.build()?;
            let is_copy = |parameter: &&mut Parameter| parameter.is_tied();
            stage.parameters().into_iter().filter(is_copy).for_each(|one| one.train_by(FROZEN));
            Ok(stage)
        };
        Box::new(build) as pipewright::stages::StageBuilder<_>
    };
    let stages = (recipe.model)().split(2).unwrap().into_iter().map(freezing);
    let error = recipe.builder(named("1f1b", 2, 2)).stages(stages.collect()).launch().unwrap_err();
    assert!(matches!(&error, Error::Launch(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the tied parameter `wte.weight` is frozen in layer `lm_head` in stage 1 and trained in layer \
         `embed` in stage 0: freeze both or none"
    );
}

#[test]
fn stages_before_the_first_that_is_trained_keep_nothing() {
    let recipe = recipe(What::LastNorm, false, 4);
    for name in ["1f1b", "zb-h1"] {
        let mut pipeline = recipe.pipeline(3, name);
        let report = pipeline.step().unwrap();
        let peaks: Vec<u64> = report.ranks.iter().map(|rank| rank.peak_bytes).collect();
        assert_eq!(peaks[..2], [0, 0], "{name}");
        assert!(peaks[2] > 0, "{name}");
    }
}

#[test]
fn a_sharded_optimizer_is_saved_and_read_without_state_of_frozen_parameters() {
    let folder = tempfile::tempdir().unwrap();
    for what in ALL {
        let several = |replicas| Recipe {
            gradient_groups: 4,
            replicas,
            sharded: replicas > 1,
            ..recipe(what, true, 4)
        };
        let place = folder.path().join(format!("{what:?}"));
        let mut pipeline = several(2).pipeline(2, "1f1b");
        pipeline.step().unwrap();
        pipeline.save(&place).unwrap();
        for replicas in [1, 2, 3] {
            let mut resumed = several(replicas).pipeline(2, "1f1b");
            resumed.load(&place).unwrap();
            resumed.step().unwrap();
            let hash = resumed.weights_hash().unwrap();
            assert_eq!(hash, several(1).plain_hash(2), "{what:?}, {replicas} replicas");
        }
    }
}
