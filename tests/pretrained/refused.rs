//! Folders that cannot be used say why.

use super::*;

/// A copy of a folder with these changes of its `config.json`.
fn changed(family: &str, changes: &[(&str, Value)]) -> TempDir {
    let scratch = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(folder(family).join("config.json")).expect("readable");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    fs::write(scratch.path().join("config.json"), config.to_string()).expect("written");
    scratch
}

/// The message without the folder's path.
fn said(folder: &Path, error: impl ToString) -> String {
    error.to_string().replace(&folder.display().to_string(), "F")
}

fn refusal(family: &str, changes: &[(&str, Value)]) -> String {
    let scratch = changed(family, changes);
    said(scratch.path(), read_config(scratch.path()).expect_err("refused"))
}

#[test]
fn settings_for_which_there_is_no_layer_are_named() {
    for (family, key, value, expected) in [
        ("llama", "hidden_act", json!("gelu"), "hidden_act is \"gelu\", it must be `silu`"),
        (
            "llama",
            "mlp_bias",
            json!(true),
            "mlp_bias is true, it must be false, because this program has no such layer",
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "longrope"}),
            "rope_parameters.rope_type is \"longrope\", it must be `default`, `linear`, `llama3` or `yarn`",
        ),
        (
            "llama",
            "hidden_size",
            json!("wide"),
            "hidden_size is \"wide\", it must be a whole number of at most 16777216",
        ),
        ("llama", "vocab_size", Value::Null, "vocab_size is null, it must be a value, or left out"),
        ("llama", "hidden_act", json!(5), "hidden_act is 5, it must be `silu`"),
        (
            "llama",
            "rope_parameters",
            json!("linear"),
            "rope_parameters is \"linear\", it must be an object with keys and values",
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "linear"}),
            "rope_parameters.factor is missing, it must be a number",
        ),
        (
            "llama",
            "num_hidden_layers",
            json!(1001),
            "num_hidden_layers is 1001, it must be a whole number of at most 1000",
        ),
        (
            "llama",
            "hidden_size",
            json!(1_u64 << 62),
            "hidden_size is 4611686018427387904, it must be a whole number of at most 16777216",
        ),
        ("llama", "rms_norm_eps", json!(0), "rms_norm_eps is 0, it must be above 0"),
        (
            "llama",
            "tie_word_embeddings",
            json!("yes"),
            "tie_word_embeddings is \"yes\", it must be true or false",
        ),
        (
            "mixtral",
            "num_experts_per_tok",
            json!(5),
            "num_experts_per_tok is 5, it must be 1 to num_local_experts",
        ),
        ("mixtral", "router_jitter_noise", json!(0.1), "router_jitter_noise is 0.1, it must be 0"),
        ("gpt2", "n_inner", json!(33), "n_inner is 33, it must be four times n_embd"),
    ] {
        assert_eq!(refusal(family, &[(key, value)]), format!("`F/config.json`: {expected}"));
    }
    for (key, value) in [("head_dim", 7), ("num_key_value_heads", 3), ("vocab_size", 0)] {
        let odd = refusal("llama", &[(key, json!(value))]);
        assert!(odd.starts_with("`F/config.json`: no model has these settings: "), "{odd}");
    }
    assert_eq!(
        refusal("llama", &[("architectures", json!(["BertModel"]))]),
        "`F/config.json`: `BertModel` is not known; known are GPT2LMHeadModel, LlamaForCausalLM, \
         MistralForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, and \
         ...ForSequenceClassification of each"
    );
}

#[test]
fn a_folder_without_its_files_is_none() {
    let scratch = tempfile::tempdir().expect("a folder");
    let error = read_config(scratch.path()).expect_err("there is no config.json");
    assert_eq!(
        said(scratch.path(), error),
        "`F` is no model's folder: it has no config.json; a folder of Hugging Face has one, and `pipewright \
         import` makes one from a .gguf file"
    );
    fs::write(scratch.path().join("config.json"), "{").expect("written");
    let error = read_config(scratch.path()).expect_err("no JSON");
    assert!(said(scratch.path(), error).starts_with("`F/config.json`: EOF"));
    let scratch = changed("llama", &[]);
    let architecture = read_config(scratch.path()).expect("known");
    let error = Weights::open(scratch.path(), &architecture).expect_err("no weights");
    assert!(said(scratch.path(), error).starts_with("`F` has no weights: neither model.safetensors nor"));
}

