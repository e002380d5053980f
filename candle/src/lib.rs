//! Models of [candle](https://github.com/huggingface/candle) as layers of Pipewright's stages.
//!
//! A [`CandleLayer`] is a layer made of a candle module, or of a closure over candle's tensors. Nobody has to
//! write its backward: the gradient comes from candle's tape. It stands beside other layers in a
//! [`Sequential`](pipewright_stages::Sequential), a [`Block`](pipewright_stages::layers::Block) or a
//! [`Model`](pipewright_stages::models::Model). [`unit()`] makes one as a unit of a model.
//!
//! ```
//! use candle_core::Tensor;
//! use candle_nn::{Module, linear};
//! use pipewright_candle::unit;
//! use pipewright_stages::models::Model;
//!
//! let up = unit("up", 8.0, 1, |weights| {
//!     let linear = linear(2, 64, weights)?;
//!     Ok(move |x: &Tensor| linear.forward(x)?.tanh())
//! });
//! let down = unit("down", 4.0, 1, |weights| linear(64, 3, weights));
//! let stages = Model::new(vec![up, down]).split(2)?;
//! # Ok::<(), pipewright_stages::Error>(())
//! ```
//!
//! # What holds
//!
//! * **Numbers are `f32`, on the CPU.** Other formats and devices are refused, by name.
//! * **Starting weights are keyed** by seed and name, as in all layers. A `VarMap` draws its own from a
//!   generator that has no seed on the CPU. So candle's distributions hold, and not its numbers.
//! * **Parameters belong to the engine.** Optimizers, checkpoints and replicas see a
//!   [`Parameter`](pipewright_stages::Parameter) for each variable, `{layer}.{path}`, sorted by name. After
//!   each update its numbers are copied into candle's variable, once.
//! * **Weight gradients come with the input gradient**, except in a [`SplitLinear`]. candle's tape makes both
//!   at once. So backward-input takes the time of both, backward-weight only adds them, and a schedule that
//!   splits backward gains nothing. The layer says so
//!   ([`Layer::splits_backward`](pipewright_stages::Layer::splits_backward)), and `auto` keeps backward whole
//!   there. Between the two, the gradients of a micro-batch are held. The matrix of a [`SplitLinear`] has its
//!   gradient in backward-weight.
//! * **What is cut off is an error.** Some fast operations of candle have no gradient, and say nothing: they
//!   cut the tape. They are `softmax_last_dim`, `layer_norm` and `rms_norm` of `candle_nn::ops`, the
//!   operations of `candle_nn::rotary_emb`, and the modules `LayerNorm` and `RmsNorm`, which call them. A
//!   weight or an input that the tape does not reach is an error that names it. If the tape reaches it on
//!   another way, nobody can see that: [`check_gradients`](pipewright_stages::testing::check_gradients) does.
//! * **Threads are the rank's**, if `main` begins with [`one_thread_a_rank`].
//! * **Random numbers of candle have no key**, such as its `Dropout`'s. With them, training is neither
//!   repeatable nor equal for every cut, and a recomputed pass is wrong. Use
//!   [`layers::Dropout`](pipewright_stages::layers::Dropout) between two layers, or draw from
//!   [`rng`](pipewright_stages::rng) in [`CandleLayer::with_context`].

mod error;
mod layer;
mod numbers;
mod pool;
mod split;
mod tape;
mod threads;
mod weights;

pub use error::CandleError;
pub use layer::{CandleLayer, unit};
pub use split::{SplitLinear, split_linear, split_linear_no_bias};
pub use threads::one_thread_a_rank;

/// The page of the guide, whose code runs as a doc-test.
#[cfg(doctest)]
#[doc = include_str!("../../book/src/candle.md")]
mod guide {}
