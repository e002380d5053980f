//! Models: lists of named layers that split into stages.

pub(crate) mod cnn;
pub(crate) mod gpt;
pub(crate) mod llama;
pub(crate) mod mlp;
pub(crate) mod model;
pub(crate) mod part;
pub(crate) mod partition;
pub(crate) mod resnet;
pub(crate) mod reward;
pub(crate) mod rules;
pub(crate) mod sizes;

pub use cnn::Cnn;
pub use gpt::Gpt;
pub use llama::Llama;
pub use mlp::Mlp;
pub use model::{LayerSpec, Model, ParameterContents, UnitContents};
pub use part::Part;
pub use resnet::ResNet;
pub use rules::Rules;
pub use sizes::{Exchanges, UnitSizes};
