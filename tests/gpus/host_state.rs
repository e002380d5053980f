//! Ranks on GPUs whose optimizer state is on the host: the bits of state on the GPUs, and what is planned.

use std::fs;
use std::path::Path;

use pipewright::stages::optimizer::{AdamW, Lion, Optimizer, PASSAGE, Sgd, StateFormat, Update, update};
use pipewright::stages::{RecomputedStage, Sequential, Stage, StageBuilder, Together};
use pipewright::{PipelineBuilder, SyncMode};
use pipewright_cli::compose;
use pipewright_cli::config::Config;

use super::*;
use crate::divided_models::gpt_tied;
use crate::quantised::quantised;
use crate::restarts::train_failing_with;

/// Set in a process whose memory is counted or whose calls fail, so other tests must not be there.
const ALONE: &str = "PIPEWRIGHT_STATE_ON_HOST";

/// All optimizers that run on GPUs and have state, in each of its formats.
fn optimizers() -> Vec<Arc<dyn Optimizer>> {
    let adamw = |state| AdamW { state, weight_decay: 0.1, ..AdamW::default() };
    vec![
        Arc::new(adamw(StateFormat::F32)),
        Arc::new(adamw(StateFormat::Bf16)),
        Arc::new(adamw(StateFormat::Blocks)),
        Arc::new(Lion::default()),
        Arc::new(Sgd { momentum: 0.9, ..Sgd::default() }),
    ]
}

fn gpus(dtype: DType) -> Vec<Place> {
    [GPU, Device::Cuda(1)].map(|device| on(device, dtype)).into()
}

/// The hash of the weights after three steps.
fn hash(builder: PipelineBuilder<Sequential>) -> String {
    trained(&mut builder.launch().expect("it starts"), 3)
}

#[test]
fn any_optimizer_in_any_cut_has_the_bits_of_state_on_the_gpus() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for optimizer in optimizers() {
            let mut recipe = recipe(2, true, 4);
            let one = recipe.builder(named("1f1b", 1, 4)).places(gpus(dtype)[..1].to_vec());
            let expected = hash(one.optimizer(Arc::clone(&optimizer)));
            for (schedule, ranks, replicas, sharded) in [
                ("1f1b", 1, 1, false),
                ("zb-h1", 2, 1, false),
                ("interleaved-1f1b", 2, 1, false),
                ("1f1b", 1, 2, false),
                ("1f1b", 1, 2, true),
            ] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                let places = if ranks * replicas == 1 { vec![on(GPU, dtype)] } else { gpus(dtype) };
                let builder = recipe.builder(named(schedule, ranks, 4)).places(places);
                let got = hash(builder.optimizer(Arc::clone(&optimizer)).state_on_host(true));
                let case = format!("{replicas} replicas of {ranks} ranks by {schedule}, sharded: {sharded}");
                assert_eq!(got, expected, "{optimizer:?} in {dtype}: {case}");
            }
        }
    }
}

/// The bits with state on the GPUs and on the host.
#[track_caller]
fn same_bits(recipe: &Recipe, (schedule, ranks): (&str, u32), places: &[Place]) {
    let [expected, got] = [false, true].map(|on_host| {
        let builder = recipe.builder(named(schedule, ranks, 4));
        hash(builder.places(places.to_vec()).state_on_host(on_host))
    });
    assert_eq!(got, expected, "{schedule} on {places:?}");
}

#[test]
fn ranks_on_gpus_and_on_the_cpu_have_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    let mixed = [on(GPU, DType::F32), Place::default()];
    let mut recipe = recipe(2, true, 4);
    same_bits(&recipe, ("1f1b", 2), &mixed);
    same_bits(&recipe, ("1f1b", 2), &[Place::default()]);
    for sharded in [false, true] {
        (recipe.replicas, recipe.sharded) = (2, sharded);
        same_bits(&recipe, ("1f1b", 1), &mixed);
    }
    (recipe.sharded, recipe.sync) = (false, SyncMode::Server { max_staleness: 0 });
    same_bits(&recipe, ("1f1b", 1), &gpus(DType::F32));
}

#[test]
fn shards_and_adapters_have_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let mut recipe = gpt_tied(2);
        recipe.shards = 2;
        for state in [StateFormat::F32, StateFormat::Bf16] {
            recipe.optimizer.state = state;
            same_bits(&recipe, ("1f1b", 1), &[on(GPU, dtype)]);
        }
        same_bits(&quantised(), ("zb-h1", 2), &gpus(dtype));
    }
}

/// What a folder has, by the names of its files.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().expect("a name"), fs::read(entry.path()).expect("a file"))
    };
    let mut all: Vec<_> = entries.map(read).collect();
    all.sort();
    all
}

