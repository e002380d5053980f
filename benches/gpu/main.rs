//! What a GPU does in how much time, beside what is predicted. `compare.py` in this folder compares training
//! with PyTorch.
//!
//! `cargo bench --bench gpu -- [--size gpt2] [--f32] [--rows FILE] [train [--stages 1 2 4] | kernels
//! [PART_OF_A_NAME] | attention [--keep FILE] [--beside FILE] | launches | links | functions | peer
//! TOKENS_PER_SECOND]`
//!
//! The default is all but `attention` and `peer`, the most valuable first. `gpt2`: 12 layers, dim 768, 12
//! heads, 50,304 tokens, 8 micro-batches of 16 x 1,024. Without a GPU it says why and succeeds. `--size tiny`
//! is for an emulated GPU.

mod attention;
mod commands;
#[path = "../../stages/tests/common/erfc.rs"]
mod erfc;
mod functions;
mod images;
mod kernels;
mod launches;
mod layers;
mod links;
mod member;
mod predicted;
#[path = "../compare_torch/products.rs"]
mod products;
#[path = "../compare_torch/run.rs"]
mod run;
#[path = "../compare_torch/sizes.rs"]
mod sizes;
mod table;
mod timer;
mod train;

use std::process::ExitCode;

fn main() -> ExitCode {
    // `cargo bench` adds this argument itself.
    let arguments = std::env::args().filter(|argument| argument != "--bench");
    match commands::run(arguments, std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
