//! Which parameters are tied. A layer must say so: equal names alone never tie two parameters.

use std::collections::BTreeMap;

use pipewright_stages::Shard;

use crate::error::{LaunchError, Result};
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
    Err(LaunchError::new(format!(
        "the parameter `{}` of {} is {}: the engine trains whole parameters only, so leave out \
         `Parameter::sharded`",
        parameter.name,
        place(parameter),
        parameter.shard
    ))
    .into())
}

/// The tie of all parameters of one name and shard. `None` when there is only one.
fn tie(sites: &[&ParameterInfo]) -> Result<Option<Tie>> {
    let mut originals = sites.iter().filter(|info| !info.is_tied);
    let Some(&original) = originals.next() else {
        return Err(LaunchError::new(format!(
            "the parameter `{}` of {} is a tied copy, but no layer holds the parameter that it copies: one \
             of that name that is not tied",
            sites[0].name,
            place(sites[0])
        ))
        .into());
    };
    if let Some(other) = originals.next() {
        return Err(LaunchError::new(format!(
            "two parameters have the name `{}`: the one of {} and the one of {}; give them two names, or \
             declare one a copy of the other (`Parameter::tied`)",
            original.name,
            place(original),
            place(other)
        ))
        .into());
    }
    if let Some(other) = sites.iter().find(|info| info.dims != original.dims) {
        return Err(LaunchError::new(format!(
            "parameters named `{}` are tied, but have dimensions {:?} in stage {} and {:?} in stage {}: give \
             them one shape or two names",
            original.name, original.dims, original.site.stage, other.dims, other.site.stage
        ))
        .into());
    }
    if let Some(other) = sites.iter().find(|info| info.is_trained != original.is_trained) {
        let (frozen, trained) = match original.is_trained {
            true => (*other, original),
            false => (original, *other),
        };
        return Err(LaunchError::new(format!(
            "the tied parameter `{}` is frozen in {} and trained in {}: freeze both or none",
            original.name,
            place(frozen),
            place(trained)
        ))
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

fn place(info: &ParameterInfo) -> String {
    let stage = info.site.stage;
    match &info.layer {
        Some(layer) => format!("layer `{layer}` in stage {stage}"),
        None => format!("stage {stage}"),
    }
}
