//! A run with adapters, through the commands.

use super::*;

const CONFIG: &str = "[data]\nkind = 'tokens'\npath = 'tokens.bin'\nseq = 16\nvalidation = 0.0\n\
                      [pipeline]\nmicro_batches = 2\nmicro_batch_size = 1\n\
                      [train]\nsteps = 3\nvalidate_every = 0\n";

/// A folder with a config, and tokens from 0 to 95.
fn place() -> Place {
    let place = Place::new();
    let model = format!("[model]\npath = {:?}\n", llama());
    place.write("my.toml", model + CONFIG);
    let tokens: Vec<u8> = (0..400_u16).flat_map(|token| (token % 96).to_le_bytes()).collect();
    place.write("tokens.bin", tokens);
    place
}

#[test]
fn a_run_with_adapters_writes_text_and_is_exported() {
    let place = place();
    let lora = ["--set", "lora.rank=2", "--set", "lora.targets=[\"*.attn.q\", \"*.mlp.down\"]"];
    let train = [&["train", "my.toml"][..], &lora].concat();
    let said = place.run(&train).done().stdout();
    // Two blocks, each with 2 x (32 + 32) and 2 x (48 + 32) numbers.
    has(&said, &["parameters, of which 576 are trained"]);
    let sample = |from: &str| {
        let args = ["sample", from, "--prompt", "1 2 3", "--tokens", "4", "--temperature", "0"];
        place.run(&args).done().stdout()
    };
    let text = sample("runs/run");
    assert!(text.starts_with("1 2 3"), "{text}");

    let said = place.run(&["export", "runs/run", "adapters"]).done().stdout();
    assert_eq!(said, "adapters: adapters of llama, after 3 steps\n");
    let mut files: Vec<_> = fs::read_dir(place.path("adapters")).unwrap().collect();
    assert_eq!(files.drain(..).filter(Result::is_ok).count(), 2);
    let said = place.run(&["export", "runs/run", "merged", "--merge"]).done().stdout();
    assert_eq!(said, "merged: llama, after 3 steps\n");
    assert_eq!(sample("merged"), text);

    // Training starts with the adapters of the folder.
    let again = ["train", "my.toml", "--set", "lora.path=adapters", "--set", "train.name=again"];
    has(&place.run(&again).done().stdout(), &["of which 576 are trained"]);

    let described = place.text("adapters/adapter_config.json");
    let described = described.replace("\"r\":", "\"lora_gamma\": 1, \"r\":");
    place.write("adapters/adapter_config.json", described);
    let told = place.run(&[&again[..4], &["--set", "train.name=told"]].concat()).done().stderr();
    let line =
        "warning: adapters/adapter_config.json: lora_gamma: neither PEFT 0.21 nor this program knows it";
    has(&told, &[line]);
}

#[test]
fn keys_of_the_folder_that_training_started_from_are_told_and_exported() {
    let place = place();
    let golden = llama();
    fs::create_dir(place.path("model")).unwrap();
    fs::copy(golden.join("model.safetensors"), place.path("model/model.safetensors")).unwrap();
    let keys =
        |path: PathBuf| -> serde_json::Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let mut described = keys(golden.join("config.json"));
    for (key, value) in [("bos_token_id", 3), ("eos_token_id", 7), ("pad_token_id", 4)] {
        described[key] = value.into();
    }
    described["attention_dropout"] = 0.5.into();
    place.write("model/config.json", described.to_string());
    let said = place.run(&["train", "my.toml", "--set", "model.path=model"]).done().stderr();
    let told = "warning: model/config.json: attention_dropout is 0.5: transformers trains with it";
    has(&said, &[told]);
    place.run(&["export", "runs/run", "out"]).done();
    let written = keys(place.path("out/config.json"));
    for key in ["bos_token_id", "eos_token_id", "pad_token_id", "attention_dropout"] {
        assert_eq!(written[key], described[key], "{key}");
    }
    let said = place.run(&["sample", "out", "--prompt", "1 2", "--tokens", "2"]).done().stderr();
    assert_eq!(said, "", "dropout has no effect there");
}

#[test]
fn what_cannot_be_merged_or_is_more_than_adapters_is_refused() {
    let place = place();
    place.run(&["train", "my.toml"]).done().stdout();
    let said = place.run(&["export", "runs/run", "new", "--merge"]).refused();
    has(&said, &["has no adapters to merge: leave --merge out"]);
    let groups = "optimizer.groups=[{ parameters = [\"ln_f.weight\"] }]";
    let set = ["--set", "train.name=both", "--set", "lora.rank=2", "--set", groups];
    place.run(&[&["train", "my.toml"][..], &set].concat()).done().stdout();
    let said = place.run(&["export", "runs/both", "new"]).refused();
    has(&said, &["ln_f.weight was trained besides the adapters"]);
    assert!(!place.path("new").exists());
}

#[test]
fn a_base_whose_blocks_are_too_wide_is_refused_with_the_one_that_fits() {
    let place = place();
    let base = |base: &'static str| ["lora.rank=2", base].to_vec();
    let said = place.run_with(&["train", "my.toml"], &base("model.base=q4")).refused();
    has(&said, &["model.base: no frozen matrix has rows of whole blocks of 64 numbers: take \"q8\""]);
    let said = place.run_with(&["train", "my.toml", "--steps", "1"], &base("model.base=q8")).done();
    has(&said.stdout(), &["done: 1 step"]);
}
