//! Checkpoints: a folder of safetensors files by parameter name. Nothing in it depends on the stages.
//!
//! * `model.safetensors` holds the weights.
//! * `optimizer.safetensors` holds the optimizer's tensors, named `<parameter>.<state>`.
//! * `state.json` describes them: the step, the config, the fingerprint of the data, and a checksum of every
//!   tensor and of both headers. Its last line is a checksum of itself. So every byte of a checkpoint is
//!   covered.
//!
//! Of a quantised matrix there is only the checksum: its numbers stay in the folder from which the model was
//! read.
//!
//! A checkpoint is written in a hidden folder beside its own, which is renamed when it is complete. The
//! writer holds the folder's lock. A folder that holds anything but a checkpoint is never replaced, and never
//! removed.
//!
//! A store of objects can have copies of checkpoints ([`Stored`], [`copy_to`]): `step-00000100.json` is the
//! manifest of a copy, and is written last. The names of its objects contain the checksum of `state.json`. So
//! two checkpoints never share an object.
//!
//! While a pipeline trains on, its ranks' tensors are copied ([`Copies`]), and a thread writes the copies
//! ([`Writing`]).
//!
//! With a [`Key`] in use, all three files are encrypted, also in a store of objects.
//!
//! The format has a number. Format 1 had no checksums: such checkpoints can be read but not verified.

mod contents;
mod copies;
mod damage;
mod encrypted;
mod fill;
mod folder;
mod held;
mod kept;
mod key;
mod layout;
mod lock;
mod read;
mod state;
mod stored;
mod verify;
mod write;
mod writing;

pub use copies::{Copies, Whole};
pub use folder::{named_step, remove, tidy};
pub use held::Held;
pub use kept::{Kept, checksum};
pub use key::Key;
pub use layout::TensorInfo;
pub use read::Checkpoint;
pub(crate) use stored::newest_step;
pub use stored::{Stored, copy_to, remove_copy};
pub use verify::Verified;
pub use write::{Draft, Writer, Written};
pub use writing::Writing;
