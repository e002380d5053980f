//! Frozen matrices in few bits: models of llama.cpp that keep their blocks, and `model.base`. Training has
//! the bits of training with the decoded numbers.

use std::path::PathBuf;
use std::sync::LazyLock;

use pipewright::pretrained::import_blocks;
use pipewright::stages::{Part, Quantisation};
use pipewright_cli::compose;

use super::*;
use crate::files::quantised;

/// The kinds of `ggml` that are in blocks.
const KINDS: [u32; 12] = [12, 14, 8, 13, 2, 3, 6, 7, 10, 11, 1, 30];

/// Folders of one model: with plain numbers, and in blocks.
fn both(scratch: &TempDir, kinds: &[u32], has_head: bool) -> [PathBuf; 2] {
    let file = scratch.path().join("m.gguf");
    fs::write(&file, quantised(kinds, has_head).bytes()).unwrap();
    let [plain, blocks] = ["plain", "blocks"].map(|name| scratch.path().join(name));
    import(&file, &plain).unwrap_or_else(|error| panic!("{error}"));
    import_blocks(&file, &blocks).unwrap_or_else(|error| panic!("{error}"));
    [plain, blocks]
}

/// A config that trains adapters of a folder's model.
fn config(folder: &Path, more: &[&str]) -> pipewright_cli::Result<Config> {
    let text = format!(
        "[model]\npath = {folder:?}\n[lora]\nrank = 4\ntargets = [\"h.*\"]\n[data]\nkind = 'tokens'\n\
         path = 'builtin:shakespeare'\nseq = 24\n[pipeline]\nstages = 1\nmicro_batches = 4\n\
         [optimizer]\nlearning_rate = 1e-2\n"
    );
    let text = text.replace("kind = 'tokens'\npath = 'builtin:shakespeare'", &tokens());
    let sets: Vec<String> = more.iter().map(|set| (*set).to_owned()).collect();
    Config::parse("test.toml", &text, &[], &sets)
}

/// Data of 64 tokens: a file that the tests share, written once.
fn tokens() -> String {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = std::env::temp_dir().join(format!("pipewright-tokens-of-64-{}", std::process::id()));
        let bytes: Vec<u8> =
            (0..8000_u32).flat_map(|at| ((at * at / 7 + at) % 64).to_le_bytes()[..2].to_vec()).collect();
        fs::write(&path, bytes).unwrap();
        path
    });
    format!("kind = 'tokens'\npath = {:?}", *PATH)
}

/// A pipeline of a config.
fn launched(
    config: &Config,
) -> Pipeline<pipewright::stages::RecomputedStage<pipewright::stages::Sequential>> {
    let plan = compose::plan(config).unwrap();
    let data = compose::data(config).unwrap();
    compose::launch(config, &data, &plan, None).unwrap_or_else(|error| panic!("{error}"))
}

/// The losses of three steps, and the hash of all weights after them.
fn trained(config: &Config) -> (Vec<f64>, String) {
    let mut pipeline = launched(config);
    let losses = (0..3).map(|_| pipeline.step().unwrap().loss).collect();
    (losses, pipeline.weights_hash().unwrap())
}

#[test]
fn training_over_blocks_has_the_bits_of_training_over_their_numbers() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &KINDS, true);
    assert_eq!(quantised_in(&config(&blocks, &[]).unwrap()), 2 + 2 * 4);
    let alone = |more: &[&str]| trained(&config(&plain, more).unwrap());
    let groups = "pipeline.gradient_groups=2";
    for dtype in ["pipeline.dtype=f32", "pipeline.dtype=bf16"] {
        let expected = alone(&[dtype, groups]);
        assert!(expected.0.iter().all(|loss| loss.is_finite()));
        for more in [
            &["pipeline.stages=1"][..],
            &["pipeline.stages=2", "pipeline.schedule=zb-h1"],
            &["pipeline.stages=3", "pipeline.recompute=full"],
            &["pipeline.stages=2", "pipeline.threads_per_rank=2"],
            &["pipeline.replicas=2", "optimizer.sharded=true"],
        ] {
            let all = [&[dtype, groups], more].concat();
            assert_eq!(trained(&config(&blocks, &all).unwrap()), expected, "{all:?}");
        }
    }
}

#[test]
fn a_tied_table_in_blocks_has_the_bits_of_its_numbers() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &[8, 12], false);
    // The table counts twice.
    assert_eq!(quantised_in(&config(&blocks, &[]).unwrap()), 2 + 2 * 4);
    for stages in ["pipeline.stages=1", "pipeline.stages=3"] {
        let [expected, got] = [&plain, &blocks].map(|folder| trained(&config(folder, &[stages]).unwrap()));
        assert_eq!(expected, got, "{stages}");
    }
}

