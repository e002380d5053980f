//! Files of llama.cpp.

use std::fs;

use pipewright::pretrained::{Weights, import, read_config};
use pipewright::stages::{Init, Parameter};
use pipewright::tokenizer::Tokenizer;

/// Writes the parts of a file.
#[derive(Default)]
struct Gguf {
    values: (u64, Vec<u8>),
    tensors: (u64, Vec<u8>),
    data: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Gguf {
    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.values.0 += 1;
        self.values
            .1
            .extend([&text(key)[..], &kind.to_le_bytes(), bytes].concat());
    }

    fn texts(&mut self, key: &str, texts: &[&str]) {
        let mut list = [
            8_u32.to_le_bytes().as_slice(),
            &(texts.len() as u64).to_le_bytes(),
        ]
        .concat();
        texts.iter().for_each(|each| list.extend(text(each)));
        self.value(key, 9, &list);
    }

    /// A tensor with its dimensions, outermost first.
    fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, bytes: &[u8]) {
        self.tensors.0 += 1;
        let mut info = [&text(name)[..], &(dims.len() as u32).to_le_bytes()].concat();
        dims.iter().rev().for_each(|size| info.extend(size.to_le_bytes()));
        info.extend(kind.to_le_bytes());
        info.extend((self.data.len() as u64).to_le_bytes());
        self.tensors.1.extend(info);
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    fn numbers(&mut self, name: &str, dims: &[u64], first: f32) {
        let count = dims.iter().product::<u64>();
        let bytes: Vec<u8> = (0..count)
            .flat_map(|index| (first + index as f32).to_le_bytes())
            .collect();
        self.tensor(name, dims, 0, &bytes);
    }

    fn bytes(&self) -> Vec<u8> {
        let counts = [self.tensors.0, self.values.0].map(u64::to_le_bytes).concat();
        let header = [b"GGUF\x03\0\0\0", &counts[..], &self.values.1, &self.tensors.1].concat();
        let mut bytes = header;
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        [bytes, self.data.clone()].concat()
    }
}

/// A llama of one block: 32 wide, two heads of 16 of which the keys and values share one, 4 tokens.
fn small() -> Gguf {
    let mut file = Gguf::default();
    file.value("general.architecture", 8, &text("llama"));
    for (key, count) in [
        ("block_count", 1_u32),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ] {
        file.value(&format!("llama.{key}"), 4, &count.to_le_bytes());
    }
    file.value(
        "llama.attention.layer_norm_rms_epsilon",
        6,
        &1e-5_f32.to_le_bytes(),
    );
    file.value("tokenizer.ggml.model", 8, &text("gpt2"));
    file.value("tokenizer.ggml.pre", 8, &text("smollm"));
    file.texts("tokenizer.ggml.tokens", &["<|end|>", "a", "b", "ab"]);
    let kinds: Vec<u8> = [3_i32, 1, 1, 1].into_iter().flat_map(i32::to_le_bytes).collect();
    let list = [&5_u32.to_le_bytes()[..], &4_u64.to_le_bytes(), &kinds].concat();
    file.value("tokenizer.ggml.token_type", 9, &list);
    file.texts("tokenizer.ggml.merges", &["a b"]);
    file.value("tokenizer.ggml.eos_token_id", 4, &0_u32.to_le_bytes());
    for (name, dims) in [
        ("token_embd", &[4, 32][..]),
        ("output_norm", &[32]),
        ("blk.0.attn_norm", &[32]),
        ("blk.0.attn_q", &[32, 32]),
        ("blk.0.attn_k", &[16, 32]),
        ("blk.0.attn_v", &[16, 32]),
        ("blk.0.ffn_norm", &[32]),
        ("blk.0.ffn_gate", &[32, 32]),
        ("blk.0.ffn_up", &[32, 32]),
        ("blk.0.ffn_down", &[32, 32]),
    ] {
        file.numbers(&format!("{name}.weight"), dims, 0.0);
    }
    file
}

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
