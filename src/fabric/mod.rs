//! How ranks reach each other: see `README.md` in this folder for what a fabric must promise.

mod alarm;
mod call;
mod carrier;
mod channels;
mod collective;
mod end;
mod feed;
mod inbox;
mod joined;
pub mod line;
mod links;
mod nccl;
mod packet;
mod pause;
mod processes;
mod recorded;
mod sockets;
mod transport;
mod wire;

pub use alarm::Alarm;
pub use call::{Call, Tag};
pub use carrier::{Carrier, KeepGoing};
pub use channels::connect;
pub use collective::{Gathered, all_gather};
pub use end::End;
pub use inbox::NO_LIMIT;
pub use joined::{ends, ends_by_nccl};
pub use links::{Links, Load, Parcel, connect_by};
pub use nccl::GpuPairs;
pub use processes::{Crew, Gone, Peers, World};
pub(crate) use processes::{Ending, Item, JoinAgain, Kept, Label, Others, Size, Stamp};
pub use recorded::Recorded;
pub use sockets::{Membership, Secret};
pub use transport::{Taken, Transport};
pub use wire::{TensorForm, WireFrame};