#[test]
fn all_tensors_that_do_not_fit_are_named_at_once() {
    let changes =
        [("num_hidden_layers", json!(1)), ("intermediate_size", json!(49)), ("vocab_size", json!(96))];
    let scratch = changed("llama", &changes);
    let file = scratch.path().join("model.safetensors");
    fs::copy(folder("llama").join("model.safetensors"), &file).expect("copied");
    let architecture = read_config(scratch.path()).expect("known");
    let message =
        said(scratch.path(), Weights::open(scratch.path(), &architecture).expect_err("other tensors"));
    assert!(message.starts_with("`F` does not have the tensors of its config.json:\n"), "{message}");
    for line in [
        "model.layers.0.mlp.gate_proj.weight is [48, 32], the model has [49, 32]",
        "model.layers.0.mlp.down_proj.weight is [32, 48], the model has [32, 49]",
        "model.layers.1.input_layernorm.weight is no part of this model",
    ] {
        has(&message, &[&format!("\n  {line}")]);
    }
    let untied = changed("llama", &[("tie_word_embeddings", json!(false))]);
    fs::copy(&file, untied.path().join("model.safetensors")).expect("copied");
    let architecture = read_config(untied.path()).expect("known");
    let message = said(untied.path(), Weights::open(untied.path(), &architecture).expect_err("no head"));
    assert!(message.ends_with(":\n  lm_head.weight is missing"), "{message}");
    let bytes = fs::read(&file).expect("readable");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("written");
    let architecture = read_config(&folder("llama")).expect("known");
    let message = said(scratch.path(), Weights::open(scratch.path(), &architecture).expect_err("damaged"));
    assert!(message.starts_with("`F/model.safetensors` is damaged: it has"), "{message}");
}

#[test]
fn an_index_of_files_that_are_not_in_its_folder_is_refused() {
    let scratch = changed("qwen3", &[]);
    let architecture = read_config(scratch.path()).expect("known");
    let refused = |index: Value| {
        let path = scratch.path().join("model.safetensors.index.json");
        fs::write(path, index.to_string()).expect("written");
        let error = Weights::open(scratch.path(), &architecture).expect_err("refused");
        said(scratch.path(), error)
    };
    for name in ["model-00001-of-00005.safetensors", "../x", "/dev/zero", ".."] {
        assert_eq!(
            refused(json!({"weight_map": {"model.norm.weight": name}})),
            format!(
                "`F/model.safetensors.index.json` names `{name}`, which is not in its folder: fetch all \
                 files again"
            )
        );
    }
    let is_named = |index: Value| refused(index).starts_with("`F/model.safetensors.index.json`: ");
    assert!(is_named(json!({})) && is_named(json!({"weight_map": ["x"]})));
    fs::create_dir(scratch.path().join("x.safetensors")).expect("made");
    assert_eq!(
        refused(json!({"weight_map": {"model.norm.weight": "x.safetensors"}})),
        "`F/x.safetensors` is not a regular file"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_is_no_model() {
    let scratch = tempfile::tempdir().expect("a folder");
    let error = import(Path::new("/dev/zero"), &scratch.path().join("new")).expect_err("refused");
    assert_eq!(error.to_string(), "`/dev/zero` is not a regular file");
}

#[test]
fn what_is_no_gguf_file_is_refused() {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("model.gguf");
    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("written");
        let error = import(&file, &scratch.path().join("new")).expect_err("refused");
        said(scratch.path(), error)
    };
    let at = "`F/model.gguf` is no .gguf file: ";
    assert_eq!(refused(b"PK\x03\x04 and so on"), format!("{at}it does not begin with GGUF"));
    assert_eq!(refused(b"GGUF\x03\0\0\0"), format!("{at}it ends in its header"));
    assert_eq!(refused(b"GGUF\x01\0\0\0"), format!("{at}its version is 1, versions 2 and 3 are read"));
    assert!(!scratch.path().join("new").exists());
}
