//! Models in Hugging Face's form: a folder with `config.json`, `model.safetensors` (or several, with an
//! index) and `tokenizer.json`.
//!
//! Parameters have our names everywhere else. The tables of `families` say from which tensors each of them is
//! made, and the same tables are used to read and to write.

mod adapter;
mod architecture;
mod described;
mod families;
mod fused;
mod generation;
mod gguf;
mod head;
mod json;
mod kept;
mod key;
mod mapped;
mod numbers;
mod opened;
mod own;
mod quantised;
mod rope;
mod sizes;
mod start;
mod told;
mod weights;
mod write;

pub use adapter::{
    ADAPTER_CONFIG, Adapters, Target, open_adapters, read_adapters, told_of_adapters, write_adapters,
};
pub use architecture::{Architecture, Base, Family};
pub use described::{CONFIG, TOKENIZER, describe, read_config};
pub use generation::{GENERATION, ends};
pub use gguf::{Imported, import, import_blocks};
pub use head::{Head, SCORE};
pub use kept::keep_keys;
pub use mapped::{Mapped, Part};
pub use own::{OWN_CONFIG, is_own, open_own, own_config, write_own};
pub use start::start_from;
pub use told::{told_of_choice, told_of_model};
pub use weights::{Weights, quantised};
pub use write::write;