#[test]
fn a_checkpoint_is_the_same_and_goes_on_where_the_state_is_elsewhere() {
    if emulator::start().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for state in [StateFormat::F32, StateFormat::Bf16, StateFormat::Blocks] {
        let mut recipe = recipe(2, true, 4);
        recipe.optimizer.state = state;
        let launch = |recipe: &Recipe, schedule, ranks, places: Vec<Place>, on_host| {
            let builder = recipe.builder(named(schedule, ranks, 4)).places(places);
            builder.state_on_host(on_host).launch().expect("it starts")
        };
        let mut whole = launch(&recipe, "1f1b", 1, vec![on(GPU, DType::F32)], false);
        let expected = trained(&mut whole, 5);
        for on_host in [false, true] {
            let place = folder.path().join(format!("{on_host}"));
            let mut first = launch(&recipe, "1f1b", 2, gpus(DType::F32), on_host);
            trained(&mut first, 2);
            first.save(&place).expect("it is saved");
            // The steps after it use the same memory.
            assert_eq!(trained(&mut first, 3), expected, "{state:?}");
            let sharded = Recipe { replicas: 2, sharded: true, ..recipe_like(&recipe) };
            let mut second = launch(&sharded, "zb-h1", 1, gpus(DType::F32), !on_host);
            second.load(&place).expect("it loads");
            assert_eq!(trained(&mut second, 3), expected, "{state:?}, first on the host: {on_host}");
        }
        let [on_gpu, on_host] = [false, true].map(|host| files(&folder.path().join(format!("{host}"))));
        assert!(on_gpu == on_host, "{state:?}: the checkpoints differ");
    }
}

/// The recipe of the same training.
fn recipe_like(known: &Recipe) -> Recipe {
    Recipe { optimizer: known.optimizer, ..recipe(2, true, 4) }
}

/// The recipe's model, cut into stages with these numbers of units.
fn cut(recipe: &Recipe, counts: &[usize]) -> Vec<StageBuilder<Sequential>> {
    recipe.model().cut(counts).expect("they add up to the model's units")
}

#[test]
fn the_state_moves_with_the_layers_of_a_model_that_is_cut_elsewhere() {
    if emulator::start().is_none() {
        return;
    }
    let mut recipe = recipe(2, true, 4);
    for state in [StateFormat::F32, StateFormat::Blocks] {
        recipe.optimizer.state = state;
        let units = recipe.model().names().len();
        let expected = hash(recipe.builder(named("1f1b", 2, 4)).places(gpus(DType::F32)));
        for places in [gpus(DType::F32), vec![on(GPU, DType::F32)]] {
            let builder = recipe.builder(named("1f1b", 2, 4)).places(places).state_on_host(true);
            let mut pipeline = builder.launch().expect("it starts");
            for counts in [[1, units - 1], [units - 2, 2], [3, units - 3]] {
                pipeline.recut(cut(&recipe, &counts)).expect("the same model");
                pipeline.step().expect("a step");
            }
            assert_eq!(pipeline.weights_hash().expect("a hash"), expected, "{state:?}");
        }
    }
}

#[test]
fn ranks_with_state_on_the_host_are_built_again() {
    if emulator::start().is_none() {
        return;
    }
    for (replicas, ranks, places) in [
        (1, 2, gpus(DType::F32)),
        (1, 2, vec![on(GPU, DType::Bf16), on(GPU, DType::Bf16)]),
        (2, 1, gpus(DType::F32)),
    ] {
        let mut recipe = recipe(2, true, 4);
        (recipe.replicas, recipe.sharded) = (replicas, replicas > 1);
        let (_, expected) = train(&recipe, named("zb-h1", ranks, 4), places.clone());
        for first in [0, 9, 20, 33] {
            let with = |builder: PipelineBuilder<_>| builder.places(places.clone()).state_on_host(true);
            let hash = train_failing_with(&recipe, named("zb-h1", ranks, 4), first, with);
            assert_eq!(hash, expected, "{replicas} replicas on {places:?}, first at {first}");
        }
    }
}

/// Bytes of a GPU, and of page-locked memory, that are in use.
fn in_use() -> [u64; 2] {
    let all = devices::name_and_memory(0).expect("a GPU").1;
    let free = devices::free_memory(0).expect("a GPU");
    [all - free, emulator::counted("libcuda.so", "pw_page_locked").expect("the emulator")]
}