#[test]
fn a_folder_in_blocks_has_the_numbers_and_the_size_of_its_file() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &KINDS, true);
    let architecture = read_config(&blocks).unwrap();
    assert_eq!(architecture, read_config(&plain).unwrap());
    let [plain_weights, weights] =
        [&plain, &blocks].map(|folder| Weights::open(folder, &architecture).unwrap());
    for mapped in architecture.table() {
        let read = |weights: &Weights| {
            let mut parameter = Parameter::new(mapped.name.as_str(), &mapped.dims, Init::Zeros, 0);
            weights.read(&mut parameter).unwrap();
            parameter.value.to_vec()
        };
        assert_eq!(read(&plain_weights), read(&weights), "{}", mapped.name);
    }
    let kinds: BTreeMap<&str, Quantisation> = weights.quantised().collect();
    // The table, the head, and four matrices of each block.
    assert_eq!(kinds.len(), 2 + 2 * 4);
    assert_eq!(kinds["wte.weight"], Quantisation::Q4_K);
    let size = |path: std::path::PathBuf| fs::metadata(path).unwrap().len() as f64;
    let held = size(blocks.join("quantised.safetensors"));
    assert!(held < 1.02 * size(scratch.path().join("m.gguf")), "{held}");
}

/// The parameters of the model of a config, in one stage.
fn parameters(config: &Config, look: impl Fn(&mut Parameter)) {
    let count = compose::model(config).unwrap().names().len();
    let mut stage = compose::stages(config, &[count]).unwrap().remove(0).build().unwrap();
    stage.visit_parameters(&mut |parameter| look(parameter));
}

/// How many parameters of a model are in blocks.
fn quantised_in(config: &Config) -> usize {
    let count = std::cell::Cell::new(0);
    parameters(config, |parameter| count.set(count.get() + usize::from(parameter.blocks().is_some())));
    count.get()
}

#[test]
fn a_base_is_rounded_when_it_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &[1], true);
    for (base, kind) in [("q4", Quantisation::Nf4), ("q8", Quantisation::Q8_0)] {
        let set = format!("model.base={base}");
        let rounded = config(&plain, &[&set, "pipeline.stages=2"]).unwrap();
        parameters(&rounded, |parameter| {
            let is_inner = parameter.dims().len() == 2 && parameter.name().starts_with("h.");
            let is_base = is_inner && parameter.is_frozen();
            assert_eq!(parameter.quantisation(), is_base.then_some(kind), "{}", parameter.name());
            assert_eq!(parameter.blocks().is_some(), is_base);
            parameter.fetch(Part::Value).unwrap();
        });
        let (losses, _) = trained(&rounded);
        let (expected, _) = trained(&config(&plain, &[]).unwrap());
        for (got, expected) in losses.iter().zip(expected) {
            assert!((got / expected - 1.0).abs() < 0.05, "{base}: {losses:?}, not {expected}");
        }
        // Matrices of 16 bits are rounded too, but for the table and the head.
        let of_halves = config(&blocks, &[&set]).unwrap();
        assert_eq!(trained(&of_halves), trained(&config(&plain, &[&set]).unwrap()), "{base}");
        parameters(&of_halves, |parameter| {
            let is_inner = parameter.name().starts_with("h.");
            let expected = parameter.blocks().map(|_| if is_inner { kind } else { Quantisation::F16 });
            assert_eq!(parameter.quantisation(), expected, "{}", parameter.name());
        });
        assert_eq!(quantised_in(&of_halves), 2 + 2 * 4);
    }
}

#[test]
fn blocks_can_be_measured_before_they_are_read() {
    let scratch = tempfile::tempdir().unwrap();
    let [_, blocks] = both(&scratch, &[12], true);
    compose::measure(&config(&blocks, &[]).unwrap(), 1, |_, _| ()).unwrap_or_else(|error| panic!("{error}"));
}

/// PEFT saves the head beside its adapter, in plain numbers.
#[test]
fn a_head_with_an_adapter_is_not_in_blocks() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &[12], true);
    let targets = "lora.targets=[\"h.*\", \"lm_head\"]";
    let [expected, got] = [&plain, &blocks].map(|folder| trained(&config(folder, &[targets]).unwrap()));
    assert_eq!(expected, got);
    assert_eq!(quantised_in(&config(&blocks, &[targets]).unwrap()), 1 + 2 * 4);
}

