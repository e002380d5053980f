//! The ids of communicators, which all processes must know.

use pipewright_stages::Device;
use pipewright_stages::devices::Library;
use pipewright_stages::nccl::{UniqueId, refuse_blocking_launches};

use crate::error::{FabricError, Result};
use crate::id::WorldRank;

/// The members of a communicator, by number, and the GPU of each.
pub(super) type Members = Vec<(WorldRank, Device)>;

/// The size of one entry of a process's block: the place of a communicator in the list, and its id.
const ENTRY: usize = size_of::<u32>() + UniqueId::BYTES;

/// The ids of these communicators, `None` for one without members. The process of a communicator's first
/// member makes its id. All processes call this with the same list and their own ranks. `share` gives every
/// process's block to all.
///
/// # Errors
/// When two ranks of a process would need one GPU, when NCCL is missing, when CUDA waits for each launch, or
/// when another process fails.
pub(super) fn ids(
    all: &[&Members],
    own: &[WorldRank],
    share: impl FnOnce(Result<Vec<u8>>) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<Option<UniqueId>>> {
    let blocks = share(own_part(all, own))?;
    let id = |(place, members): (u32, &&Members)| match members.is_empty() {
        true => Ok(None),
        false => id_of(place, &blocks).map(Some),
    };
    (0..).zip(all).map(id).collect()
}

/// The id of the communicator at this place of the list.
fn id_of(place: u32, blocks: &[Vec<u8>]) -> Result<UniqueId> {
    let entries = |(process, block): (u32, &Vec<u8>)| {
        let own = |entry: &&[u8]| entry.starts_with(&place.to_le_bytes());
        let found = block.chunks_exact(ENTRY).filter(own);
        let ids = found.filter_map(|entry| entry[size_of::<u32>()..].try_into().ok());
        ids.map(move |id| (process, id)).collect::<Vec<_>>()
    };
    let given: Vec<_> = (0..).zip(blocks).flat_map(entries).collect();
    match given[..] {
        [(_, id)] => Ok(UniqueId::from_bytes(id)),
        _ => {
            let givers: Vec<u32> = given.into_iter().map(|(process, _)| process).collect();
            Err(FabricError::nccl_differs(&givers).into())
        }
    }
}

/// The ids that this process makes.
fn own_part(all: &[&Members], own: &[WorldRank]) -> Result<Vec<u8>> {
    let mut block = Vec::new();
    for (place, members) in (0_u32..).zip(all) {
        let mut seen: Members = Vec::new();
        for &(rank, device) in members.iter().filter(|(rank, _)| own.contains(rank)) {
            if let Some((other, _)) = seen.iter().find(|(_, taken)| *taken == device) {
                return Err(FabricError::refused(format!(
                    "ranks {other} and {rank} of one process are both on {device} and both have links to \
                     other processes: NCCL takes one rank a GPU; start more processes, with fewer ranks \
                     each, or give these ranks a GPU each (pipeline.devices)"
                ))
                .into());
            }
            seen.push((rank, device));
        }
        if seen.is_empty() {
            continue;
        }
        Library::Driver.require()?;
        refuse_blocking_launches()?;
        if seen.first() == members.first() {
            block.extend(place.to_le_bytes());
            block.extend(UniqueId::make()?.to_bytes());
        } else {
            Library::Nccl.require()?;
        }
    }
    Ok(block)
}
