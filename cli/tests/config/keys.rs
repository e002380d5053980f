use pipewright_cli::error::{ConfigError, Origin, ValueProblem};

use super::*;

#[test]
fn unknown_keys_and_sections_name_the_place_and_the_nearest_right_one() {
    all_refused(&[
        (
            "\n\n[optimizer]\nlerning_rate = 1",
            &["my.toml:4: unknown key optimizer.lerning_rate", "did you mean `learning_rate`?"],
        ),
        ("[pipeline]\nmicrobatches = 1", &["my.toml:2: ", "did you mean `micro_batches`?"]),
        ("[model]\nsteps = 5", &["unknown key model.steps: it belongs to [train]"]),
        ("[metrics]\nzzz = 5", &["unknown key metrics.zzz: keys of [metrics]: listen"]),
        ("[optimiser]\nkind = 'sgd'", &["my.toml:1: unknown section [optimiser]: did you mean [optimizer]?"]),
        ("[zzz]", &["unknown section [zzz] (sections: model, lora, data, pipeline"]),
        ("steps = 5", &["my.toml:1: `steps` is in no section: did you mean train.steps?"]),
        ("seed = 5", &["did you mean model.seed or data.seed?"]),
        ("zzz = 5", &["`zzz` is in no section: every key belongs to a section"]),
    ]);
}

#[test]
fn names_that_other_programs_have_for_a_key_are_known() {
    all_refused(&[
        ("[optimizer]\nlr = 1", &["unknown key optimizer.lr: did you mean `learning_rate`?"]),
        ("[model]\nhidden_size = 1", &["did you mean `dim`?"]),
        ("[model]\nblock_size = 1", &["did you mean data.seq?"]),
        ("lr = 1", &["`lr` is in no section: did you mean optimizer.learning_rate?"]),
        (
            "[train]\nnum_train_epochs = 3",
            &["did you mean train.steps (it counts steps, each of all rows of a batch, and not epochs)?"],
        ),
        ("[train]\nbf16 = true", &["did you mean pipeline.dtype (write pipeline.dtype = \"bf16\")?"]),
        (
            "[train]\nseed = 1",
            &["did you mean model.seed (it is for weights and dropout; data.seed is for the order of rows)?"],
        ),
        ("[train]\nwd = 0.1", &["did you mean optimizer.weight_decay?"]),
        ("[model]\ntype = 'gpt'", &["did you mean `kind`?"]),
        ("[data]\ntype = 'text'", &["did you mean `kind`?"]),
        ("[optimizer]\nname = 'adamw'", &["did you mean `kind`?"]),
        ("[train]\nlora_alpha = 16", &["did you mean lora.alpha?"]),
        (
            "[train]\noutput_dir = 'here'",
            &["did you mean train.name (the run is in runs/NAME; --run-dir names another folder)?"],
        ),
        (
            "[train]\nearly_stopping = true",
            &["there is no early stopping: the run keeps its best checkpoint, and Ctrl-C saves and ends it"],
        ),
        ("[train]\ngradient_accumulation_steps = 4", &["did you mean pipeline.micro_batches?"]),
    ]);
}

#[test]
fn values_that_other_programs_have_are_known() {
    all_refused(&[
        ("[data]\nkind = 'csv'", &["got \"csv\": a program of your own reads it, by `data::Table`"]),
        (
            "[lora]\ntargets = 'all-linear'",
            &["expected a list, got \"all-linear\": write [\"*.attn.*\", \"*.mlp.*\"]"],
        ),
        ("[pipeline]\nrecompute = true", &["got true: write pipeline.recompute = \"full\" or \"selective\""]),
    ]);
}

