//! Everything that a run reads and that decides a number is equal in all processes. If it is not, both are
//! refused, and both messages name the file, or what was read from it, and the process that differs.

use safetensors::SafeTensors;

use super::*;

/// Where a difference is.
struct Input {
    /// The key that names the file.
    key: &'static str,
    /// The sections `model` and `data`, and others.
    config: &'static str,
    file: &'static str,
    change: fn(Vec<u8>) -> Vec<u8>,
    /// How both messages go on after the name of the process.
    told: &'static str,
}

const REST: &str = "[train]\nname = 'small'\nsteps = 3\nvalidate_every = 2\n";
const GPT: &str = "[model]\ndim = 16\nlayers = 3\nheads = 2\n[data]\npath = 'text.txt'\nseq = 16\n";
const HELD_OUT: &str = "[model]\ndim = 16\nlayers = 3\nheads = 2\n[data]\npath = 'text.txt'\nseq = 16\n\
    validation_path = 'held.txt'\n";
const ENCODED: &str = "[model]\ndim = 16\nlayers = 3\nheads = 2\nvocab = 1000\n[data]\npath = 'text.txt'\n\
    tokenizer = 'tokenizer.json'\ncache = 'cache'\nseq = 16\n";
const MEASURED: &str = "[model]\ndim = 16\nlayers = 3\nheads = 2\n[data]\npath = 'text.txt'\nseq = 16\n\
    [pipeline]\nstages = 2\ncosts = 'costs.json'\n";
const ORDERED: &str = "[model]\ndim = 16\nlayers = 3\nheads = 2\n[data]\npath = 'text.txt'\nseq = 16\n\
    [pipeline]\nstages = 2\nmicro_batches = 4\nschedule = 'file:mine.csv'\n";
const MODEL: &str = "[model]\npath = 'm'\n[data]\nkind = 'tokens'\npath = 'tokens.bin'\nseq = 16\n";
const PARTS: &str = "[model]\npath = 'parts'\n[data]\nkind = 'tokens'\npath = 'tokens.bin'\nseq = 16\n";
const ADAPTERS: &str = "[model]\npath = 'm'\n[lora]\npath = 'a'\n[data]\nkind = 'tokens'\n\
    path = 'tokens.bin'\nseq = 16\n";
const IMAGES: &str = "[model]\nkind = 'mlp'\nsizes = [4, 8, 2]\n[data]\nkind = 'idx'\npath = 'images'\n\
    labels = 'labels'\n[pipeline]\nstages = 2\n";
const OWN: &str = "[model]\npath = 'own'\n[data]\nkind = 'idx'\npath = 'images'\nlabels = 'labels'\n\
    [pipeline]\nstages = 2\n";

const INPUTS: [Input; 15] = [
    Input {
        key: "",
        config: GPT,
        file: "my.toml",
        change: |own| other(own, "heads = 2", "heads = 4"),
        told: "was started with another config: it has `[model] heads = 4`, process 0 `[model] heads = 2`",
    },
    Input {
        key: "data.path",
        config: GPT,
        file: "text.txt",
        change: flipped,
        told: "differs from process 0 in the data: it has ",
    },
    Input {
        key: "data.validation_path",
        config: HELD_OUT,
        file: "held.txt",
        change: flipped,
        told: "differs from process 0 in the data of the validation: it has ",
    },
    Input {
        key: "data.tokenizer",
        config: ENCODED,
        file: "tokenizer.json",
        change: renumbered,
        told: "differs from process 0 in the data: it has ",
    },
    Input {
        key: "data.path",
        config: MODEL,
        file: "tokens.bin",
        change: flipped,
        told: "differs from process 0 in the data: it has ",
    },
    Input {
        key: "data.path",
        config: IMAGES,
        file: "images",
        change: flipped,
        told: "differs from process 0 in the data: it has ",
    },
    Input {
        key: "data.labels",
        config: IMAGES,
        file: "labels",
        change: flipped,
        told: "differs from process 0 in the data: it has ",
    },
    Input {
        key: "pipeline.costs",
        config: MEASURED,
        file: "costs.json",
        change: slower,
        told: "was started with another config: it has `[plan] costs = ",
    },
    Input {
        key: "pipeline.schedule",
        config: ORDERED,
        file: "mine.csv",
        change: |_| ONE_F_ONE_B.into(),
        told: "was started with another config: it has `[plan] order of rank 0 = ",
    },
    Input {
        key: "model.path",
        config: MODEL,
        file: "m/config.json",
        change: |own| other(own, "1e-06", "1e-05"),
        told: "was started with another config: it has `[model] norm_epsilon = ",
    },
    Input {
        key: "model.path",
        config: MODEL,
        file: "m/model.safetensors",
        change: flipped,
        told: "differs from process 0 in what stage 0 starts from: it has m/model.safetensors (",
    },
    Input {
        key: "model.path",
        config: PARTS,
        file: "parts/second.safetensors",
        change: flipped,
        told: "differs from process 0 in what stage 0 starts from: it has parts/second.safetensors (",
    },
    Input {
        key: "model.path",
        config: OWN,
        file: "own/model.safetensors",
        change: flipped,
        told: "differs from process 0 in what stage 0 starts from: it has own/model.safetensors (",
    },
    Input {
        key: "lora.path",
        config: ADAPTERS,
        file: "a/adapter_config.json",
        change: |own| other(own, "\"lora_alpha\": 6", "\"lora_alpha\": 7"),
        told: "was started with another config: it has `[lora] alpha = 7",
    },
    Input {
        key: "lora.path",
        config: ADAPTERS,
        file: "a/adapter_model.safetensors",
        change: flipped,
        told: "differs from process 0 in what stage 0 starts from: it has a/adapter_model.safetensors (",
    },
];

