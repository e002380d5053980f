//! Compares every kernel with its formula in double precision, with bounds on the error: on the CPU, in `f32`
//! and in `bf16`.
//!
//! The bounds are multiples of the expected error (`approx.rs`): what rounding every operation once is
//! expected to cost, for this formula, these sizes and these numbers. They are constants in the other
//! modules, with the largest error measured. `cargo test -p pipewright-stages --test accuracy -- --nocapture`
//! prints the errors; with `single` before `--nocapture` only in `f32`, and with `half` only in `bf16`.

#![allow(clippy::duplicate_mod, reason = "the same tests twice, in f32 and in bf16")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/erfc.rs"]
mod erfc;
mod half;
mod single;