#[test]
fn a_number_that_is_not_finite_is_refused_by_its_tensor() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, _] = both(&scratch, &[1], true);
    let path = plain.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let name = "model.layers.1.mlp.down_proj.weight";
    let at = tensors.tensor(name).unwrap().data().as_ptr().addr() - bytes.as_ptr().addr();
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let config = config(&plain, &["model.base=q4"]).unwrap();
    let count = compose::model(&config).unwrap().names().len();
    let built = compose::stages(&config, &[count]).unwrap().remove(0).build().map(drop);
    let refused = built.expect_err("it is no number").to_string();
    has(
        &refused,
        &["model.safetensors`: model.layers.1.mlp.down_proj.weight cannot be quantised: number 0 is NaN"],
    );
}

#[test]
fn a_checkpoint_does_not_have_the_base_and_goes_on_with_the_same_bits() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &KINDS, true);
    let place = scratch.path().join("step-00000002");
    for more in [&["model.base=q4"][..], &[]] {
        let of = if more.is_empty() { &blocks } else { &plain };
        let config = |stages: &str| config(of, &[more, &[stages]].concat()).unwrap();
        let mut first = launched(&config("pipeline.stages=2"));
        (0..2).for_each(|_| drop(first.step().unwrap()));
        first.save(&place).unwrap();
        let losses = [(); 2].map(|()| first.step().unwrap().loss);
        let hash = first.weights_hash().unwrap();
        drop(first);
        let bytes = fs::read(place.join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert!(tensors.names().iter().all(|name| !name.starts_with("h.0.mlp.down.weight")));
        assert!(tensors.names().iter().any(|name| name.ends_with("lora_a.weight")));
        let mut again = launched(&config("pipeline.stages=3"));
        again.load(&place).unwrap();
        assert_eq!([(); 2].map(|()| again.step().unwrap().loss), losses);
        assert_eq!(again.weights_hash().unwrap(), hash);
        fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn a_checkpoint_of_another_base_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, _] = both(&scratch, &[1], true);
    let place = scratch.path().join("step-00000000");
    let launch = |more: &[&str]| launched(&config(&plain, more).unwrap());
    let refused = |more: &[&str]| {
        let error = launch(more).load(&place).expect_err("it has another base").to_string();
        error.replace(&scratch.path().display().to_string(), "DIR")
    };
    launch(&["model.base=q4"]).save(&place).unwrap();
    has(
        &refused(&[]),
        &[
            "DIR/step-00000000/model.safetensors: `h.0.attn.",
            "` was quantised, so its numbers stayed",
            "model.path",
        ],
    );
    has(
        &refused(&["model.base=q8"]),
        &["the quantised weights of `h.0.attn.", "are not those with which it was trained", "model.path"],
    );
    fs::remove_dir_all(&place).unwrap();
    launch(&[]).save(&place).unwrap();
    has(&refused(&["model.base=q4"]), &["is in it with its numbers, and now it is quantised", "model.base"]);
}

#[test]
fn a_base_that_cannot_be_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, blocks] = both(&scratch, &[1, 12], true);
    let refused_of = |folder: &Path, more: &[&str]| {
        let refused = config(folder, more).and_then(|config| compose::model(&config).map(drop));
        refused.expect_err("it cannot be").to_string()
    };
    let refused = |more: &[&str]| refused_of(&plain, more);
    has(&refused_of(&blocks, &["model.base=q8"]), &["model.base", "in few bits already"]);
    has(&refused(&["model.base=q4", "lora.rank=0"]), &["model.base", "all are trained"]);
    has(&refused(&["model.base=q4", "pipeline.shards=2"]), &["model.base", "pipeline.shards = 1"]);
    has(&refused(&["model.base=q5"]), &["model.base", "`as it is`, `q8`, `q4`"]);
    let text = "[model]\nbase = 'q4'\n[lora]\nrank = 2\ntargets = ['*']\n";
    let without =
        Config::parse("test.toml", text, &[], &[]).and_then(|config| compose::model(&config).map(drop));
    has(&without.expect_err("it has no folder").to_string(), &["model.base", "model.path"]);
}

#[test]
fn a_damaged_file_of_blocks_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let [_, blocks] = both(&scratch, &[12], true);
    let architecture = read_config(&blocks).unwrap();
    let path = blocks.join("quantised.safetensors");
    let bytes = fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&bytes[8..2000]).into_owned();
    assert!(text.contains("\"Q4_K\""), "{text}");
    // The same length, so that only this is wrong.
    let at = 8 + text.find("\"Q4_K\"").unwrap();
    let mut changed = bytes.clone();
    changed[at + 2] = b'9';
    fs::write(&path, changed).unwrap();
    let error = Weights::open(&blocks, &architecture).expect_err("no such blocks").to_string();
    has(&error, &["quantised.safetensors", "is not what its header says of its blocks"]);
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = Weights::open(&blocks, &architecture).expect_err("it is cut").to_string();
    has(&error, &["quantised.safetensors", "bytes of numbers instead of"]);
}
