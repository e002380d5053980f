//! How `ggml` numbers the ways in which it stores numbers.

use pipewright_stages::Quantisation::{
    self, Bf16, F16, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};

/// The numbers of `ggml`, and the names that messages show. `None`: `f32`.
pub(super) const KINDS: [(u32, &str, Option<Quantisation>); 13] = [
    (0, "F32", None),
    (1, "F16", Some(F16)),
    (30, "BF16", Some(Bf16)),
    (2, "Q4_0", Some(Q4_0)),
    (3, "Q4_1", Some(Q4_1)),
    (6, "Q5_0", Some(Q5_0)),
    (7, "Q5_1", Some(Q5_1)),
    (8, "Q8_0", Some(Q8_0)),
    (10, "Q2_K", Some(Q2_K)),
    (11, "Q3_K", Some(Q3_K)),
    (12, "Q4_K", Some(Q4_K)),
    (13, "Q5_K", Some(Q5_K)),
    (14, "Q6_K", Some(Q6_K)),
];

/// How many numbers a block has, and how many bytes. Numbers of 16 bits need no blocks: a row of them may
/// have any length.
pub(super) fn block(kind: Option<Quantisation>) -> (usize, usize) {
    match kind {
        None => (1, 4),
        Some(F16 | Bf16) => (1, 2),
        Some(kind) => kind.block(),
    }
}