/// Keys with files that are compared in another way.
const ELSEWHERE: [&str; 4] = [
    // Stages compare a number of it: `src/pipeline/alike.rs`.
    "privacy.secret_file",
    // What another key has encrypted is refused when it is read: see `tests/encrypted/`.
    "checkpoint.key_file",
    // What is there is made of the data and the tokenizer.
    "data.cache",
    // Each process proves that it knows the secret: see `secrets.rs`.
    "launch.token_file",
];

const GPIPE: &str = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n";
const ONE_F_ONE_B: &str = "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";

/// One bit near the end is another one: in the last number of a file of weights.
fn flipped(mut own: Vec<u8>) -> Vec<u8> {
    let at = own.len() - 2;
    own[at] ^= 1;
    own
}

/// Two letters have each other's token.
fn renumbered(own: Vec<u8>) -> Vec<u8> {
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&own).unwrap();
    let vocab = &mut tokenizer["model"]["vocab"];
    let [e, t] = ["e", "t"].map(|letter| vocab[letter].clone());
    assert!(e.is_u64() && t.is_u64());
    (vocab["e"], vocab["t"]) = (t, e);
    tokenizer.to_string().into()
}

fn other(own: Vec<u8>, word: &str, instead: &str) -> Vec<u8> {
    let own = String::from_utf8(own).unwrap();
    has(&own, &[word]);
    own.replace(word, instead).into()
}

fn slower(own: Vec<u8>) -> Vec<u8> {
    let mut costs: serde_json::Value = serde_json::from_slice(&own).unwrap();
    costs["layers"][0]["forward"] = 1.0.into();
    costs.to_string().into()
}

