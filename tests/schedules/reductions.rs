//! What it costs to add up gradients over replicas.

use pipewright::plan::{
    Cluster, MeasuredShards, Reduction, ShardCost, ShardMessages, partition, waiting_sums,
};

use super::*;

fn layer(name: usize) -> LayerCost {
    LayerCost {
        name: name.to_string(),
        cost: StageCost { update: 0.1, ..StageCost::default() },
        backward: 2.0,
        shared: 0.0,
        output: 1.0,
    }
}

#[test]
fn a_reduction_costs_its_messages_its_bytes_and_its_additions() {
    let link = LinkCost { latency: 10.0, per_byte: 2.0 };
    let reduction = |replicas, sharded| Reduction { replicas, link, add: 0.5, sent: 1.0, sharded };
    assert_eq!(reduction(1, false).gradients(1000.0), 0.0);
    // An exchange of a few: 3 messages of 4 bytes, and 3 additions. A scatter would have 6 messages.
    assert_eq!(reduction(4, false).gradients(4.0), 3.0 * (10.0 + 4.0 * 2.0 + 4.0 * 0.5));
    // An exchange of two replicas: a message of all bytes, and an addition.
    assert_eq!(reduction(2, false).gradients(1e6), 10.0 + 1e6 * 2.0 + 1e6 * 0.5);
    // A scatter: twice 3 messages of a quarter of the bytes, and 3 additions of a quarter.
    assert_eq!(
        reduction(4, false).gradients(400_000.0),
        6.0 * (10.0 + 100_000.0 * 2.0) + 3.0 * 100_000.0 * 0.5
    );
    assert_eq!(reduction(4, false).weights(400.0), 0.0);
    // The two halves of a scatter, before and after the update.
    assert_eq!(reduction(4, true).gradients(400.0), 3.0 * (10.0 + 100.0 * 2.5));
    assert_eq!(reduction(4, true).weights(400.0), 3.0 * (10.0 + 100.0 * 2.0));
    assert_eq!(reduction(4, true).share_of_update(), 0.25);
    // In half of the bytes gradients are sent faster. They are added as before, and weights stay as long.
    let short = Reduction { sent: 0.5, ..reduction(4, true) };
    assert_eq!(short.gradients(400.0), 3.0 * (10.0 + 50.0 * 2.0 + 100.0 * 0.5));
    assert_eq!(short.weights(400.0), reduction(4, true).weights(400.0));
}

/// A model of equal layers, each with 4 bytes of weights, in replicas.
fn model(replicas: u32, bandwidth: f64, sharded: bool) -> ModelCosts {
    let link = LinkCost { latency: 0.01, per_byte: 1.0 / bandwidth };
    let reduction = Reduction { replicas, link, add: 0.001, sent: 1.0, sharded };
    ModelCosts::new((0..8).map(layer).collect(), 1.0, link)
        .unwrap()
        .replicated(vec![4.0; 8], reduction)
        .unwrap()
}

#[test]
fn more_bandwidth_is_never_slower_and_what_is_sharded_updates_faster() {
    for name in Schedule::names() {
        for (replicas, ranks) in [(1, 2), (2, 2), (3, 2), (4, 1)] {
            let groups = GradientGroups::new(10, 8);
            let all = Replicas::new(groups, replicas, |share| Schedule::named(name, ranks, share)).unwrap();
            let stages = all.largest().stages() as usize;
            if 8 % stages != 0 {
                continue;
            }
            let step = |bandwidth, sharded| {
                let costs = model(replicas, bandwidth, sharded).stages(&vec![8 / stages; stages]);
                let prediction = Prediction::of_replicas(&all, &costs.unwrap(), LinkKind::Buffered);
                prediction.unwrap().step
            };
            let mut slower = f64::INFINITY;
            for bandwidth in [0.5, 1.0, 4.0, 64.0, f64::INFINITY] {
                let now = step(bandwidth, false);
                assert!(now <= slower * (1.0 + 1e-9), "{name} {replicas} {bandwidth}");
                slower = now;
            }
            let costs = model(replicas, 1.0, true).stages(&vec![8 / stages; stages]).unwrap();
            let of_stage = costs.of(all.largest().placement()).unwrap()[0];
            let update = 0.1 * (8 / stages) as f64 / f64::from(replicas);
            assert!(close(of_stage.update, update));
            assert_eq!(of_stage.gather > 0.0, replicas > 1);
        }
    }
}

