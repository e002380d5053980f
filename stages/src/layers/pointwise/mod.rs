//! Layers that compute each number from one number.

pub(crate) mod cpu_gelu;
pub(crate) mod cpu_sigmoid;
pub(crate) mod cpu_tanh;
pub(crate) mod formulas;
pub(crate) mod gelu;
pub(crate) mod relu;
pub(crate) mod sigmoid;
pub(crate) mod tanh;
