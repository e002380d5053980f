//! What processes keep in memory so that a lost one can be replaced: each keeps snapshots of its own ranks,
//! and of the ranks of the process before it. Snapshots of two steps are kept until all have the newer one.
//! So there is always a step for which all snapshots are there.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::fabric::{Item, Kept, Label, Stamp};
use crate::mesh::Mesh;
use crate::pipeline::recut::cut::Cut;
use crate::worker::{ParameterInfo, Site};

/// Which part of the model each rank has. Ranks of two layouts make different snapshots.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pipeline) struct Layout {
    mesh: Mesh,
    /// By parameter.
    sites: Vec<Site>,
}

impl Layout {
    pub(in crate::pipeline) fn of(mesh: &Mesh, parameters: &[ParameterInfo]) -> Self {
        Self { mesh: mesh.clone(), sites: parameters.iter().map(|info| info.site).collect() }
    }

    pub(in crate::pipeline) fn mesh(&self) -> &Mesh {
        &self.mesh
    }
}

/// The snapshots that a process keeps.
#[derive(Debug)]
pub(super) struct Snapshots {
    every: u64,
    /// How often all weights have been replaced.
    pub(super) era: u32,
    /// Whether this process has begun to train.
    pub(super) began: bool,
    /// Whether none is made, because a pipeline that joins again would not have the layers of now.
    pub(super) paused: bool,
    /// The cut that they belong to since an era. `None`: the one at launch.
    pub(super) cut: (u32, Option<Cut>),
    /// The snapshots of its own ranks, the older one first.
    pub(super) own: Vec<Snapshot>,
    /// The snapshots of the ranks of the process before it.
    pub(super) kept: Arc<Kept>,
}

/// A snapshot of all ranks of a process.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) stamp: Stamp,
    pub(super) ranks: Vec<Item>,
}

/// What a process has, as it tells the others.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inventory {
    pub(super) era: u32,
    pub(super) began: bool,
    /// The cut that they belong to since an era. `None`: the one at launch, or it has none.
    pub(super) cut: (u32, Option<Cut>),
    /// The snapshots of ranks, of this process and of others.
    pub(super) ranks: BTreeSet<Label>,
}

impl Snapshots {
    /// A snapshot is due every `every` steps.
    pub(super) fn every(every: u64) -> Self {
        Self {
            every: every.max(1),
            era: 0,
            began: false,
            paused: false,
            cut: (0, None),
            own: Vec::new(),
            kept: Arc::default(),
        }
    }

    pub(super) fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept)
    }

    /// A snapshot of a rank has at most `most` bytes.
    pub(super) fn allow(&self, most: u64) {
        self.kept.allow(most);
    }

    /// The step of the oldest one. None is before it.
    pub(super) fn oldest(&self) -> u64 {
        self.own.first().map_or(0, |oldest| oldest.stamp.step)
    }

    pub(super) fn is_due(&self, step: u64) -> bool {
        !self.paused && self.own.last().is_none_or(|last| step >= last.stamp.step + self.every)
    }

    /// Whether the newest one was made before this step.
    pub(super) fn is_of(&self, step: u64) -> bool {
        self.own.last().is_some_and(|newest| newest.stamp.step == step)
    }

    /// Forgets all: they are not of the weights of now.
    pub(super) fn forget(&mut self) {
        self.own.clear();
        self.kept.retain(|_| false);
        self.era += 1;
    }

    /// Forgets all snapshots except for this step's.
    pub(super) fn forget_but(&mut self, stamp: Stamp) {
        self.own.retain(|snapshot| snapshot.stamp == stamp);
        self.kept.retain(|label| label.1 == stamp);
    }

    pub(super) fn has(&self) -> Inventory {
        let own = self.own.iter().flat_map(|snapshot| &snapshot.ranks).map(|item| item.label);
        let ranks = own.chain(self.kept.labels()).collect();
        Inventory { era: self.era, began: self.began, cut: self.cut.clone(), ranks }
    }

    /// The snapshot of a rank.
    pub(super) fn get(&self, label: &Label) -> Option<Item> {
        let own = self.own.iter().flat_map(|snapshot| &snapshot.ranks).find(|item| item.label == *label);
        own.cloned().or_else(|| self.kept.get(label))
    }
}