#[test]
fn a_reduction_takes_as_long_in_other_units() {
    for (replicas, bytes) in [(2, 4e6), (4, 4e6), (4, 4e3)] {
        let link = LinkCost { latency: 1e-3, per_byte: 1e-8 };
        let reduction = Reduction { replicas, link, add: 1e-9, sent: 1.0, sharded: false };
        let seconds =
            ModelCosts::new(vec![layer(0)], 1.0, link).unwrap().replicated(vec![bytes], reduction).unwrap();
        let reduce = seconds.stage(0..1).reduce;
        let in_ms = seconds.in_units(1e3, 1.0 / f64::from(1 << 20)).stage(0..1).reduce;
        assert!(close(1e3 * reduce, in_ms), "{reduce} s, {in_ms} ms");
        assert_eq!(reduce, reduction.gradients(bytes));
    }
}

#[test]
fn gradients_that_take_long_to_add_up_count_in_the_cut() {
    let link = LinkCost { latency: 0.0, per_byte: 1.0 };
    let reduction = Reduction { replicas: 2, link, add: 0.0, sent: 1.0, sharded: false };
    let alone = ModelCosts::new((0..4).map(layer).collect(), 1.0, link).unwrap();
    let heavy = vec![1.0, 1.0, 1.0, 100.0];
    let together = alone.clone().replicated(heavy, reduction).unwrap();
    let schedule = Schedule::one_f_one_b(2, 4).unwrap();
    assert_eq!(partition(&alone, &schedule, None).unwrap(), [2, 2]);
    assert_eq!(partition(&together, &schedule, None).unwrap(), [3, 1]);
}

#[test]
fn the_slow_link_counts_where_ranks_that_talk_are_on_two_hosts() {
    let inside = LinkCost::default();
    let between = LinkCost { latency: 1.0, per_byte: 1.0 };
    let mapped = |map, hosts, replicas, ranks| {
        let cluster = Cluster { hosts, inside, between: Some(between), add: 0.0 };
        [
            cluster.of_transfers(map, [replicas, ranks, 1]) != inside,
            cluster.of_reductions(map, [replicas, ranks, 1]) != inside,
        ]
    };
    let crosses = |hosts, replicas, ranks| mapped(Map::Pipeline, hosts, replicas, ranks);
    assert_eq!(crosses(1, 4, 2), [false, false]);
    assert_eq!(crosses(4, 4, 2), [false, true], "a pipeline a host");
    assert_eq!(crosses(2, 1, 4), [true, false], "one pipeline over both");
    assert_eq!(crosses(8, 4, 2), [true, true], "a rank a host");
    assert_eq!(crosses(2, 3, 2), [true, true], "the second pipeline is on both");
    let cluster = Cluster { hosts: 2, inside: between, between: None, add: 0.0 };
    let reductions = cluster.of_reductions(Map::Pipeline, [2, 1, 1]);
    assert_eq!(reductions, between, "not measured: as inside");
    let crosses = |hosts, replicas, ranks| mapped(Map::Replicas, hosts, replicas, ranks);
    assert_eq!(crosses(2, 4, 2), [true, false], "all replicas of a rank on a host");
    assert_eq!(crosses(4, 2, 2), [true, true], "a rank a host");
    assert_eq!(crosses(2, 2, 1), [false, true], "one rank has no transfers");
}

