//! Processes give each other the layers that change process.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pipewright_stages::Stage;

use crate::checkpoint::{Held, Whole};
use crate::error::Result;
use crate::id::Rank;
use crate::mesh::{Axis, Coordinate, Mesh};
use crate::pipeline::running::Pipeline;
use crate::worker::ParameterInfo;

/// What processes give each other at a time, in bytes.
const AT_ONCE: u64 = 256 << 20;

impl<S: Stage> Pipeline<S> {
    /// All tensors that this process's ranks need in this mesh, and how many bytes it gave to others.
    pub(super) fn exchange(
        &self,
        own: Vec<Whole>,
        new: &[ParameterInfo],
        mesh: &Mesh,
    ) -> Result<(Held, u64)> {
        let mut held = Held::default();
        if self.processes() == 1 {
            own.into_iter().for_each(|whole| held.add(whole));
            return Ok((held, 0));
        }
        let mut needed: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for info in new {
            needed.entry(&info.name).or_default().extend(processes_of(info.site.rank, mesh));
        }
        // Whole tensors are on the first shard of the first replica, at their first site.
        let owners = self.parameters.iter().filter(|info| !info.is_tied);
        let owners: BTreeMap<&str, u32> = owners
            .map(|info| (&*info.name, self.ranks.mesh().process(self.ranks.first(info.site.rank))))
            .collect();
        let moves = |name: &str| needed[name].iter().any(|process| *process != owners[name]);
        let sizes: HashMap<String, u64> =
            own.iter().map(|whole| (whole.name().to_owned(), whole.bytes())).collect();
        let all = self.ranks.spread("giving layers", Ok(sizes.into_iter().collect::<Vec<_>>()))?;
        let sizes: BTreeMap<String, u64> = all.into_iter().filter(|(name, _)| moves(name)).collect();
        let (mut given, mut own) =
            (0, own.into_iter().map(|whole| (whole.name().to_owned(), whole)).collect::<HashMap<_, _>>());
        for round in rounds(&sizes) {
            let mine: Vec<Whole> = round.iter().filter_map(|name| own.remove(*name)).collect();
            given += mine.iter().map(Whole::bytes).sum::<u64>();
            for whole in self.ranks.spread("giving layers", Ok(mine))? {
                if needed[whole.name()].contains(&self.process()) {
                    held.add(whole);
                }
            }
        }
        own.into_values().for_each(|whole| held.add(whole));
        Ok((held, given))
    }
}

/// The processes that have a rank of the pipeline, in any replica or shard.
fn processes_of(rank: Rank, mesh: &Mesh) -> impl Iterator<Item = u32> + '_ {
    let replicas = 0..mesh.size(Axis::Data);
    replicas.flat_map(move |replica| {
        let shards = 0..mesh.size(Axis::Tensor);
        shards.map(move |shard| mesh.process(mesh.world_rank(Coordinate { replica, rank, shard })))
    })
}

/// Names whose tensors have at most [`AT_ONCE`] bytes together, or one of more.
fn rounds(sizes: &BTreeMap<String, u64>) -> Vec<Vec<&str>> {
    let (mut rounds, mut bytes): (Vec<Vec<&str>>, _) = (Vec::new(), 0);
    for (name, size) in sizes {
        if rounds.is_empty() || bytes + size > AT_ONCE {
            rounds.push(Vec::new());
            bytes = 0;
        }
        rounds.last_mut().expect("there is one").push(name);
        bytes += size;
    }
    rounds
}
