//! Where every rank of a run is: its replica, its place in the pipeline, its tensor shard, its process, and
//! what the caller says of it, such as its device.
//!
//! A run has `replicas` copies of a pipeline. Each copy has `ranks` pipeline ranks, and each of these is cut
//! into `shards`. A rank of the run is named by its [`Coordinate`] or by its number, its [`WorldRank`]:
//!
//! ```text
//! world rank = (replica * ranks + pipeline rank) * shards + shard
//! ```
//!
//! So the shards of a pipeline rank have consecutive numbers, and so have the ranks of a replica. A process
//! holds consecutive world ranks, and every process holds equally many. Launchers number the processes of a
//! host consecutively. Shards talk to each other most often, then the stages of a pipeline, then replicas.
//! The numbers keep as much of this as possible inside one process and one host.
//!
//! With [`Map::Replicas`], a pipeline rank has consecutive numbers in all replicas instead. This is for
//! reductions that cost more than what passes from stage to stage:
//!
//! ```text
//! world rank = (pipeline rank * replicas + replica) * shards + shard
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{MeshError, Result};
use crate::id::{Rank, WorldRank};

pub use crate::id::Axis;

/// The most ranks that a run can have.
pub const MAX_RANKS: u32 = 1 << 20;

/// A rank's place on every axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coordinate {
    /// The replica, from 0.
    pub replica: u32,
    /// The place in the replica's pipeline: what a schedule calls a rank.
    pub rank: Rank,
    /// The shard of the pipeline rank's tensors, from 0.
    pub shard: u32,
}

impl Coordinate {
    /// The place of pipeline rank `rank`, in the first replica and the first shard.
    pub fn of_first(rank: Rank) -> Self {
        Self { replica: 0, rank, shard: 0 }
    }

    /// The index on one axis, from 0.
    pub fn on(self, axis: Axis) -> u32 {
        match axis {
            Axis::Data => self.replica,
            Axis::Pipeline => self.rank.0,
            Axis::Tensor => self.shard,
        }
    }

    /// The same coordinate with another index on one axis.
    #[must_use]
    pub fn with(mut self, axis: Axis, index: u32) -> Self {
        match axis {
            Axis::Data => self.replica = index,
            Axis::Pipeline => self.rank = Rank(index),
            Axis::Tensor => self.shard = index,
        }
        self
    }
}

impl fmt::Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {}, rank {}, shard {}", self.replica, self.rank, self.shard)
    }
}

/// What people call a rank of a pipeline: its replica and its shard belong to its name where there are
/// several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RankName {
    /// The replica, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    /// The place in the replica's pipeline.
    pub rank: Rank,
    /// The shard, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
}

impl RankName {
    /// The name of the rank at this coordinate, if there are this many replicas and shards.
    pub fn new(at: Coordinate, [replicas, shards]: [u32; 2]) -> Self {
        Self {
            replica: (replicas > 1).then_some(at.replica),
            rank: at.rank,
            shard: (shards > 1).then_some(at.shard),
        }
    }

    /// The same in a few characters: its numbers, with points between them.
    pub fn short(self) -> String {
        let replica = self.replica.map_or(String::new(), |replica| format!("{replica}."));
        let shard = self.shard.map_or(String::new(), |shard| format!(".{shard}"));
        format!("{replica}{}{shard}", self.rank)
    }
}

impl fmt::Display for RankName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(replica) = self.replica {
            write!(f, "replica {replica}, ")?;
        }
        write!(f, "rank {}", self.rank)?;
        match self.shard {
            Some(shard) => write!(f, ", shard {shard}"),
            None => Ok(()),
        }
    }
}

/// Which ranks have consecutive numbers, and so stay inside a process and a host as far as possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Map {
    /// The ranks of a pipeline. Replicas are on different hosts.
    #[default]
    Pipeline,
    /// The replicas of a pipeline rank. A pipeline goes from host to host.
    Replicas,
}

/// The number of ranks on each axis, the coordinate of each world rank, the process that holds it, and its
/// place: whatever a caller says of each rank, such as its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh<P> {
    /// By [`Axis::ALL`].
    sizes: [u32; 3],
    map: Map,
    processes: u32,
    /// By world rank.
    places: Arc<[P]>,
}

impl<P: Copy + Default> Mesh<P> {
    /// A mesh of `sizes`: replicas, pipeline ranks and shards. The processes share its ranks evenly. `places`
    /// are the places of the world ranks. One place stands for all ranks, and no place for the default one.
    ///
    /// # Errors
    /// [`MeshError`] when a number is 0, when the processes cannot have equally many ranks, or when the
    /// number of places does not fit the ranks.
    pub fn new(sizes: [u32; 3], processes: u32, places: &[P]) -> Result<Self> {
        let mesh = Self::uneven(sizes, processes, places)?;
        match mesh.world_size().is_multiple_of(processes) {
            true => Ok(mesh),
            false => Err(MeshError::Uneven { sizes, processes }.into()),
        }
    }