/// A folder with all inputs.
fn with_all_inputs() -> Place {
    let place = Place::new();
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/golden");
    let copy = |from: &str, to: &str| fs::copy(golden.join(from), place.path(to)).unwrap();
    for folder in ["m", "a", "parts"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    for (from, to) in [
        ("tokenizer/tokenizer.json", "tokenizer.json"),
        ("hf/llama/config.json", "m/config.json"),
        ("hf/llama/config.json", "parts/config.json"),
        ("hf/llama/model.safetensors", "m/model.safetensors"),
        ("hf/llama/lora/adapter_config.json", "a/adapter_config.json"),
        ("hf/llama/lora/adapter_model.safetensors", "a/adapter_model.safetensors"),
    ] {
        copy(from, to);
    }
    in_parts(&place);
    let write = |name: &str, bytes: &[u8]| place.write(name, bytes);
    write("held.txt", "a lazy dog jumps over the quick brown fox. ".repeat(9).as_bytes());
    let tokens = (0..400_u16).flat_map(|token| (token % 96).to_le_bytes());
    write("tokens.bin", &tokens.collect::<Vec<_>>());
    write("mine.csv", GPIPE.as_bytes());
    let idx = |magic: u32, dims: &[u32], bytes: Vec<u8>| {
        let words = [&[magic], dims].concat();
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        [header, bytes].concat()
    };
    write("images", &idx(0x803, &[64, 2, 2], (0..=255).collect()));
    write("labels", &idx(0x801, &[64], (0..64).map(|image| image % 2).collect()));
    configure(&place, MEASURED.replace("costs = 'costs.json'", "").as_str());
    run(&place, &["profile", "my.toml"]);
    configure(&place, IMAGES);
    run(&place, &["train", "my.toml", "--run-dir", "of-images"]);
    run(&place, &["export", "of-images", "own"]);
    place
}

fn configure(place: &Place, config: &str) {
    let rest = match config.contains("micro_batches") || config.contains("[pipeline]") {
        true => REST.to_owned(),
        false => format!("[pipeline]\nstages = 2\n{REST}"),
    };
    place.write("my.toml", config.to_owned() + &rest);
}

fn run(place: &Place, args: &[&str]) {
    let mut command = Command::new(cargo_bin("pipewright"));
    let ended = command.current_dir(place.0.path()).args(args).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// The model's tensors in two files, with an index.
fn in_parts(place: &Place) {
    let whole = fs::read(place.path("m/model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&whole).unwrap();
    let mut all = tensors.tensors();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    let rest = all.split_off(all.len() / 2);
    let mut index = serde_json::Map::new();
    for (file, tensors) in [("first.safetensors", all), ("second.safetensors", rest)] {
        index.extend(tensors.iter().map(|(name, _)| (name.clone(), file.into())));
        fs::write(place.path("parts").join(file), safetensors::serialize(tensors, None).unwrap()).unwrap();
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": index});
    place.write("parts/model.safetensors.index.json", index.to_string());
}

#[test]
fn processes_whose_inputs_differ_are_refused_with_the_file() {
    let places = [with_all_inputs(), with_all_inputs()];
    // Measured twice, it has other times.
    fs::copy(places[0].path("costs.json"), places[1].path("costs.json")).unwrap();
    for Input { config, file, change, told, .. } in &INPUTS {
        for place in &places {
            configure(place, config);
        }
        let path = places[1].path(file);
        let own = fs::read(&path).unwrap();
        fs::write(&path, change(own.clone())).unwrap();
        let address = worlds::free_address();
        let start = |process: u32| {
            let member = places[process as usize].member(process, 2, &address, &[]);
            Started::new(member)
        };
        for process in end_all([0, 1].map(start).into()) {
            let said = process.failed(2);
            assert!(said.contains(&format!("process 1 {told}")), "{file}: {said}");
        }
        fs::write(path, own).unwrap();
    }
    for place in places {
        assert!(!place.path("runs").exists(), "no run has begun");
    }
}

#[test]
fn every_key_with_files_is_among_the_inputs() {
    let mut known: Vec<&str> = INPUTS.iter().map(|input| input.key).chain(ELSEWHERE).collect();
    known.extend(["pipeline.schedule"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
    let mut found = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The rows of the table of keys: `name: type = default`.
        let rows = text.lines().filter_map(|line| line.trim().split_once(": "));
        let is_name = |name: &str| name.chars().all(|letter| letter.is_lowercase() || letter == '_');
        let is_file = |kind: &str| {
            let (kind, _) = kind.split_once(" = ").unwrap_or_default();
            kind.contains("PathBuf") || kind == "Paths"
        };
        for (name, _) in rows.filter(|(name, kind)| is_name(name) && is_file(kind)) {
            found += 1;
            let end = format!(".{name}");
            assert!(
                known.iter().any(|key| key.ends_with(&end)),
                "{}: `{name}` names files: compare them in all processes, and test it here",
                path.display()
            );
        }
    }
    assert!(found >= 9, "{found}");
}

#[test]
fn weights_that_differ_are_refused_when_a_lost_process_comes_back() {
    let place = with_all_inputs();
    let elsewhere = with_all_inputs();
    for place in [&place, &elsewhere] {
        configure(place, MODEL);
    }
    let weights = elsewhere.path("m/model.safetensors");
    fs::write(&weights, flipped(fs::read(&weights).unwrap())).unwrap();
    let address = worlds::free_address();
    let args = [&LONG[..], &["--set", "train.restarts=1"]].concat();
    let mut running: Vec<Started> =
        (0..2).map(|process| Started::new(place.member(process, 2, &address, &args))).collect();
    place.await_steps();
    drop(running.pop());
    running.push(Started::new(elsewhere.member(1, 2, &address, &args)));
    for process in end_all(running) {
        has(&process.failed_somehow(), &["it has m/model.safetensors ("]);
    }
}
