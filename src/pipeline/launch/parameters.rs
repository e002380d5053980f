//! The parameters of all ranks: equal in all replicas, tied or not, frozen or not. A layer must say that one
//! is tied: equal names alone never tie two parameters.

use std::collections::BTreeMap;

use pipewright_stages::Shard;

use crate::error::{LaunchError, Result};
use crate::id::StageId;
use crate::mesh::{Axis, Mesh};
use crate::worker::{Built, ParameterInfo, Tie};

/// The parameters of the first replica, in layer order. Refuses replicas that hold others, or that start with
/// other weights, and shards with other layers. `built`: what each world rank has built.
pub(super) fn of_first_replica(built: Vec<Built>, mesh: &Mesh) -> Result<Vec<ParameterInfo>> {
    let shards = mesh.size(Axis::Tensor) as usize;
    let empty = || Built { parameters: Vec::new(), layers: Vec::new(), gpu: None };
    let mut replicas: Vec<Vec<Built>> = Vec::new();
    let of_replica = || std::iter::repeat_with(empty).take(shards).collect();
    replicas.resize_with(mesh.size(Axis::Data) as usize, of_replica);
    for (rank, built) in mesh.world().zip(built) {
        let at = mesh.coordinate(rank);
        let all = &mut replicas[at.replica as usize][at.shard as usize];
        all.parameters.extend(built.parameters);
        all.layers.extend(built.layers);
    }
    for all in replicas.iter_mut().flatten() {
        all.parameters.sort_by_key(|info| (info.site.stage, info.site.index));
        all.layers.sort_by_key(|(stage, _)| *stage);
    }
    let mut replicas = replicas.into_iter();
    let first = replicas.next().expect("there is a first replica");
    for (replica, other) in (1..).zip(replicas) {
        for (ours, theirs) in first.iter().zip(&other) {
            same_parameters(&ours.parameters, replica, &theirs.parameters)?;
        }
    }
    of_all_shards(first)
}

/// The parameters of a replica, from those of its shards. Refuses shards with other layers, and shards that
/// hold parts of others.
fn of_all_shards(shards: Vec<Built>) -> Result<Vec<ParameterInfo>> {
    let is_divided = shards.len() > 1;
    let mut shards = shards.into_iter();
    let Built { parameters: mut first, layers, .. } = shards.next().expect("there is a first shard");
    for (shard, other) in (1..).zip(shards) {
        let mut stages = layers.iter().zip(&other.layers);
        if let Some(((stage, ours), (_, theirs))) = stages.find(|(ours, theirs)| ours != theirs) {
            let place = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
            let named = |layers: &[String]| match layers.get(place) {
                Some(name) => format!("`{name}`"),
                None => "missing".to_owned(),
            };
            return Err(LaunchError::new(format!(
                "layer {place} of stage {stage} is {} in shard 0 and {} in shard {shard}: all shards of a \
                 rank must have the same layers",
                named(ours),
                named(theirs)
            ))
            .into());
        }
        let same = |(ours, theirs): (&ParameterInfo, &ParameterInfo)| {
            let is_whole = |info: &ParameterInfo| info.shard == Shard::WHOLE;
            (&ours.name, &ours.dims) == (&theirs.name, &theirs.dims)
                && is_whole(ours) == is_whole(theirs)
                && (!is_whole(ours) || ours.weights == theirs.weights)
        };
        let pairs = first.iter().zip(&other.parameters);
        let differ = pairs.filter(|pair| !same(*pair)).map(|(ours, _)| ours).next();
        let (count, others) = (first.len(), other.parameters.len());
        let longer = if others > count { &other.parameters } else { &first };
        let extra = longer.get(count.min(others));
        if let Some(info) = differ.or(extra) {
            return Err(LaunchError::new(format!(
                "`{}` of stage {} is not the same in shard 0 and in shard {shard}: all shards of a rank must \
                 have the same layers, with parts of the same tensors",
                info.name, info.site.stage
            ))
            .into());
        }
    }
    if is_divided {
        first.iter_mut().for_each(|info| info.shard = Shard::WHOLE);
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

/// The tied parameters. `parameters` are in layer order.
///
/// # Errors
/// [`LaunchError`] when two parameters that are not tied have one name, when a copy has no
/// original, or when a copy has other dimensions or is frozen alone.
pub(super) fn ties(parameters: &[ParameterInfo]) -> Result<Vec<Tie>> {
    parameters.iter().try_for_each(check_whole)?;
    let mut by_name: BTreeMap<_, Vec<&ParameterInfo>> = BTreeMap::new();
    for info in parameters {
        by_name.entry(&info.name).or_default().push(info);
    }
    let ties = by_name.into_values().map(|sites| tie(&sites));
    ties.filter_map(Result::transpose).collect()
}

/// Refuses a part of a tensor where nobody has the other parts.
fn check_whole(parameter: &ParameterInfo) -> Result<()> {
    if parameter.shard == Shard::WHOLE {
        return Ok(());
    }
    Err(LaunchError::new(format!(
        "the parameter `{}` of {} is {}, but the pipeline has one shard: divide the layer by the `Sharding` \
         that `LayerSpec::divided` gives",
        parameter.name,
        place(parameter),
        parameter.shard
    ))
    .into())
}

/// The tie of all parameters of one name. `None` when there is only one.
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
    if let Some(other) = sites.iter().find(|info| info.is_quantised != original.is_quantised) {
        return Err(LaunchError::new(format!(
            "the tied parameter `{}` is quantised in one of {} and {}: quantise both or none",
            original.name,
            place(original),
            place(other)
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

/// The first stage that is trained: those before it have parameters, and all of them are frozen. It is the
/// last stage if all are frozen. `parameters` are in layer order.
pub(super) fn first_trained(parameters: &[ParameterInfo], stages: u32) -> StageId {
    let is_frozen = |stage: &u32| {
        let mut own = parameters.iter().filter(|info| info.site.stage == StageId(*stage)).peekable();
        own.peek().is_some() && own.all(|info| !info.is_trained)
    };
    let frozen = (0..stages.saturating_sub(1)).take_while(is_frozen);
    StageId(frozen.count() as u32)
}
