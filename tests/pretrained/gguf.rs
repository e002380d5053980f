//! Files of llama.cpp.

use pipewright::stages::layers::RopeScaling;
use pipewright::tokenizer::Tokenizer;

use super::*;
use crate::files::{Gguf, small, text};

#[test]
fn a_file_becomes_a_folder_with_weights_settings_and_vocabulary() {
    let mut file = small();
    // Quantised by Q8_0: a scale of 1/2, then 32 numbers.
    let block = [&[0x00, 0x38][..], &[4; 32]].concat();
    file.tensor("blk.0.attn_output.weight", &[32, 32], 8, &block.repeat(32));
    let scratch = tempfile::tempdir().expect("a folder");
    let (path, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    fs::write(&path, file.bytes()).expect("written");
    let imported = import(&path, &folder).unwrap_or_else(|error| panic!("{error}"));
    assert!(imported.has_tokenizer);
    let architecture = read_config(&folder).expect("known");
    assert_eq!(architecture, imported.architecture);
    let weights = Weights::open(&folder, &architecture).expect("all tensors");
    let read = |name: &str, dims: &[usize]| {
        let mut parameter = Parameter::new(name, dims, Init::Zeros, 0);
        weights.read(&mut parameter).expect("readable");
        parameter.value.to_vec()
    };
    assert_eq!(read("h.0.attn.out.weight", &[32, 32]), [2.0; 32 * 32]);
    let qkv = read("h.0.attn.qkv.weight", &[64, 32]);
    // The rows of a head of q and k were neighbours in pairs; the rows of v lie as they lay.
    let firsts: Vec<f32> = qkv.chunks(32).map(|row| row[0] / 32.0).collect();
    let head = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
    assert_eq!(firsts[..16], head);
    assert_eq!(firsts[16..32], head.map(|row| row + 16.0));
    assert_eq!(firsts[32..48], head);
    assert_eq!(
        firsts[48..],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    );
    let tokenizer = Tokenizer::read(&folder).expect("a tokenizer");
    assert_eq!(tokenizer.encode("abba<|end|>").expect("encoded"), [3, 2, 1, 0]);
}

#[test]
fn what_looks_the_same_has_the_same_tokens_of_qwen_2() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (split, is_composed) in [("qwen2", true), ("smollm", false)] {
        let mut file = small();
        file.tensor("blk.0.attn_output.weight", &[32, 32], 0, &[0; 4096]);
        file.value("tokenizer.ggml.pre", 8, &text(split));
        file.texts("tokenizer.ggml.tokens", &["<|end|>", "Ã", "©", "Ã©"]);
        file.texts("tokenizer.ggml.merges", &["Ã ©"]);
        let (path, folder) = (scratch.path().join("m.gguf"), scratch.path().join(split));
        fs::write(&path, file.bytes()).expect("written");
        import(&path, &folder).unwrap_or_else(|error| panic!("{error}"));
        let tokenizer = Tokenizer::read(&folder).expect("a tokenizer");
        assert_eq!(tokenizer.encode("\u{e9}").expect("encoded"), [3], "{split}");
        let apart = tokenizer.encode("e\u{301}").expect("encoded");
        assert_eq!(apart == [3], is_composed, "{split}: {apart:?}");
    }
}

#[test]
fn a_file_with_other_tensors_or_other_numbers_is_refused() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("m.gguf");
    let refused = |file: &Gguf| {
        fs::write(&path, file.bytes()).expect("written");
        let error = import(&path, &scratch.path().join("m")).expect_err("refused").to_string();
        assert!(!scratch.path().join("m").exists(), "nothing is made");
        error.replace(&path.display().to_string(), "F")
    };
    let said = refused(&small());
    assert!(said.ends_with(":\n  blk.0.attn_output.weight is missing"), "{said}");
    let mut file = small();
    file.tensor("blk.0.attn_output.weight", &[32, 32], 16, &[0; 1024]);
    assert_eq!(
        refused(&file),
        "`F`: blk.0.attn_output.weight is quantised in a way that this program does not read (type 16 of \
         ggml); it reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K"
    );
    let mut file = Gguf::default();
    file.value("general.architecture", 8, &text("bert"));
    assert_eq!(refused(&file), "`F`: `bert` is not known; known are llama, qwen2, qwen3");
}

/// A whole file.
fn whole() -> Gguf {
    let mut file = small();
    file.numbers("blk.0.attn_output.weight", &[32, 32], 0.0);
    file
}