#[test]
fn ranks_of_a_host_share_its_network_card() {
    let cluster = |hosts| Cluster {
        hosts,
        inside: LinkCost::default(),
        between: Some(LinkCost { latency: 1.0, per_byte: 1.0 }),
        add: 0.0,
    };
    // How many times as long as alone a byte takes, for transfers and for reductions.
    let times = |map, hosts, replicas, ranks| {
        let cluster = cluster(hosts);
        let [transfers, reductions] = [
            cluster.of_transfers(map, [replicas, ranks, 1]),
            cluster.of_reductions(map, [replicas, ranks, 1]),
        ];
        [transfers.per_byte, reductions.per_byte]
    };
    let pipeline = |hosts, replicas, ranks| times(Map::Pipeline, hosts, replicas, ranks);
    assert_eq!(pipeline(8, 1, 8), [1.0, 0.0], "a rank a host");
    assert_eq!(pipeline(4, 1, 8), [2.0, 0.0], "the two ends of each host's part");
    assert_eq!(pipeline(2, 1, 8), [1.0, 0.0], "one end of each half");
    assert_eq!(pipeline(4, 4, 2), [0.0, 2.0], "each rank of the host's pipeline");
    assert_eq!(pipeline(4, 4, 8), [0.0, 8.0]);
    // Two of eight replicas a host: each sends six of its seven messages to other hosts.
    assert_eq!(pipeline(4, 8, 1), [0.0, 2.0 * 6.0 / 7.0]);
    let replicas = |hosts, replicas, ranks| times(Map::Replicas, hosts, replicas, ranks);
    assert_eq!(replicas(4, 2, 4), [2.0, 0.0], "both replicas of a rank send");
    let shards = |hosts, sizes| {
        let cluster = cluster(hosts);
        [cluster.of_shards(sizes), cluster.of_transfers(Map::Pipeline, sizes)].map(|link| link.per_byte)
    };
    assert_eq!(shards(2, [2, 1, 4]), [0.0, 0.0], "the shards of a rank on a host");
    assert_eq!(shards(2, [1, 2, 4]), [0.0, 4.0], "four shards of a rank send");
    assert_eq!(shards(4, [1, 2, 4]), [2.0, 2.0], "two hosts for a rank");
    assert_eq!(shards(8, [1, 2, 4]), [1.0, 1.0], "a shard a host");
}

/// A shard has a part of the work and of the memory, and waits for its messages.
#[test]
fn the_layers_of_a_shard_cost_a_part_and_their_messages() {
    let link = LinkCost { latency: 0.5, per_byte: 0.25 };
    let costs = || ModelCosts::new((0..2).map(layer).collect(), 1.0, link).unwrap();
    let messages = [1.0, 2.0, 3.0].map(|count| ShardMessages { count, bytes: 4.0 * count });
    let one = costs().stage(0..2);
    let own = vec![ShardCost { messages, pending: 0.0 }; 2];
    let sharded = costs().sharded(4, own.clone(), link).unwrap();
    let shard = sharded.stage(0..2);
    assert!(close(shard.forward, one.forward / 4.0 + 2.0 * 1.5));
    assert!(close(shard.backward_input, one.backward_input / 4.0 + 2.0 * 3.0));
    assert!(close(shard.backward_weight, one.backward_weight / 4.0 + 2.0 * 4.5));
    for (part, whole) in [
        (shard.saved, one.saved),
        (shard.pending, one.pending),
        (shard.restored, one.restored),
        (shard.update, one.update),
    ] {
        assert!(close(part, whole / 4.0), "{part} of {whole}");
    }
    let comm = |costs: &ModelCosts| costs.stages(&[1, 1]).unwrap().comm();
    assert!(close(comm(&sharded) - link.latency, (comm(&costs()) - link.latency) / 4.0));
    // The last call counts.
    assert_eq!(sharded.clone().sharded(4, own.clone(), link).unwrap().stage(0..2), shard);
    let in_ms = sharded.in_units(1e3, 1.0 / 1024.0).stage(0..2);
    assert!(close(in_ms.forward, 1e3 * shard.forward) && close(in_ms.saved, shard.saved / 1024.0));
    let whole = vec![ShardCost { messages, pending: f64::INFINITY }; 2];
    assert!(close(costs().sharded(4, whole, link).unwrap().stage(0..2).pending, one.pending));
    assert!(costs().sharded(2, own[..1].to_vec(), link).is_err(), "costs of one layer only");
}

