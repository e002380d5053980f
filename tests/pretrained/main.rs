//! Models in Hugging Face's form: read, trained, written and refused. `scripts/hf_golden.py` makes the
//! folders in `tests/golden/hf`.

#[path = "../common/batches.rs"]
mod batches;
#[path = "../common/gguf.rs"]
mod files;

mod adapter_keys;
mod equal;
mod family;
mod gguf;
mod keys;
mod lora;
mod losses;
mod next;
mod optimizers;
mod recorder;
mod refused;
mod written;