#[test]
fn every_value_of_another_program_gets_what_to_write_instead() {
    for set in [
        "data.kind=csv",
        "data.kind=mnist",
        "data.loss_on=assistant",
        "data.loss_on=completion",
        "lora.targets=all-linear",
        "optimizer.kind=adam",
        "optimizer.kind=adamw_torch",
        "optimizer.kind=adamw_torch_fused",
        "optimizer.kind=fusedadam",
        "optimizer.schedule=constant_with_warmup",
        "optimizer.schedule=cosine_with_warmup",
        "pipeline.devices=gpu",
        "pipeline.devices=mps",
        "pipeline.devices=rocm",
        "pipeline.dtype=16-mixed",
        "pipeline.dtype=bfloat16",
        "pipeline.dtype=bf16-mixed",
        "pipeline.dtype=f16",
        "pipeline.dtype=float16",
        "pipeline.dtype=float32",
        "pipeline.dtype=fp16",
        "pipeline.dtype=half",
        "pipeline.recompute=true",
        "pipeline.recompute=false",
    ] {
        let said = Config::parse("my.toml", "", &[], &[set.to_owned()]).unwrap_err().to_string();
        let (_, instead) = said.split_once(", got ").expect(set);
        assert!(instead.contains(": ") && !instead.contains("did you mean"), "{said}");
    }
}

#[test]
fn a_variable_with_one_underscore_is_told_and_others_are_passed_over() {
    let said = |name: &str| {
        let variable = [(name.to_owned(), "3".to_owned())];
        Config::parse("my.toml", "", &variable, &[]).map(|_| ())
    };
    let refusal = said("PIPEWRIGHT_MODEL_DIM").unwrap_err();
    assert!(matches!(refusal, Error::Config(_)), "{refusal:?}");
    assert_eq!(
        refusal.to_string(),
        "environment variable PIPEWRIGHT_MODEL_DIM sets nothing: two underscores stand between section and \
         key, write PIPEWRIGHT_MODEL__DIM"
    );
    said("PIPEWRIGHT_CUDA_LIBS").unwrap();
    said("PIPEWRIGHT_HOME").unwrap();
}

#[test]
fn a_refusal_has_its_place_and_its_kind_in_fields() {
    let error = parse("[model]\n\ndim = 0").unwrap_err();
    let Error::Config(error) = error else {
        panic!("{error:?}");
    };
    let ConfigError::Value { origin, key, problem } = *error else {
        panic!("{error:?}");
    };
    let line = Origin::File { name: "my.toml".to_owned(), line: 3 };
    assert_eq!((origin, key.as_str()), (Some(line), "model.dim"));
    assert!(matches!(*problem, ValueProblem::Zero), "{problem:?}");
}

#[test]
fn set_and_environment_are_named_as_the_place() {
    assert!(
        refused(with_sets("", &["model.dmi=3"]))
            .starts_with("--set: unknown key model.dmi: did you mean `dim`?")
    );
    assert!(refused(with_sets("", &["modle.dim=3"])).starts_with("--set: unknown section [modle]"));
    assert!(refused(with_sets("", &["steps=3"])).contains("did you mean train.steps?"));
    assert!(
        refused(with_sets("", &["train.steps"])).contains("--set train.steps: expected section.key=value")
    );
    let variable = [("PIPEWRIGHT_MODEL__DIM".to_owned(), "wide".to_owned())];
    let said = refused(Config::parse("my.toml", "", &variable, &[]));
    assert!(
        said.starts_with("environment variable PIPEWRIGHT_MODEL__DIM: model.dim: expected a whole"),
        "{said}"
    );
}