/// The file's folder and its JSON files, or why it is refused.
fn imported(file: &Gguf) -> Result<(Architecture, impl Fn(&str) -> Value), String> {
    let scratch = tempfile::tempdir().expect("a folder");
    let (path, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    fs::write(&path, file.bytes()).expect("written");
    match import(&path, &folder) {
        Err(error) => Err(error.to_string().replace(&path.display().to_string(), "F")),
        Ok(_) => {
            let architecture = read_config(&folder).expect("known");
            let json = move |name: &str| {
                let text = fs::read(scratch.path().join("m").join(name)).expect("readable");
                serde_json::from_slice(&text).expect("JSON")
            };
            Ok((architecture, json))
        }
    }
}

#[test]
fn a_part_of_a_model_is_refused() {
    let mut file = whole();
    file.value("split.no", 2, &0_u16.to_le_bytes());
    file.value("split.count", 2, &2_u16.to_le_bytes());
    assert_eq!(
        imported(&file).err().expect("it is half a model"),
        "`F`: split.count is 2, it must be 1: this is one part of a model; join them first, with \
         `llama-gguf-split --merge`"
    );
}

/// The factors are those that llama.cpp's `convert_hf_to_gguf.py` writes for these settings, in `f32`.
#[test]
fn the_factors_of_llama_3_1_are_its_scaling() {
    for (theta, factors, factor, original) in [
        (5e5_f32, [1.0, 1.0, 1.0, 1.0, 2.694_53, 8.0, 8.0, 8.0], 8.0, 8192),
        (5e5, [1.0, 1.0, 1.0, 1.0, 3.292_262_8, 32.0, 32.0, 32.0], 32.0, 8192),
        (1e4, [1.0, 1.241_823_6, 3.926_990_7, 4.0, 4.0, 4.0, 4.0, 4.0], 4.0, 64),
    ] {
        let mut file = whole();
        file.value("llama.rope.freq_base", 6, &theta.to_le_bytes());
        let bytes: Vec<u8> = factors.into_iter().flat_map(f32::to_le_bytes).collect();
        file.tensor("rope_freqs.weight", &[8], 0, &bytes);
        let (architecture, json) = imported(&file).expect("it is read");
        let Architecture::Llama(_, model, _) = architecture else {
            panic!("it is a Llama");
        };
        let scaling = RopeScaling::Llama3 { factor, low: 1.0, high: 4.0, original };
        assert_eq!(model.rope.scaling, scaling);
        assert_eq!(json("config.json")["rope_parameters"]["rope_type"], json!("llama3"));
    }
    let mut file = whole();
    file.numbers("rope_freqs.weight", &[8], 1.0);
    assert_eq!(
        imported(&file).err().expect("no known scaling"),
        "`F`: rope_freqs.weight is a tensor of [8] other numbers, it must be the factors of Llama 3.1 to \
         3.3: take the folder of Hugging Face for other ones"
    );
}

#[test]
fn flags_of_the_tokenizer_go_into_the_folder() {
    let of_flags = |flags: &[(&str, bool)], pre: &str| {
        let mut file = whole();
        file.value("tokenizer.ggml.pre", 8, &text(pre));
        file.value("tokenizer.ggml.bos_token_id", 4, &0_u32.to_le_bytes());
        file.value("tokenizer.ggml.eot_token_id", 4, &2_u32.to_le_bytes());
        for (flag, set) in flags {
            file.value(&format!("tokenizer.ggml.{flag}"), 7, &[u8::from(*set)]);
        }
        let (_, json) = imported(&file).expect("it is read");
        (json("tokenizer.json"), json("tokenizer_config.json"), json("generation_config.json"))
    };
    let (tokenizer, about, generation) = of_flags(&[("add_bos_token", true)], "smollm");
    let first = json!({"SpecialToken": {"id": "<|end|>", "type_id": 0}});
    let all = json!({"Sequence": {"id": "A", "type_id": 0}});
    let added = &tokenizer["post_processor"];
    assert_eq!(added["single"], json!([first, all]));
    assert_eq!(
        added["special_tokens"],
        json!({"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}})
    );
    assert_eq!((&about["add_bos_token"], &about["add_eos_token"]), (&json!(true), &json!(false)));
    assert_eq!(generation["eos_token_id"], json!([0, 2]));
    let (tokenizer, ..) = of_flags(&[("add_bos_token", true), ("add_eos_token", true)], "smollm");
    assert_eq!(tokenizer["post_processor"]["single"], json!([first, all, first]));
    let (tokenizer, ..) = of_flags(&[], "smollm");
    assert_eq!(tokenizer["post_processor"], Value::Null);
    // As llama.cpp does for Llama 3 without the flag.
    let (tokenizer, ..) = of_flags(&[], "llama-bpe");
    assert_eq!(tokenizer["post_processor"]["single"], json!([first, all]));
    assert_eq!(tokenizer["model"]["ignore_merges"], json!(true));
    let (tokenizer, ..) = of_flags(&[("add_bos_token", false)], "llama-bpe");
    assert_eq!(tokenizer["post_processor"], Value::Null);
}
