//! Whether all replicas start with the same parameters.

use crate::error::{LaunchError, Result};
use crate::mesh::{Axis, Mesh};
use crate::worker::ParameterInfo;

/// The parameters of the first replica, in layer order. Refuses replicas that hold others, or that start with
/// other weights. `built`: the parameters of each world rank.
pub(super) fn of_first_replica(built: Vec<Vec<ParameterInfo>>, mesh: &Mesh) -> Result<Vec<ParameterInfo>> {
    let mut replicas = vec![Vec::new(); mesh.size(Axis::Data) as usize];
    for (rank, infos) in mesh.world().zip(built) {
        replicas[mesh.coordinate(rank).replica as usize].extend(infos);
    }
    let sites = |infos: &mut Vec<ParameterInfo>| {
        infos.sort_by_key(|info| (info.site.stage, info.site.index));
    };
    replicas.iter_mut().for_each(sites);
    let mut replicas = replicas.into_iter();
    let first = replicas.next().expect("there is a first replica");
    for (replica, other) in (1..).zip(replicas) {
        same_parameters(&first, replica, &other)?;
    }
    Ok(first)
}

/// Refuses a replica whose parameters differ from the first one's.
fn same_parameters(first: &[ParameterInfo], replica: u32, other: &[ParameterInfo]) -> Result<()> {
    let longer = if other.len() > first.len() { other } else { first };
    for (index, info) in longer.iter().enumerate() {
        let differs = |what: &str| {
            LaunchError::new(format!(
                "`{}` of stage {} is not the same in replica 0 and in replica {replica}: {what}; the builder \
                 of the stage must make the same stage in each call",
                info.name, info.site.stage
            ))
        };
        match (first.get(index), other.get(index)) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(ours), Some(theirs)) if (&ours.name, &ours.dims) == (&theirs.name, &theirs.dims) => {
                return Err(differs("it starts with other weights").into());
            }
            _ => {
                return Err(differs(
                    "the stage there has another parameter in its place, or other dimensions",
                )
                .into());
            }
        }
    }
    Ok(())
}
