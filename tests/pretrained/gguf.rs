//! Files of llama.cpp.

use std::fs;

use pipewright::pretrained::{Weights, import, read_config};
use pipewright::stages::{Init, Parameter};
use pipewright::tokenizer::Tokenizer;

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
    // The rows of a head of q and k were neighbours in pairs; those of v lie as they lay.
    let firsts: Vec<f32> = qkv.chunks(32).map(|row| row[0] / 32.0).collect();
    let head = [
        0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0,
    ];
    assert_eq!(firsts[..16], head);
    assert_eq!(firsts[16..32], head.map(|row| row + 16.0));
    assert_eq!(firsts[32..48], head);
    assert_eq!(
        firsts[48..],
        [
            0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0
        ]
    );
    let tokenizer = Tokenizer::read(&folder).expect("a tokenizer");
    assert_eq!(tokenizer.encode("abba<|end|>").expect("encoded"), [3, 2, 1, 0]);
}

#[test]
fn a_file_with_other_tensors_or_other_numbers_is_refused() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("m.gguf");
    let refused = |file: &Gguf| {
        fs::write(&path, file.bytes()).expect("written");
        let error = import(&path, &scratch.path().join("m"))
            .expect_err("refused")
            .to_string();
        assert!(!scratch.path().join("m").exists(), "nothing is made");
        error.replace(&path.display().to_string(), "F")
    };
    let said = refused(&small());
    assert!(
        said.ends_with(":\n  blk.0.attn_output.weight is missing"),
        "{said}"
    );
    let mut file = small();
    file.tensor("blk.0.attn_output.weight", &[32, 32], 12, &[0; 1024]);
    assert_eq!(
        refused(&file),
        "`F`: blk.0.attn_output.weight is quantised in a way that this program does not read (type 12 of \
         ggml); it reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0"
    );
    let mut file = Gguf::default();
    file.value("general.architecture", 8, &text("bert"));
    assert_eq!(
        refused(&file),
        "`F`: `bert` is not known; known are llama, qwen2, qwen3"
    );
}
