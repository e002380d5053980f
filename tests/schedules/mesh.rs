//! A rank of a run is a coordinate: replica, pipeline rank, tensor shard.

use pipewright::error::MeshError;
use pipewright::id::WorldRank;
use pipewright::mesh::{Axis, Coordinate, MAX_RANKS, Mesh};
use pipewright::stages::{DType, Device, Place};

use super::*;

fn mesh(sizes: [u32; 3], processes: u32) -> Mesh {
    Mesh::new(sizes, processes, &[]).expect("a mesh")
}

fn world_ranks(ranks: impl IntoIterator<Item = WorldRank>) -> Vec<u32> {
    ranks.into_iter().map(|rank| rank.0).collect()
}

#[test]
fn shards_stand_next_to_each_other_and_so_do_the_ranks_of_a_replica() {
    let mesh = mesh([2, 3, 2], 1);
    let coordinates: Vec<_> =
        mesh.world().map(|rank| mesh.coordinate(rank)).map(|at| (at.replica, at.rank.0, at.shard)).collect();
    let first = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1)];
    assert_eq!(coordinates[..6], first);
    assert_eq!(coordinates[6..], first.map(|(_, rank, shard)| (1, rank, shard)));
}

#[test]
fn the_replicas_of_a_rank_stand_next_to_each_other_if_the_map_says_so() {
    let mesh = mesh([2, 3, 2], 3).mapped(Map::Replicas);
    assert_eq!(mesh.map(), Map::Replicas);
    let coordinates: Vec<_> =
        mesh.world().map(|rank| mesh.coordinate(rank)).map(|at| (at.rank.0, at.replica, at.shard)).collect();
    let first = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)];
    assert_eq!(coordinates[..4], first);
    assert_eq!(coordinates[8..], first.map(|(_, replica, shard)| (2, replica, shard)));
    // Replica 1, pipeline rank 2, shard 0.
    assert_eq!(world_ranks(mesh.group(Axis::Data, WorldRank(10))), [8, 10]);
    assert_eq!(world_ranks(mesh.group(Axis::Pipeline, WorldRank(10))), [2, 6, 10]);
    assert_eq!(world_ranks(mesh.group(Axis::Tensor, WorldRank(10))), [10, 11]);
    assert!(
        mesh.group(Axis::Data, WorldRank(7)).all(|rank| mesh.process(rank) == 1),
        "a reduction stays in a process"
    );
}

#[test]
fn a_map_changes_nothing_for_one_replica_or_one_pipeline_rank() {
    for sizes in [[1, 4, 2], [4, 1, 2]] {
        let mesh = mesh(sizes, 2);
        let other = mesh.clone().mapped(Map::Replicas);
        for rank in mesh.world() {
            assert_eq!(mesh.coordinate(rank), other.coordinate(rank), "{sizes:?}");
        }
    }
}

#[test]
fn every_coordinate_is_one_world_rank_in_every_mesh() {
    for (sizes, map) in all_sizes_and_maps(4) {
        let mesh = mesh(sizes, 1).mapped(map);
        assert_eq!(mesh.world_size(), sizes.iter().product::<u32>());
        for (axis, size) in Axis::ALL.into_iter().zip(sizes) {
            assert_eq!(mesh.size(axis), size);
        }
        for rank in mesh.world() {
            let at = mesh.coordinate(rank);
            assert_eq!(mesh.world_rank(at), rank);
            assert!(Axis::ALL.into_iter().all(|axis| at.on(axis) < mesh.size(axis)), "{at}");
        }
    }
}

#[test]
fn a_group_differs_on_its_axis_only() {
    let mesh = mesh([2, 3, 2], 1);
    // Replica 1, pipeline rank 2, shard 0.
    let rank = WorldRank(10);
    assert_eq!(mesh.coordinate(rank), Coordinate { replica: 1, rank: Rank(2), shard: 0 });
    assert_eq!(world_ranks(mesh.group(Axis::Data, rank)), [4, 10]);
    assert_eq!(world_ranks(mesh.group(Axis::Pipeline, rank)), [6, 8, 10]);
    assert_eq!(world_ranks(mesh.group(Axis::Tensor, rank)), [10, 11]);
}

#[test]
fn groups_of_an_axis_divide_the_world() {
    for (sizes, map) in all_sizes_and_maps(4) {
        let mesh = mesh(sizes, 1).mapped(map);
        for axis in Axis::ALL {
            let mut seen = vec![0; mesh.world_size() as usize];
            for rank in mesh.world().filter(|&rank| mesh.coordinate(rank).on(axis) == 0) {
                let group: Vec<_> = mesh.group(axis, rank).collect();
                assert_eq!(group.len() as u32, mesh.size(axis));
                for member in group {
                    assert!(mesh.group(axis, member).eq(mesh.group(axis, rank)));
                    seen[member.index()] += 1;
                }
            }
            assert!(seen.iter().all(|&count| count == 1), "{sizes:?}, {axis:?}: {seen:?}");
        }
    }
}

#[test]
fn processes_hold_consecutive_ranks_as_many_each_or_one_more() {
    for (sizes, map) in all_sizes_and_maps(3) {
        let world: u32 = sizes.iter().product();
        for processes in 1..=world {
            let mesh = Mesh::uneven(sizes, processes, &[]).expect("enough ranks").mapped(map);
            let held = (0..processes).flat_map(|process| mesh.ranks_of(process));
            assert!(held.eq(mesh.world()));
            for rank in mesh.world() {
                let mut of_its_process = mesh.ranks_of(mesh.process(rank));
                let each = world / processes..=world.div_ceil(processes);
                assert!(each.contains(&(of_its_process.len() as u32)));
                assert!(of_its_process.any(|other| other == rank));
            }
        }
    }
    let mesh = mesh([2, 3, 2], 2);
    assert!(
        mesh.group(Axis::Pipeline, WorldRank(7)).all(|rank| mesh.process(rank) == 1),
        "a replica a process"
    );
}

