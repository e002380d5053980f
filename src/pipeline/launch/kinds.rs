//! Kinds of GPUs: all shards of a rank need one.

use crate::error::{LaunchError, Result};
use crate::id::WorldRank;
use crate::mesh::{Axis, Mesh};
use crate::worker::Built;

/// Refuses shards of a rank on GPUs of two kinds, which may round in two ways. `built`: what each world rank
/// has built.
pub(super) fn check_kinds_of_gpus(built: &[Built], mesh: &Mesh) -> Result<()> {
    let kind = |rank: WorldRank| built[rank.index()].gpu.as_deref();
    for first in mesh.world().filter(|rank| mesh.coordinate(*rank).shard == 0) {
        let other = mesh.group(Axis::Tensor, first).find(|other| kind(*other) != kind(first));
        if let (Some(other), Some(ours)) = (other, kind(first)) {
            let theirs = kind(other).unwrap_or("no GPU");
            let [first, other] = [first, other].map(|rank| mesh.name(rank));
            return Err(LaunchError::new(format!(
                "{first} is on a {ours}, and {other} on a {theirs}, which may round in another way: put all \
                 shards of a rank on GPUs of one kind"
            ))
            .into());
        }
    }
    Ok(())
}
