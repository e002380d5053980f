//! The source of the kernels, and how it is compiled.

/// The compiler options besides the architecture.
pub(crate) const OPTIONS: [&str; 2] = ["--std=c++17", "-default-device"];

/// All kernels, in one program.
pub(crate) const SOURCE: &str = concat!(
    include_str!("kernels/prelude.cu"),
    include_str!("kernels/elementwise.cu"),
    include_str!("kernels/columns.cu"),
    include_str!("kernels/reduce.cu"),
    include_str!("../quantised/kernel.cu"),
    include_str!("../quantised/few_rows.cu"),
    include_str!("../layers/pointwise/kernel.cu"),
    include_str!("../layers/gated/kernel.cu"),
    include_str!("../layers/embedding/kernel.cu"),
    include_str!("../layers/experts/kernel.cu"),
    include_str!("../layers/norm/middle.cu"),
    include_str!("../layers/norm/narrow.cu"),
    include_str!("../layers/norm/wide.cu"),
    include_str!("../layers/head_norm/kernel.cu"),
    include_str!("../layers/conv/kernel.cu"),
    include_str!("../layers/pooling/kernel.cu"),
    include_str!("../layers/channel_norm/kernel.cu"),
    include_str!("../layers/dropout/kernel.cu"),
    include_str!("../layers/rotary/kernel.cu"),
    include_str!("../loss/kernel.cu"),
    include_str!("../optimizer/kernel.cu"),
    include_str!("products/trial.cu"),
    include_str!("kernels/mma.cu"),
    include_str!("kernels/hopper.cu"),
    include_str!("../layers/attention/kernels/tiles.cu"),
    include_str!("../layers/attention/kernels/forward.cu"),
    include_str!("../layers/attention/kernels/hopper.cu"),
    include_str!("../layers/attention/kernels/backward.cu"),
    include_str!("../layers/attention/kernels/any.cu"),
    include_str!("../layers/attention/kernels/next.cu"),
);
