//! Every optimizer trains in a pipeline as in a plain loop, and goes on from a checkpoint; and what a config
//! says of optimizers.

use pipewright::stages::Part;
use pipewright::stages::optimizer::{Adafactor, Lion, Muon, StateFormat};
use pipewright_cli::compose;

use super::*;
use crate::common::*;
use crate::divided_models::llama;

const STEPS: u64 = 3;

fn each() -> Vec<Arc<dyn Optimizer>> {
    let lion = Lion { weight_decay: 0.1, ..Lion::default() };
    let sgd = Sgd { momentum: 0.9, ..Sgd::default() };
    vec![
        Arc::new(Adafactor::default()),
        Arc::new(AdamW::default()),
        Arc::new(lion),
        Arc::new(Muon::default()),
        Arc::new(sgd),
        Arc::new(AdamW { state: StateFormat::Bf16, ..AdamW::default() }),
        Arc::new(AdamW { state: StateFormat::Blocks, ..AdamW::default() }),
    ]
}

fn launch(recipe: &Recipe, optimizer: &Arc<dyn Optimizer>, stages: u32) -> Pipeline<Sequential> {
    let builder = recipe.builder(named("1f1b", stages, recipe.micro_batches));
    builder.optimizer(Arc::clone(optimizer)).launch().expect("it starts")
}

fn hash_after(mut pipeline: Pipeline<Sequential>, steps: u64) -> String {
    trained(&mut pipeline, steps)
}

#[test]
fn every_cut_and_replica_has_the_bits_of_the_plain_loop() {
    let mut recipe = recipe(2, true, 4);
    for optimizer in each() {
        let stage = (recipe.model)().whole().expect("the model can be built");
        let mut plain = Plain::new(stage, Arc::clone(&optimizer), recipe.learning_rate, recipe.clip);
        for step in 0..STEPS {
            plain.step(recipe.data.as_ref(), step, 4, &mut CrossEntropy::default());
        }
        let expected = plain.hash();
        for (stages, replicas, threads, sharded) in
            [(1, 1, 2, false), (3, 1, 1, false), (2, 2, 1, false), (2, 2, 1, true)]
        {
            if sharded && !optimizer.updates_parts() {
                continue;
            }
            (recipe.replicas, recipe.threads_per_rank, recipe.sharded) = (replicas, threads, sharded);
            assert_eq!(
                hash_after(launch(&recipe, &optimizer, stages), STEPS),
                expected,
                "{optimizer:?}: {stages} stages, {replicas} replicas, sharded: {sharded}"
            );
        }
    }
}

#[test]
fn a_checkpoint_has_the_state_for_any_other_cut() {
    let recipe = recipe(2, false, 2);
    let folder = tempfile::tempdir().expect("a folder");
    goes_on(&recipe, folder.path());
    let mut adamw = launch(&recipe, &each()[1], 1);
    has(&adamw.load(folder.path().join("0-2")).unwrap_err(), &["the optimizer"]);
    // The error for another number format is not the one for another optimizer.
    for (of, found) in [("5-2", "\"bf16\""), ("6-2", "\"8bit\"")] {
        let error = adamw.load(folder.path().join(of)).unwrap_err();
        has(&error, &[".exp_avg", found, "\"f32\"", "set optimizer.state as it was"]);
    }
    // Its parameters are several tensors in one.
    goes_on(&recipe_of_mixtral(2, 2), tempfile::tempdir().expect("a folder").path());
}

fn goes_on(recipe: &Recipe, folder: &Path) {
    for (number, optimizer) in each().iter().enumerate() {
        let expected = hash_after(launch(recipe, optimizer, 1), 4);
        // Before the first step there is no state.
        for steps in [0, 2] {
            let place = folder.join(format!("{number}-{steps}"));
            let mut before = launch(recipe, optimizer, 2);
            train(&mut before, steps);
            before.save(&place).expect("there is room");
            let mut after = launch(recipe, optimizer, 3);
            after.load(&place).expect("it is whole");
            assert_eq!(hash_after(after, 4 - steps), expected, "{optimizer:?} after {steps} steps");
        }
    }
}

/// Matrices of more numbers than a piece, whose state is divided among replicas.
#[test]
fn parts_of_a_state_in_few_bits_are_those_of_the_whole() {
    for state in [StateFormat::Bf16, StateFormat::Blocks] {
        let optimizer: Arc<dyn Optimizer> = Arc::new(AdamW { state, ..AdamW::default() });
        let mut recipe = odd_mlp();
        let expected = hash_after(launch(&recipe, &optimizer, 1), 3);
        for (before, after) in [(2, 1), (1, 2), (2, 2)] {
            let folder = tempfile::tempdir().expect("a folder");
            let place = folder.path().join("saved");
            (recipe.replicas, recipe.sharded) = (before, before > 1);
            let mut first = launch(&recipe, &optimizer, 1);
            train(&mut first, 2);
            first.save(&place).expect("there is room");
            drop(first);
            (recipe.replicas, recipe.sharded) = (after, after > 1);
            let mut second = launch(&recipe, &optimizer, 2);
            second.load(&place).expect("it is whole");
            assert_eq!(hash_after(second, 1), expected, "{state:?}: {before} replicas, then {after}");
        }
    }
}