#[test]
fn keys_of_another_kind_are_refused() {
    all_refused(&[
        (
            "[model]\nkind = 'mlp'\ndim = 3\n[data]\nkind = 'idx'",
            &["my.toml:3: model.dim is for model.kind = \"gpt\"", "\"mlp\""],
        ),
        (
            "[optimizer]\nmomentum = 0.5",
            &["my.toml:2: optimizer.momentum is for optimizer.kind = \"muon\" or \"sgd\""],
        ),
        (
            "[optimizer]\nwarmup_steps = 5",
            &["is for optimizer.schedule = \"cosine\"", "and this config has \"constant\""],
        ),
        (
            "[optimizer]\nschedule = 'linear'\ndecay_steps = 5",
            &["is for optimizer.schedule = \"wsd\", and this config has \"linear\""],
        ),
        ("[data]\nkind = 'tokens'\nlabels = 'x'", &["data.labels is for data.kind = \"idx\""]),
        (
            "[data]\nkind = 'text'\nloss_on = 'answers'",
            &["my.toml:3: data.loss_on is for data.kind = \"jsonl\" or \"parquet\""],
        ),
        ("[data]\nkind = 'idx'\npacking = false", &["data.packing is for data.kind = "]),
    ]);
}

/// Its row, its use, and the guide, which follows from the row.
#[test]
fn a_key_is_in_three_files() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let product = ["src", "cli/src", "schedule/src", "stages/src", "book/src/config.md"];
    let mut paths: Vec<PathBuf> = product.iter().map(|path| root.join(path)).collect();
    let mut texts = Vec::new();
    while let Some(path) = paths.pop() {
        match fs::read_dir(&path) {
            Ok(folder) => paths.extend(folder.map(|entry| entry.unwrap().path())),
            Err(_) => texts.extend(fs::read_to_string(&path).map(|text| (path, text))),
        }
    }
    for key in ["label_smoothing", "print_every", "sample_seed", "sample_temperature"] {
        let named = texts.iter().filter(|(_, text)| text.contains(key));
        let named: Vec<&PathBuf> = named.map(|(path, _)| path).collect();
        assert_eq!(named.len(), 3, "{key}: {named:?}");
    }
    let guide = fs::read_to_string(root.join("book/src/config.md")).unwrap();
    let rows = guide.lines().filter_map(|row| row.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.trim_start_matches('[').strip_prefix('`'));
    let keys = rows.filter_map(|row| row.split_once('`')).map(|(key, _)| key);
    for key in keys.filter(|key| key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')) {
        let used = format!(".{key}");
        let uses = |(path, text): &(PathBuf, String)| text.contains(&used) && !path.ends_with("sections.rs");
        assert!(texts.iter().any(uses), "nothing uses the key {key}");
    }
}

#[test]
fn a_file_that_is_no_toml_or_is_missing_is_named() {
    all_refused(&[
        ("[model\ndim = 3", &["my.toml:1: "]),
        ("{\n\"model\": {}\n}", &["my.toml:1: ", "and this looks like JSON"]),
        ("# a run\nmodel:\n  kind: gpt\n", &["my.toml:2: ", "and this looks like YAML"]),
        ("[model]\ndim = 3\ndim = 4", &["my.toml:3: duplicate key: `dim`"]),
        ("[model]\ndim = ", &["my.toml:2: "]),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let expected = format!("`{}` is a folder, and a config is a file", path.display());
    assert_eq!(Config::load(path, &[]).unwrap_err().to_string(), expected);
    std::fs::write(path.join("run.json"), "{}").unwrap();
    let said = Config::load(path, &[]).unwrap_err().to_string();
    let cure = format!("; its run goes on by `pipewright train --resume --run-dir {}`", path.display());
    assert_eq!(said, expected + &cure);
    let error = Config::load(Path::new("no/such.toml"), &[]).unwrap_err();
    assert!(error.to_string().starts_with("cannot read no/such.toml: "), "{error}");
}

#[test]
fn a_seed_that_toml_cannot_hold_is_refused_with_the_largest_one() {
    let said = refused(with_sets("", &["model.seed=18446744073709551615"]));
    let told = "model.seed: expected a whole number from 0 to 9223372036854775807, the largest in TOML, got";
    has(&said, &[told]);
    assert_eq!(
        with_sets("", &["model.seed=9223372036854775807"]).expect("the largest").model.seed,
        i64::MAX as u64
    );
}
