//! Keys that a folder's files have, leave out or contradict.

use pipewright::pretrained::{ends, keep_keys, told_of_choice, told_of_model};

use super::*;

/// The model of a `config.json` with these keys alone.
fn of_keys(config: &Value) -> Architecture {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::write(scratch.path().join("config.json"), config.to_string()).expect("written");
    read_config(scratch.path()).expect("a known model")
}

/// The values are as in `LlamaConfig()` and so on.
#[test]
fn keys_that_are_left_out_are_as_in_transformers() {
    for (kind, vocab, ffn, key_value, width, context, theta, epsilon, window) in [
        ("llama", 32_000, 11_008, 32, 128, 2048, 1e4, 1e-6, None),
        ("mistral", 32_000, 14_336, 8, 128, 131_072, 1e4, 1e-6, Some(4096)),
        ("mixtral", 32_000, 14_336, 8, 128, 131_072, 1e6, 1e-5, None),
        ("qwen2", 151_936, 22_016, 32, 128, 32_768, 1e4, 1e-6, None),
        ("qwen3", 151_936, 22_016, 32, 128, 32_768, 1e4, 1e-6, None),
    ] {
        let Architecture::Llama(family, model, _) = of_keys(&json!({"model_type": kind})) else {
            panic!("{kind} is no GPT-2");
        };
        assert_eq!(family.name(), kind);
        assert_eq!((model.dim, model.layers, model.heads.query), (4096, 32, 32), "{kind}");
        assert_eq!((model.vocab, model.ffn, model.context), (vocab, ffn, context), "{kind}");
        assert_eq!((model.heads.key_value, model.heads.width), (key_value, width), "{kind}");
        assert_eq!((model.rope.theta, model.epsilon), (theta, epsilon), "{kind}");
        assert_eq!((model.window, model.tied), (window, false), "{kind}");
    }
    let small = json!({
        "model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4
    });
    let Architecture::Llama(_, qwen3, _) = of_keys(&small) else {
        panic!("it is a Qwen-3");
    };
    assert_eq!(qwen3.heads.width, 128, "not 64 / 4");
    let Architecture::Gpt2(gpt, _) = of_keys(&json!({"model_type": "gpt2"})) else {
        panic!("it is a GPT-2");
    };
    assert_eq!((gpt.vocab, gpt.dim, gpt.layers), (50_257, 768, 12));
    assert_eq!((gpt.heads, gpt.context, gpt.tied), (12, 1024, true));
}

#[test]
fn a_head_beside_a_tied_embedding_is_refused_unless_it_is_the_same() {
    let scratch = changed("llama", &json!({}));
    let file = scratch.path().join("model.safetensors");
    let bytes = fs::read(&file).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let embedding = tensors.tensor("model.embed_tokens.weight").expect("it has one");
    let architecture = read_config(scratch.path()).expect("known");
    let with_head = |dims: &[usize], head: &[u8]| {
        let head = TensorView::new(Dtype::F32, dims.to_vec(), head).expect("the bytes fill it");
        let all = tensors.tensors().into_iter().chain([("lm_head.weight".to_owned(), head)]);
        fs::write(&file, safetensors::serialize(all, None).expect("serialised")).expect("written");
        Weights::open(scratch.path(), &architecture)
    };
    let same = embedding.data().to_vec();
    with_head(&[96, 32], &same).expect("the same numbers");
    let mut other = same.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    for (dims, head) in [([96, 32], &other[..]), ([95, 32], &other[..95 * 32 * 4])] {
        let said = with_head(&dims, head).expect_err("another head").to_string();
        let line = "\n  lm_head.weight is not the token embedding, although tie_word_embeddings is true: set \
                    that to false in config.json to have both, as transformers does";
        assert!(said.ends_with(line), "{said}");
    }
}

#[test]
fn architectures_that_are_null_are_left_out() {
    let scratch = changed("llama", &json!({"architectures": "null"}));
    assert!(matches!(read_config(scratch.path()), Ok(Architecture::Llama(..))));
}

#[test]
fn the_padding_token_is_that_of_transformers() {
    for (found, expected) in
        [(json!("null"), None), (json!(0), Some(0)), (json!(95), Some(95)), (json!(-1), Some(95))]
    {
        let scratch = changed("llama", &json!({"pad_token_id": found}));
        let Architecture::Llama(_, llama, _) = read_config(scratch.path()).expect("known") else {
            panic!("it is a Llama");
        };
        assert_eq!(llama.padding, expected, "{found}");
    }
    for wrong in [json!(96), json!(-97), json!([1])] {
        let scratch = changed("llama", &json!({"pad_token_id": wrong}));
        let said = read_config(scratch.path()).expect_err("no such token").to_string();
        let expected = "it must be a number below vocab_size, or null";
        has(&said, &[expected]);
    }
}

