//! Models in Hugging Face's form: read, trained, written and refused. `scripts/hf_golden.py` makes the
//! folders in `tests/golden/hf`.

#[path = "../common/batches.rs"]
mod batches;
#[path = "../common/gguf.rs"]
mod files;

mod equal;
mod family;
mod gguf;
mod next;
mod refused;
mod written;