#[test]
fn state_in_blocks_and_groups_of_shards_are_refused_together() {
    let blocks = "[optimizer]\nstate = '8bit'\n[pipeline]\n";
    for keys in ["shards = 2", "shard_groups = 2"] {
        let error = config(&format!("{blocks}{keys}")).unwrap_err();
        has(&error, &["optimizer.state", "pipeline.shard_groups to 1"]);
    }
    has(&config("[optimizer]\nkind = 'muon'\nstate = 'bf16'").unwrap_err(), &["optimizer.state", "adamw"]);
    let recipe = llama(2);
    let optimizer: Arc<dyn Optimizer> = Arc::new(AdamW { state: StateFormat::Blocks, ..AdamW::default() });
    let builder = recipe.builder(named("1f1b", 2, recipe.micro_batches)).optimizer(optimizer);
    has(&builder.launch().map(drop).unwrap_err(), &["wte.weight", "optimizer.state", "shard_groups"]);
}

fn config(keys: &str) -> pipewright_cli::Result<Config> {
    with_sets(keys, &[])
}

fn with_sets(keys: &str, sets: &[String]) -> pipewright_cli::Result<Config> {
    let text = format!("[model]\nvocab = 43\ndim = 24\nlayers = 2\nheads = 2\n[data]\nseq = 8\n{keys}");
    Config::parse("my.toml", &text, &[], sets)
}

/// What the optimizer keeps, against what is planned, to the byte.
#[test]
fn the_plan_knows_the_size_of_every_state() {
    let bf16 = "adamw'\nstate = 'bf16";
    let blocks = "adamw'\nstate = '8bit";
    let kinds = ["adafactor", "adamw", "lion", "muon", "sgd", bf16, blocks];
    let of_models = kinds.iter().flat_map(|kind| ["gpt", "mixtral"].map(|model| (kind, model)));
    for (kind, model) in of_models {
        let keys = format!("[optimizer]\nkind = '{kind}'\n[pipeline]\nstages = 2\n");
        let set = format!("model.kind={model}");
        let config = with_sets(&keys, &[set]).unwrap();
        let plan = compose::plan(&config).expect("a plan");
        let memory = compose::memory(&config, &plan).expect("sizes");
        let optimizer = compose::optimizer(&config);
        let stages = compose::stages(&config, &plan.counts).expect("stages").into_iter();
        for (stage, planned) in stages.zip(memory) {
            let mut stage = stage.build().expect("possible sizes");
            let mut held = 0;
            for parameter in stage.parameters() {
                let by = pipewright::stages::optimizer::Update {
                    step: 1,
                    learning_rate: 1e-3,
                    scale: 1.0,
                    micro_batches: 1,
                };
                Together::now(|together| optimizer.update(parameter, by, together)).expect("the CPU can");
                parameter.fetch(Part::State).expect("the CPU can");
                held += parameter.state.iter().map(|state| 4 * state.len()).sum::<usize>();
            }
            assert_eq!(planned.optimizer, held as f64, "{model}, {kind}");
        }
    }
}

#[test]
fn momentum_and_betas_are_those_of_the_kind() {
    let debug = |keys: &str| format!("{:?}", compose::optimizer(&config(keys).unwrap()));
    assert!(debug("[optimizer]\nkind = 'lion'").contains("betas: (0.9, 0.99)"));
    assert!(debug("[optimizer]\nkind = 'lion'\nbetas = [0.95, 0.98]").contains("betas: (0.95, 0.98)"));
    assert!(debug("[optimizer]\nkind = 'muon'").contains("momentum: 0.95"));
    assert!(debug("[optimizer]\nkind = 'muon'\nmomentum = 0.8").contains("momentum: 0.8"));
    assert!(debug("[optimizer]\nkind = 'muon'").contains("betas: (0.9, 0.95)"));
    assert!(debug("[optimizer]\nkind = 'sgd'").contains("momentum: 0.9,"));
}

#[test]
fn replicas_cannot_divide_updates_of_whole_parameters() {
    for kind in ["adafactor", "muon"] {
        for (keys, key) in [
            ("sharded = true\n", "my.toml:10: optimizer.sharded: "),
            ("[pipeline]\nreplicas = 2\nsync = 'server'", "my.toml:12: pipeline.sync: "),
        ] {
            let refused = config(&format!("[optimizer]\nkind = '{kind}'\n{keys}")).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!(
                    "{key}adafactor and muon update whole parameters only, so replicas cannot divide their \
                     updates: take pipeline.sync = \"reduce\" and optimizer.sharded = false, or \
                     optimizer.kind \"adamw\", \"lion\" or \"sgd\""
                )
            );
        }
    }
    has(&config("[optimizer]\nkind = 'adafactor'\nmomentum = 0.9").unwrap_err(), &["optimizer.momentum"]);
}