#[test]
fn the_ends_of_a_text_are_those_that_transformers_takes() {
    for (config, generation, expected) in [
        (json!({"eos_token_id": 7}), None, vec![7]),
        (json!({"eos_token_id": [7, 8]}), None, vec![7, 8]),
        (json!({"eos_token_id": null}), None, vec![2]),
        (json!({"eos_token_id": "null"}), None, vec![]),
        (json!({"eos_token_id": 7}), Some(json!({"eos_token_id": [5, 6]})), vec![5, 6]),
        // transformers does not look into config.json then.
        (json!({"eos_token_id": 7}), Some(json!({})), vec![]),
    ] {
        let scratch = changed("llama", &config);
        if let Some(generation) = &generation {
            let path = scratch.path().join("generation_config.json");
            fs::write(path, generation.to_string()).expect("written");
        }
        let got = ends(scratch.path()).expect("numbers of tokens");
        assert_eq!(got, expected, "{config}, {generation:?}");
    }
    let scratch = changed("llama", &json!({"eos_token_id": "</s>"}));
    let said = ends(scratch.path()).expect_err("no number").to_string();
    assert!(
        said.ends_with("eos_token_id is \"</s>\", it must be the number of a token, or a list of numbers"),
        "{said}"
    );
}

#[test]
fn keys_that_are_none_of_the_model_stay_when_it_is_exported() {
    let changes = json!({
        "bos_token_id": 3, "eos_token_id": [7, 8], "pad_token_id": 4, "attention_dropout": 0.25,
        "my_key": "x", "torch_dtype": "bfloat16", "rope_theta": 5.0,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0}
    });
    let source = changed("llama", &changes);
    let removed = json!({"vocab_size": 128, "attention_dropout": null});
    let trained = changed("llama", &removed);
    keep_keys(source.path(), trained.path()).expect("written");
    let text = fs::read(trained.path().join("config.json")).expect("readable");
    let kept: Value = serde_json::from_slice(&text).expect("JSON");
    for (key, value) in [
        ("bos_token_id", json!(3)),
        ("eos_token_id", json!([7, 8])),
        ("pad_token_id", json!(4)),
        ("attention_dropout", json!(0.25)),
        ("my_key", json!("x")),
        ("vocab_size", json!(128)),
        ("dtype", json!("float32")),
        ("torch_dtype", Value::Null),
        ("rope_theta", Value::Null),
        ("rope_scaling", Value::Null),
    ] {
        assert_eq!(kept[key], value, "{key}");
    }
}

#[test]
fn what_is_not_used_is_told() {
    let changes = json!({"logits_scaling": 8.0, "attention_dropout": 0.25, "model_max": 1});
    let scratch = changed("llama", &changes);
    let path = scratch.path();
    let without = |lines: Vec<String>| {
        let text = lines.join("\n");
        text.replace(&path.display().to_string(), "F")
    };
    let unread = "F/config.json: logits_scaling, model_max changes nothing: neither transformers nor this \
                  program reads it for this model";
    assert_eq!(without(told_of_model(path, false).expect("readable")), unread);
    let told = told_of_model(path, true).expect("readable");
    let dropout = "F/config.json: attention_dropout is 0.25: transformers trains with it, this program does \
                   not; there is no such setting here";
    assert_eq!(without(told), format!("{unread}\n{dropout}"));
    let generation = json!({"temperature": 0.6, "top_p": 0.9, "eos_token_id": 2, "do_sample": true});
    fs::write(path.join("generation_config.json"), generation.to_string()).expect("written");
    let of_choice = "F/generation_config.json: temperature is 0.6, top_p is 0.9: transformers computes with \
                     it, this program does not; the options of the command say how tokens are chosen";
    assert_eq!(without(told_of_choice(path).expect("readable")), of_choice);
    let absent = changed("gpt2", &json!({"attn_pdrop": null, "resid_pdrop": null}));
    let told = told_of_model(absent.path(), true).expect("readable").join("\n");
    assert!(
        told.ends_with(
            "resid_pdrop is 0.1, attn_pdrop is 0.1: transformers trains with it, this program does not; \
             model.dropout sets dropout of embeddings and blocks, none is of attention"
        ),
        "{told}"
    );
}
