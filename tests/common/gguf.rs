//! Writes small files of llama.cpp.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "several tests share it"
)]

/// Writes the parts of a file.
#[derive(Default)]
pub struct Gguf {
    values: (u64, Vec<u8>),
    tensors: (u64, Vec<u8>),
    data: Vec<u8>,
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Gguf {
    pub fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.values.0 += 1;
        self.values.1.extend([&text(key)[..], &kind.to_le_bytes(), bytes].concat());
    }

    pub fn texts(&mut self, key: &str, texts: &[&str]) {
        let mut list = [8_u32.to_le_bytes().as_slice(), &(texts.len() as u64).to_le_bytes()].concat();
        texts.iter().for_each(|each| list.extend(text(each)));
        self.value(key, 9, &list);
    }

    /// A tensor with its dimensions, outermost first.
    pub fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, bytes: &[u8]) {
        self.tensors.0 += 1;
        let mut info = [&text(name)[..], &(dims.len() as u32).to_le_bytes()].concat();
        dims.iter().rev().for_each(|size| info.extend(size.to_le_bytes()));
        info.extend(kind.to_le_bytes());
        info.extend((self.data.len() as u64).to_le_bytes());
        self.tensors.1.extend(info);
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    pub fn numbers(&mut self, name: &str, dims: &[u64], first: f32) {
        let count = dims.iter().product::<u64>();
        let bytes: Vec<u8> = (0..count).flat_map(|index| (first + index as f32).to_le_bytes()).collect();
        self.tensor(name, dims, 0, &bytes);
    }

    /// The length of all before the numbers.
    pub fn header(&self) -> usize {
        self.bytes().len() - self.data.len()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let counts = [self.tensors.0, self.values.0].map(u64::to_le_bytes).concat();
        let mut bytes = [b"GGUF\x03\0\0\0", &counts[..], &self.values.1, &self.tensors.1].concat();
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        [bytes, self.data.clone()].concat()
    }
}

/// A llama of one block: 32 wide, two heads of 16 that share one for keys and values, 4 tokens.
pub fn small() -> Gguf {
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
    file.value("llama.attention.layer_norm_rms_epsilon", 6, &1e-5_f32.to_le_bytes());
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

/// How `ggml` stores numbers: its number, the numbers and the bytes of a block, and where a block's scales
/// are, with the upper byte of a small one.
const KINDS: [(u32, usize, usize, &[usize], u8); 12] = [
    (1, 1, 2, &[0], 0x28),
    (30, 1, 2, &[0], 0x3d),
    (2, 32, 18, &[0], 0x1c),
    (3, 32, 20, &[0, 2], 0x1c),
    (6, 32, 22, &[0], 0x18),
    (7, 32, 24, &[0, 2], 0x18),
    (8, 32, 34, &[0], 0x0c),
    (10, 256, 84, &[80, 82], 0x10),
    (11, 256, 110, &[108], 0x08),
    (12, 256, 144, &[0, 2], 0x04),
    (13, 256, 176, &[0, 2], 0x02),
    (14, 256, 210, &[208], 0x01),
];

/// Blocks of a kind of `ggml` for this many numbers, with any bits but for small scales.
pub fn blocks(kind: u32, numbers: usize, seed: u64) -> Vec<u8> {
    let (_, count, size, scales, upper) = *KINDS.iter().find(|row| row.0 == kind).expect("a kind of blocks");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    let mut bytes: Vec<u8> = (0..numbers / count * size).map(|_| byte()).collect();
    for block in bytes.chunks_exact_mut(size) {
        for &at in scales {
            block[at + 1] = upper | block[at + 1] & 0x80;
        }
    }
    bytes
}

/// A llama of two blocks: 256 wide, four heads of 64 of which two share keys and values, 64 tokens. Its
/// matrices are in these kinds, in turn.
pub fn quantised(kinds: &[u32], has_head: bool) -> Gguf {
    let mut file = Gguf::default();
    file.value("general.architecture", 8, &text("llama"));
    for (key, count) in [
        ("block_count", 2_u32),
        ("context_length", 64),
        ("embedding_length", 256),
        ("feed_forward_length", 512),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ] {
        file.value(&format!("llama.{key}"), 4, &count.to_le_bytes());
    }
    file.value("llama.attention.layer_norm_rms_epsilon", 6, &1e-5_f32.to_le_bytes());
    let mut turns = kinds.iter().copied().cycle().zip(1..);
    let mut matrix = |file: &mut Gguf, name: &str, dims: [u64; 2]| {
        let (kind, seed) = turns.next().expect("it has no end");
        let bytes = blocks(kind, (dims[0] * dims[1]) as usize, seed);
        file.tensor(&format!("{name}.weight"), &dims, kind, &bytes);
    };
    let norm = |file: &mut Gguf, name: &str| {
        let ones: Vec<u8> = [1.0_f32; 256].into_iter().flat_map(f32::to_le_bytes).collect();
        file.tensor(&format!("{name}.weight"), &[256], 0, &ones);
    };
    matrix(&mut file, "token_embd", [64, 256]);
    norm(&mut file, "output_norm");
    if has_head {
        matrix(&mut file, "output", [64, 256]);
    }
    for block in 0..2 {
        let name = |of: &str| format!("blk.{block}.{of}");
        norm(&mut file, &name("attn_norm"));
        norm(&mut file, &name("ffn_norm"));
        for (of, dims) in [
            ("attn_q", [256, 256]),
            ("attn_k", [128, 256]),
            ("attn_v", [128, 256]),
            ("attn_output", [256, 256]),
            ("ffn_gate", [512, 256]),
            ("ffn_up", [512, 256]),
            ("ffn_down", [256, 512]),
        ] {
            matrix(&mut file, &name(of), dims);
        }
    }
    file
}