    /// The same, but some processes may have one rank more than others: the ones that are left of a run that
    /// has lost some.
    ///
    /// # Errors
    /// As for [`Mesh::new`]; when there are more processes than ranks.
    pub fn uneven(sizes: [u32; 3], processes: u32, places: &[P]) -> Result<Self> {
        if let Some(axis) = Axis::ALL.into_iter().find(|&axis| sizes[axis as usize] == 0) {
            return Err(MeshError::Empty { axis }.into());
        }
        let ranks = sizes.iter().try_fold(1_u32, |product, &size| product.checked_mul(size));
        let ranks =
            ranks.filter(|&ranks| ranks <= MAX_RANKS).ok_or(MeshError::TooMany { sizes, most: MAX_RANKS })?;
        if processes == 0 || processes > ranks {
            return Err(MeshError::Uneven { sizes, processes }.into());
        }
        let places = match places {
            [] => vec![P::default(); ranks as usize],
            [one] => vec![*one; ranks as usize],
            each if each.len() == ranks as usize => each.to_vec(),
            other => {
                return Err(MeshError::Places { places: other.len(), sizes }.into());
            }
        };
        Ok(Self { sizes, map: Map::default(), processes, places: places.into() })
    }

    /// The same mesh with other numbers for its coordinates. Processes and places stay with the numbers.
    #[must_use]
    pub fn mapped(mut self, map: Map) -> Self {
        self.map = map;
        self
    }

    /// The same ranks in another shape: `sizes` are replicas, pipeline ranks and shards. Processes and places
    /// stay with the numbers of the ranks.
    ///
    /// # Errors
    /// [`MeshError`] when a number is 0, or when there would be more or fewer ranks.
    pub fn reshaped(&self, sizes: [u32; 3]) -> Result<Self> {
        let mesh = Self::uneven(sizes, self.processes, &[])?;
        match mesh.world_size() == self.world_size() {
            true => Ok(Self { sizes, ..self.clone() }),
            false => Err(MeshError::Places { places: self.places.len(), sizes }.into()),
        }
    }

    /// A mesh with one replica and one shard. For `processes` and `places` see [`Mesh::new`].
    ///
    /// # Errors
    /// As for [`Mesh::new`].
    pub fn of_pipeline(ranks: u32, processes: u32, places: &[P]) -> Result<Self> {
        Self::new([1, ranks, 1], processes, places)
    }

    /// The numbers of replicas, pipeline ranks and shards.
    pub fn sizes(&self) -> [u32; 3] {
        self.sizes
    }

    /// How many ranks there are along an axis.
    pub fn size(&self, axis: Axis) -> u32 {
        self.sizes[axis as usize]
    }

    /// How many ranks the run has: its world size.
    pub fn world_size(&self) -> u32 {
        self.places.len() as u32
    }

    /// How many processes hold them.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// All world ranks, in order.
    pub fn world(&self) -> impl DoubleEndedIterator<Item = WorldRank> + ExactSizeIterator + use<P> {
        (0..self.world_size()).map(WorldRank)
    }

    /// Which ranks have consecutive numbers.
    pub fn map(&self) -> Map {
        self.map
    }

    /// The coordinate of a world rank.
    pub fn coordinate(&self, rank: WorldRank) -> Coordinate {
        let [replicas, ranks, shards] = self.sizes;
        let number = rank.0 / shards;
        let (replica, rank_in_pipeline) = match self.map {
            Map::Pipeline => (number / ranks, number % ranks),
            Map::Replicas => (number % replicas, number / replicas),
        };
        Coordinate { replica, rank: Rank(rank_in_pipeline), shard: rank.0 % shards }
    }

    /// The name of a world rank.
    pub fn name(&self, rank: WorldRank) -> RankName {
        RankName::new(self.coordinate(rank), [Axis::Data, Axis::Tensor].map(|axis| self.size(axis)))
    }

    /// The world rank at a coordinate.
    pub fn world_rank(&self, at: Coordinate) -> WorldRank {
        let [replicas, ranks, shards] = self.sizes;
        let number = match self.map {
            Map::Pipeline => at.replica * ranks + at.rank.0,
            Map::Replicas => at.rank.0 * replicas + at.replica,
        };
        WorldRank(number * shards + at.shard)
    }

    /// The ranks that differ from this one on one axis only, with this one, in the order of the axis.
    pub fn group(
        &self,
        axis: Axis,
        of: WorldRank,
    ) -> impl DoubleEndedIterator<Item = WorldRank> + ExactSizeIterator {
        let at = self.coordinate(of);
        (0..self.size(axis)).map(move |index| self.world_rank(at.with(axis, index)))
    }

    /// The process that holds a rank.
    pub fn process(&self, rank: WorldRank) -> u32 {
        let behind = (u64::from(rank.0) + 1) * u64::from(self.processes);
        ((behind - 1) / u64::from(self.world_size())) as u32
    }

    /// The ranks that a process holds: consecutive ones, in order.
    pub fn ranks_of(
        &self,
        process: u32,
    ) -> impl DoubleEndedIterator<Item = WorldRank> + ExactSizeIterator + use<P> {
        let first = |process: u32| {
            let before = u64::from(process) * u64::from(self.world_size());
            (before / u64::from(self.processes)) as u32
        };
        (first(process)..first(process + 1)).map(WorldRank)
    }

    /// The place of a rank.
    pub fn place(&self, rank: WorldRank) -> P {
        self.places[rank.index()]
    }
}