#[test]
fn a_mesh_of_one_pipeline_has_its_ranks_as_world_ranks() {
    let mesh = Mesh::of_pipeline(6, 3, &[]).expect("an even share");
    assert_eq!(Axis::ALL.map(|axis| mesh.size(axis)), [1, 6, 1]);
    assert_eq!(mesh.processes(), 3);
    for rank in (0..6).map(Rank) {
        let at = Coordinate::of_first(rank);
        assert_eq!(mesh.world_rank(at), WorldRank(rank.0));
        assert_eq!(mesh.coordinate(WorldRank(rank.0)), at);
    }
}

#[test]
fn a_place_is_for_all_ranks_or_for_one() {
    let gpu = |index| Place { device: Device::Cuda(index), dtype: DType::Bf16 };
    let places: Vec<_> = (0..4).map(gpu).collect();
    let each = Mesh::new([1, 4, 1], 2, &places).expect("a place for each");
    assert_eq!(each.place(WorldRank(3)), gpu(3));
    let all = Mesh::new([1, 4, 1], 2, &places[1..2]).expect("one for all");
    assert!(all.world().all(|rank| all.place(rank) == gpu(1)));
    let none = mesh([1, 4, 1], 2);
    assert!(none.world().all(|rank| none.place(rank) == Place::default()));
}

#[test]
fn a_mesh_in_another_shape_has_the_same_ranks() {
    let places: Vec<Place> =
        (0..6).map(|gpu| Place { device: Device::Cuda(gpu), ..Place::default() }).collect();
    let mesh = Mesh::uneven([1, 6, 1], 4, &places).expect("six ranks").mapped(Map::Replicas);
    for sizes in [[2, 3, 1], [3, 2, 1], [1, 3, 2], [3, 1, 2], [6, 1, 1], [1, 6, 1]] {
        let other = mesh.reshaped(sizes).expect("six ranks");
        assert_eq!((other.sizes(), other.map(), other.processes()), (sizes, mesh.map(), 4));
        for rank in other.world() {
            assert_eq!((other.place(rank), other.process(rank)), (mesh.place(rank), mesh.process(rank)));
            assert_eq!(other.world_rank(other.coordinate(rank)), rank);
        }
    }
    for sizes in [[2, 2, 1], [0, 6, 1], [1, 6, 2], [u32::MAX, u32::MAX, 1]] {
        assert!(mesh.reshaped(sizes).is_err(), "{sizes:?}");
    }
    let alone = Mesh::new([1, 1, 1], 1, &places[..1]).expect("a rank");
    assert!(alone.reshaped([1, 2, 1]).is_err());
}

#[test]
fn what_does_not_go_together_is_refused_with_words() {
    let refusal = |sizes, processes, places: &[Place]| match Mesh::new(sizes, processes, places) {
        Err(Error::Mesh(error)) => error,
        other => panic!("{other:?}"),
    };
    let empty = refusal([1, 0, 1], 1, &[]);
    assert_eq!(empty, MeshError::Empty { axis: Axis::Pipeline });
    assert_eq!(empty.to_string(), "there are 0 pipeline ranks: give 1 or more");
    let uneven = refusal([1, 6, 1], 4, &[]);
    assert_eq!(uneven, MeshError::Uneven { sizes: [1, 6, 1], processes: 4 });
    assert_eq!(
        uneven.to_string(),
        "4 processes cannot share 6 ranks evenly: start 1, 2, 3 or 6 of them, or change the ranks (replicas \
         x stages / chunks)"
    );
    let said = |sizes, processes, places: &[Place]| refusal(sizes, processes, places).to_string();
    assert_eq!(
        said([2, 2, 1], 3, &[]),
        "3 processes cannot share 4 ranks (2 replicas x 2) evenly: start 1, 2 or 4 of them, or change the \
         ranks (replicas x stages / chunks)"
    );
    assert_eq!(
        said([2, 1, 3], 4, &[Place::default()]),
        "4 processes cannot share 6 ranks (2 replicas x 1 x 3 shards) evenly: start 1, 2, 3 or 6 of them, \
         or change the ranks (replicas x stages / chunks)"
    );
    assert_eq!(
        said([1, 1, 1], 0, &[]),
        "0 processes cannot share 1 ranks evenly: start 1 of them, or change the ranks (replicas x stages / \
         chunks)"
    );
    let places = refusal([2, 3, 1], 1, &[Place::default(); 3]);
    assert_eq!(places, MeshError::Places { places: 3, sizes: [2, 3, 1] });
    assert_eq!(
        places.to_string(),
        "3 places for 6 ranks (2 replicas x 3): give one for each, or one for all"
    );
    for sizes in [[1 << 11, 1 << 11, 1], [u32::MAX, u32::MAX, u32::MAX]] {
        assert_eq!(refusal(sizes, 1, &[]), MeshError::TooMany { sizes, most: MAX_RANKS });
    }
}

fn all_sizes_and_maps(most: u32) -> Vec<([u32; 3], Map)> {
    let to = || 1..=most;
    let sizes = to().flat_map(|a| to().flat_map(move |b| to().map(move |c| [a, b, c])));
    sizes.flat_map(|sizes| [Map::Pipeline, Map::Replicas].map(|map| (sizes, map))).collect()
}