/// What the first update of a config's only stage takes, of the GPU and of the host.
fn taken(config: &Config, counts: &[usize]) -> [u64; 2] {
    let stages = compose::stages(config, counts).expect("stages");
    let mut stage = stages[0].build().expect("possible sizes");
    // Some are told before they move, and some after it.
    let tell = |stage: &mut RecomputedStage<Sequential>, is_told: fn(usize) -> bool| {
        let mut index = 0;
        stage.visit_parameters(&mut |parameter| {
            if config.optimizer.state_on_host && is_told(index) {
                parameter.keep_state_on_host();
            }
            index += 1;
        });
    };
    tell(&mut stage, |index| index % 2 == 0);
    stage.move_to(on(GPU, DType::F32)).expect("there is room");
    tell(&mut stage, |index| index % 2 == 1);
    let optimizer = compose::optimizer(config);
    let by = Update { step: 1, learning_rate: 0.1, scale: 1.0, micro_batches: 1 };
    let before = in_use();
    let act = |parameter: &mut _, together: &mut _| update(&*optimizer, parameter, by, together);
    Together::default().visit(&mut stage, act).expect("an update");
    let after = in_use();
    std::array::from_fn(|place| after[place] - before[place])
}

#[test]
fn state_takes_exactly_what_is_planned() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    let optimizers = [
        "state = 'f32'",
        "state = 'bf16'",
        "state = '8bit'",
        "kind = 'lion'",
        "kind = 'sgd'",
        "kind = 'sgd'\nmomentum = 0",
        "groups = [{ parameters = ['h.1.*'], frozen = true }]",
    ];
    let alone = env::var(ALONE).ok();
    for optimizer in optimizers {
        // A process for each: page-locked memory of one that is freed would be counted with the next one.
        match &alone {
            Some(alone) if alone == optimizer => {}
            Some(_) => continue,
            None => {
                in_a_process_of_its_own("host_state::state_takes_exactly_what_is_planned", ALONE, optimizer);
                continue;
            }
        }
        let config = |on_host: bool| {
            let text = format!(
                "[data]\nseq = 19\n[model]\nvocab = 43\nlayers = 2\ndim = 36\nheads = 2\n\
                 [optimizer]\n{optimizer}\nstate_on_host = {on_host}\n\
                 [pipeline]\nstages = 1\nmicro_batches = 1\nmicro_batch_size = 3\ndevices = ['cuda:0']\n"
            );
            Config::parse("my.toml", &text, &[], &[]).expect("a right config")
        };
        let [device, host] = [false, true].map(|on_host| {
            let config = config(on_host);
            let plan = compose::plan(&config).expect("a plan");
            (compose::memory(&config, &plan).expect("sizes")[0], plan.counts)
        });
        let [(device, counts), (host, _)] = [device, host];
        let has_state = device.optimizer > 0.0;
        let passage = if has_state { PASSAGE as f64 } else { 0.0 };
        assert_eq!((device.state_on_host, host.optimizer), (0.0, 0.0), "{optimizer}");
        assert_eq!(host.state_on_host, device.optimizer, "{optimizer}");
        assert_eq!(host.buffers - device.buffers, passage, "{optimizer}");
        assert_eq!(host.on_host(), device.optimizer, "{optimizer}");
        let [on_gpu, on_host] = taken(&config(true), &counts);
        assert_eq!(on_gpu as f64, passage, "{optimizer}");
        assert_eq!(on_host as f64, host.state_on_host, "{optimizer}");
    }
}

#[test]
fn later_steps_take_no_more_memory() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    if env::var_os(ALONE).is_none() {
        return in_a_process_of_its_own("host_state::later_steps_take_no_more_memory", ALONE, "");
    }
    let builder = recipe(2, false, 8).builder(named("gpipe", 1, 8)).places(vec![on(GPU, DType::F32)]);
    let mut pipeline = builder.state_on_host(true).launch().expect("it starts");
    let counts = [0; 5].map(|_| {
        pipeline.step().expect("a step");
        (emulator::answer("pw_left"), in_use())
    });
    // The first update makes the state.
    let later = &counts[1..];
    assert!(later.iter().all(|count| *count == later[0]), "{counts:?}");
}

/// Whether no host memory can be taken for state when this call of CUDA finds none.
fn is_told(call: u32) -> bool {
    emulator::tell("pw_fail", &format!("cuMemHostAlloc:{call}:2"));
    let builder = recipe(2, false, 4).builder(named("1f1b", 2, 4)).places(vec![on(GPU, DType::F32)]);
    let launched = builder.state_on_host(true).launch();
    let ended = launched.and_then(|mut pipeline| pipeline.step());
    emulator::tell("pw_fail", "");
    let told = ended.expect_err("a call fails").to_string();
    has(&told, &["out of memory on cpu: "]);
    told.contains("it is page-locked memory, for what optimizer.state_on_host keeps off the GPUs")
}

#[test]
fn host_memory_that_cannot_be_had_is_told_with_the_key_that_wants_it() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    if env::var_os(ALONE).is_none() {
        let test = "host_state::host_memory_that_cannot_be_had_is_told_with_the_key_that_wants_it";
        return in_a_process_of_its_own(test, ALONE, "");
    }
    assert!((1..).any(|call| {
        // While the run before still frees such memory, a call that finds none is made again.
        assert_eq!(crate::failures::left_since(""), None, "after a run");
        is_told(call)
    }));
}
