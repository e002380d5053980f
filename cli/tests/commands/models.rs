//! Models and data that people have, and that cannot be used: what the commands say.

use super::gguf;
use super::*;

/// Every refusal is one message, with exit status 2, and leaves nothing behind.
#[track_caller]
fn refused(place: &Place, args: &[&str], parts: &[&str]) {
    let said = place.run(args).refused();
    for part in parts {
        assert!(said.starts_with("error: ") && said.contains(part), "{said}");
    }
    assert!(!place.path("runs").exists() && !place.path("new").exists(), "{args:?}");
}

#[test]
fn a_folder_that_is_no_model_or_an_unknown_one() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    fs::create_dir(place.path("bert")).unwrap();
    let bert = r#"{"architectures": ["BertForMaskedLM"]}"#;
    place.write("bert/config.json", bert);
    place.write("my.toml", "[data]\npath = 'text.txt'\nseq = 16\n");
    // The model knows 96 tokens.
    place.write("text.txt", "3.14159 ".repeat(200));
    for folder in ["empty", "none", "text.txt"] {
        let set = format!("model.path={folder}");
        refused(
            &place,
            &["train", "my.toml", "--set", &set],
            &[&format!(
                "`{folder}` is no model's folder: it has no config.json; a folder of Hugging Face has one"
            )],
        );
    }
    let set = ["train", "my.toml", "--set", "model.path=bert"];
    let unknown =
        "`bert/config.json`: `BertForMaskedLM` is not known; known are GPT2LMHeadModel, LlamaForCausalLM";
    refused(&place, &set, &[unknown]);
    refused(&place, &["sample", "bert"], &[unknown]);
    refused(&place, &["sample", "empty"], &["empty"]);
    let without_weights = place.path("bert/config.json");
    fs::copy(llama().join("config.json"), without_weights).unwrap();
    for args in [&set[..], &["sample", "bert"]] {
        refused(
            &place,
            args,
            &["`bert` has no weights: neither model.safetensors nor model.safetensors.index.json"],
        );
    }
    place.write("bert/model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    for args in [&set[..], &["sample", "bert"]] {
        refused(&place, args, &["`bert/model.safetensors` is damaged: its header should have "]);
    }
}

#[test]
fn a_gguf_file_that_cannot_be_imported() {
    let place = Place::new();
    let mut file = gguf::small();
    file.tensor("blk.0.attn_output.weight", &[32, 32], 16, &[0; 1024]);
    place.write("iq2.gguf", file.bytes());
    refused(
        &place,
        &["import", "iq2.gguf", "new"],
        &["`iq2.gguf`: blk.0.attn_output.weight is quantised in a way that this program does not read \
             (type 16 of ggml); it reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K"],
    );
    refused(
        &place,
        &["import", "text.txt", "new"],
        &["`text.txt` is no .gguf file: it does not begin with GGUF"],
    );
    refused(&place, &["import", "none", "new"], &["cannot open `none`: "]);
    let mut file = gguf::small();
    file.numbers("blk.0.attn_output.weight", &[32, 32], 0.0);
    let bytes = file.bytes();
    place.write("cut.gguf", &bytes[..bytes.len() - 100]);
    refused(
        &place,
        &["import", "cut.gguf", "new"],
        &["`cut.gguf` is damaged: it ends before the numbers of blk.0.attn_output.weight do; fetch it again"],
    );
    place.write("whole.gguf", &bytes);
    refused(
        &place,
        &["import", "whole.gguf", "."],
        &["`.` is there already: name another folder, or remove it"],
    );
    place.run(&["import", "whole.gguf", "new"]).done();
}

#[test]
fn token_files_that_cannot_be_used() {
    let place = Place::new();
    place.write("odd.bin", [0; 1001]);
    let args = [&["train", "my.toml"], &set(&["data.kind=tokens", "data.path=odd.bin"])[..]].concat();
    refused(
        &place,
        &args,
        &["`odd.bin` holds 1001 bytes, which is not a whole number of tokens of 2 bytes: set data.dtype to"],
    );
    let wide = [&args[..], &["--set", "data.dtype=u32"]].concat();
    refused(&place, &wide, &["not a whole number of tokens of 4 bytes"]);
    let minus_100: Vec<u8> = (-100_i32).to_le_bytes().repeat(500);
    place.write("odd.bin", minus_100);
    refused(
        &place,
        &wide,
        &["`odd.bin`: token 4294967196 at position 0 is outside the model's vocabulary of 256"],
    );
}

#[cfg(feature = "parquet")]
#[test]
fn a_table_without_the_column() {
    let place = Place::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let sets = [
        "data.kind=parquet".to_owned(),
        format!("data.path={root}/tests/golden/parquet/snappy.parquet"),
        format!("data.tokenizer={root}/tests/golden/tokenizer"),
        "data.field=contents".to_owned(),
        "data.cache=cache".to_owned(),
        "model.vocab=512".to_owned(),
    ];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let args = [&["train", "my.toml"], &set(&sets)[..]].concat();
    refused(&place, &args, &["snappy.parquet` has no column \"contents\" (data.field), only \""]);
}
