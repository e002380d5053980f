//! Which kernels of attention are fused, and the shared memory that a launch gives them.

/// The fused kernels for a head width.
pub(crate) struct Fused {
    pub(crate) width: usize,
    /// Of sequences, and of documents.
    pub(crate) forward: [&'static str; 2],
    pub(crate) backward_kv: [&'static str; 2],
    pub(crate) backward_q: [&'static str; 2],
    /// The keys of a block of `backward_kv`. The blocks of the other kernels have 128 queries.
    pub(crate) keys: usize,
    /// The bytes of shared memory of each kernel.
    pub(crate) shared: [u32; 3],
}

/// The head widths for which `bf16` attention has fused kernels. Other widths run on plain kernels, which are
/// correct but slow.
pub const FUSED_HEADS: [usize; 2] = [64, 128];

pub(crate) const FUSED: [Fused; 2] = [
    Fused {
        width: FUSED_HEADS[0],
        forward: ["attention_forward_64_bf16", "attention_forward_apart_64_bf16"],
        backward_kv: ["attention_backward_kv_64_bf16", "attention_backward_kv_apart_64_bf16"],
        backward_q: ["attention_backward_q_64_bf16", "attention_backward_q_apart_64_bf16"],
        keys: 128,
        shared: [48 << 10, 65 << 10, 64 << 10],
    },
    Fused {
        width: FUSED_HEADS[1],
        forward: ["attention_forward_128_bf16", "attention_forward_apart_128_bf16"],
        backward_kv: ["attention_backward_kv_128_bf16", "attention_backward_kv_apart_128_bf16"],
        backward_q: ["attention_backward_q_128_bf16", "attention_backward_q_apart_128_bf16"],
        keys: 64,
        shared: [96 << 10, 97 << 10, 96 << 10],
    },
];
