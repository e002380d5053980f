//! Transfers between GPUs of different processes, by NCCL.

pub use crate::cuda::nccl::{Aborter, Communicator, Member, UniqueId, refuse_blocking_launches};