/// What was measured with shards is not divided once more.
#[test]
fn costs_of_a_shard_stay_as_they_were_measured() {
    let link = LinkCost { latency: 0.5, per_byte: 0.25 };
    let costs = || ModelCosts::new((0..2).map(layer).collect(), 1.0, link).unwrap();
    let own = vec![ShardCost::default(); 2];
    let of = |count, waits| costs().of_shards(MeasuredShards { count, waits });
    let measured = of(4, 0.25).unwrap();
    let shard = measured.clone().sharded(4, own.clone(), link).unwrap();
    assert_eq!(shard.stage(0..2), costs().stage(0..2));
    assert_eq!(shard.stages(&[1, 1]).unwrap().comm(), costs().stages(&[1, 1]).unwrap().comm());
    assert_eq!(measured.clone().in_units(1e3, 1.0).measured_shards().waits, 250.0);
    let of_eight = measured.sharded(8, own, link).unwrap();
    assert!(close(of_eight.stage(0..2).forward, costs().stage(0..2).forward / 2.0));
    for (count, waits) in [(0, 0.0), (2, -1.0), (2, f64::NAN)] {
        assert!(of(count, waits).is_err(), "{count} shards that wait {waits} s");
    }
}

#[test]
fn a_tree_of_groups_keeps_one_sum_a_level() {
    let of_batch = |groups: u32, each: u32, in_place| {
        waiting_sums(GradientGroups::new(groups * each, groups), 0..groups, in_place)
    };
    let waiting: Vec<u32> = (1..10).map(|groups| of_batch(groups, 1, false)).collect();
    assert_eq!(waiting, [0, 1, 1, 2, 2, 2, 2, 3, 3]);
    let in_place: Vec<u32> = (1..10).map(|groups| of_batch(groups, 1, true)).collect();
    assert_eq!(in_place, [0, 0, 1, 1, 1, 1, 2, 2, 2]);
    assert_eq!(of_batch(8, 2, true), 3, "a group of two micro-batches is not added in place");
    let part = |in_place| waiting_sums(GradientGroups::new(8, 8), 3..6, in_place);
    assert_eq!([part(false), part(true)], [2, 1], "3 waits, and 4 until 5 is there");
}

#[test]
fn costs_of_replicas_that_are_no_times_are_refused() {
    let layers = model(1, 1.0, false);
    let reduction = |latency, add| Reduction {
        replicas: 2,
        link: LinkCost { latency, per_byte: 0.0 },
        add,
        sent: 1.0,
        sharded: false,
    };
    for (weights, reduction, message) in [
        (
            vec![1.0; 8],
            reduction(-1.0, 0.0),
            "link between replicas: the cost latency is -1; it has to be a number from 0 on",
        ),
        (
            vec![1.0; 8],
            reduction(0.0, f64::NAN),
            "link between replicas: the cost add is NaN; it has to be a number from 0 on",
        ),
        (vec![1.0; 3], reduction(0.0, 0.0), "stages of [3] layers do not make up the model's 8"),
    ] {
        let refused = layers.clone().replicated(weights, reduction).unwrap_err();
        assert_eq!(refused.to_string(), message);
    }
    let slow = LinkCost { latency: f64::INFINITY, per_byte: 0.0 };
    assert_eq!(
        layers.linked(slow).unwrap_err().to_string(),
        "link: the cost latency is inf; it has to be a number from 0 on"
    );
    let placement = Placement::looped(1, 1).unwrap();
    assert_eq!(Costs::default().of(&placement).unwrap()[0].gather, 0.0);
}
