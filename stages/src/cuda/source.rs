//! The source of the kernels, and how it is compiled.

/// The compiler options besides the architecture.
pub(crate) const OPTIONS: [&str; 2] = ["--std=c++17", "-default-device"];

/// All kernels, in one program.
pub(crate) const SOURCE: &str = concat!(
    include_str!("kernels/prelude.cu"),
    include_str!("kernels/elementwise.cu"),
    include_str!("kernels/columns.cu"),
    include_str!("kernels/gelu.cu"),
    include_str!("kernels/sigmoid.cu"),
    include_str!("kernels/gated.cu"),
    include_str!("kernels/reduce.cu"),
    include_str!("kernels/embedding.cu"),
    include_str!("kernels/experts.cu"),
    include_str!("kernels/norm.cu"),
    include_str!("kernels/norm_narrow.cu"),
    include_str!("kernels/norm_wide.cu"),
    include_str!("kernels/head_norm.cu"),
    include_str!("kernels/conv.cu"),
    include_str!("kernels/pool.cu"),
    include_str!("kernels/channels.cu"),
    include_str!("kernels/dropout.cu"),
    include_str!("kernels/rotary.cu"),
    include_str!("kernels/loss.cu"),
    include_str!("kernels/optimizer.cu"),
    include_str!("kernels/trial.cu"),
    include_str!("kernels/mma.cu"),
    include_str!("kernels/attention_tiles.cu"),
    include_str!("kernels/attention_forward.cu"),
    include_str!("kernels/attention_backward.cu"),
    include_str!("kernels/attention_any.cu"),
    include_str!("kernels/attention_next.cu"),
);
