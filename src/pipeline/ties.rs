//! Which parameters are tied. A layer must say so: equal names alone never tie two parameters.

use std::collections::BTreeMap;

use pipewright_stages::Shard;

use crate::error::{LaunchError, ParameterPlace, Result};
use crate::worker::{ParameterInfo, Tie};

/// The tied parameters. `parameters` are in layer order.
///
/// # Errors
/// [`LaunchError`] when two parameters that are not tied have one name and shard, when a copy has no
/// original, or when a copy has other dimensions or is frozen alone.
pub(super) fn ties(parameters: &[ParameterInfo]) -> Result<Vec<Tie>> {
    parameters.iter().try_for_each(check_whole)?;
    let mut by_identity: BTreeMap<_, Vec<&ParameterInfo>> = BTreeMap::new();
    for info in parameters {
        by_identity
            .entry((&info.name, info.shard))
            .or_default()
            .push(info);
    }
    let ties = by_identity.into_values().map(|sites| tie(&sites));
    ties.filter_map(Result::transpose).collect()
}

/// Refuses a part of a tensor: checkpoints and the hash of the weights only know whole tensors.
fn check_whole(parameter: &ParameterInfo) -> Result<()> {
    if parameter.shard == Shard::WHOLE {
        return Ok(());
    }
    Err(LaunchError::Sharded {
        name: parameter.name.clone(),
        shard: parameter.shard,
        place: place(parameter),
    }
    .into())
}

/// The tie of all parameters of one name and shard. `None` when there is only one.
fn tie(sites: &[&ParameterInfo]) -> Result<Option<Tie>> {
    let mut originals = sites.iter().filter(|info| !info.is_tied);
    let Some(&original) = originals.next() else {
        return Err(LaunchError::NoOriginal {
            name: sites[0].name.clone(),
            place: place(sites[0]),
        }
        .into());
    };
    if let Some(other) = originals.next() {
        return Err(LaunchError::SameName {
            name: original.name.clone(),
            places: [place(original), place(other)],
        }
        .into());
    }
    if let Some(other) = sites.iter().find(|info| info.dims != original.dims) {
        return Err(LaunchError::TiedShapes {
            name: original.name.clone(),
            dims: [original.dims.clone(), other.dims.clone()],
            stages: [original.site.stage, other.site.stage],
        }
        .into());
    }
    if let Some(other) = sites.iter().find(|info| info.is_trained != original.is_trained) {
        return Err(LaunchError::TiedTraining {
            name: original.name.clone(),
            frozen: place(if original.is_trained { other } else { original }),
            trained: place(if original.is_trained { original } else { other }),
        }
        .into());
    }
    if sites.len() == 1 {
        return Ok(None);
    }
    let copies = sites.iter().filter(|info| info.is_tied).map(|info| info.site);
    Ok(Some(Tie {
        name: original.name.clone(),
        sites: std::iter::once(original.site).chain(copies).collect(),
        is_trained: original.is_trained,
    }))
}

fn place(info: &ParameterInfo) -> ParameterPlace {
    ParameterPlace {
        layer: info.layer.clone(),
        stage: info.site.stage,
    }
}
