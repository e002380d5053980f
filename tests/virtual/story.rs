//! What a seed stands for: a pipeline, what is done with it, and what goes wrong.

use super::*;

/// A run in a virtual world.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) seed: u64,
    pub(crate) order: Order,
    /// Of a replica.
    pub(crate) ranks: u32,
    pub(crate) micro_batches: u32,
    pub(crate) replicas: u32,
    /// Of each rank.
    pub(crate) shards: u32,
    pub(crate) sharded: bool,
    pub(crate) sync: SyncMode,
    pub(crate) model: Model,
    /// Whether all ranks wait for each other at the end of a step. If not, nothing is clipped.
    pub(crate) barrier: bool,
    /// How often a rank may be built again in a step.
    pub(crate) restarts: u32,
    /// The steps from one snapshot to the next.
    pub(crate) snapshots: NonZeroU32,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) weather: Weather,
    pub(crate) faults: Vec<Fault>,
}

/// What is done with the pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deed {
    Step,
    Evaluate,
    Save,
    /// A rank cannot write its part.
    SaveInVain {
        rank: usize,
        panics: bool,
    },
    /// A checkpoint is written while the next step runs.
    SaveBeside,
    /// The newest checkpoint is loaded, if there is one.
    Load,
    /// A step with data that makes the loss infinite.
    SpoiltStep,
    /// The model is cut elsewhere: this stage has all layers that are left over. The passes may run by the
    /// schedule of this name then, with as many stages.
    Recut {
        long: usize,
        schedule: Option<&'static str>,
    },
    /// The same world gets other numbers of replicas, ranks and shards. Each rank has a stage then.
    Reshape {
        sizes: [u32; 3],
        long: usize,
        schedule: &'static str,
    },
}

impl Story {
    /// The story of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let draw = &mut Draw::new(seed);
        let ranks = match draw.below(100) {
            0..70 => draw.within(2, 4),
            70..92 => draw.within(5, 8),
            92..98 => draw.within(9, 16),
            _ => draw.within(17, 64),
        } as u32;
        let order = Order::drawn(draw, ranks);
        let replicas = match ranks {
            2..=8 => *draw.one_of(&[1, 1, 2, 3, 4]),
            _ => 1,
        };
        let sync = match replicas {
            1 => SyncMode::Reduce,
            _ => sync(draw),
        };
        let is_stale = staleness(sync) > 0;
        // Drawn apart too: stories in which the model is cut elsewhere.
        let mut of_cuts = Draw::new(seed ^ 0xc07);
        let left_over = if !is_stale && of_cuts.chance(250) { of_cuts.within(1, 3) as usize } else { 0 };
        let stages = order.stages(ranks);
        let model = Model {
            layers: stages + left_over,
            stages,
            tied: draw.chance(300) && !is_stale,
            large: ranks <= 4 && draw.chance(80),
            divided: false,
        };
        // Drawn apart, so that stories without shards stay as they were.
        let mut of_shards = Draw::new(seed ^ 0x5ea7);
        let shards = if sync == SyncMode::Reduce && ranks <= 4 && of_shards.chance(300) { 2 } else { 1 };
        let model =
            if shards > 1 { Model { tied: false, large: false, divided: true, ..model } } else { model };
        let world = (ranks * replicas * shards) as usize;
        let micro_batches = draw.within(1, 8) as u32;
        // Few: a rank pauses before it is built again.
        let restarts = if is_stale { 0 } else { *draw.one_of(&[0, 1, 2, 2]) };
        // Drawn apart, so that stories with a barrier stay as they were.
        let can_go_on = sync == SyncMode::Reduce && restarts == 0;
        let mut of_barriers = Draw::new(seed ^ 0xba44);
        let barrier = !(can_go_on && of_barriers.chance(600));
        let mut deeds = deeds(draw, ranks, staleness(sync));
        if !barrier {
            let end = deeds.iter().position(|deed| *deed == Deed::SpoiltStep).unwrap_or(deeds.len());
            let at = of_barriers.below(end as u64 + 1) as usize;
            let more = of_barriers.within(1, 4) as usize;
            deeds.splice(at..at, vec![Deed::Step; more]);
        }
        let steps = deeds.iter().filter(|deed| **deed == Deed::Step).count() as u64;
        let mut faults: Vec<Fault> =
            (0..draw.below(5)).map(|_| fault(draw, world, stages, steps, micro_batches)).collect();
        if left_over > 0 {
            // A new cut that cannot be built is refused, and nobody is told of the fault.
            faults.retain(|fault| !matches!(fault, Fault::NotBuilt { .. }));
            for _ in 0..of_cuts.within(1, 3) {
                let at = of_cuts.below(deeds.len() as u64 + 1) as usize;
                let long = of_cuts.below(stages as u64) as usize;
                let names: Vec<_> = order::with_stages(stages as u32 / ranks).collect();
                let schedule = of_cuts.chance(500).then(|| *of_cuts.one_of(&names));
                deeds.insert(at, Deed::Recut { long, schedule });
            }
        }
        // Drawn apart as well.
        let mut of_shapes = Draw::new(seed ^ 0x54a9e);
        if left_over == 0 && sync == SyncMode::Reduce && of_shapes.chance(300) {
            faults.retain(|fault| !matches!(fault, Fault::NotBuilt { .. }));
            // In another shape the rank may be one that does not write.
            deeds.retain(|deed| !matches!(deed, Deed::SaveInVain { .. }));
            let shapes = shapes(world as u32, &model);
            for _ in 0..of_shapes.within(1, 3) {
                let at = of_shapes.below(deeds.len() as u64 + 1) as usize;
                let sizes = *of_shapes.one_of(&shapes);
                let long = of_shapes.below(sizes[1].into()) as usize;
                let schedule = *of_shapes.one_of(&["1f1b", "gpipe", "zb-h1"]);
                deeds.insert(at, Deed::Reshape { sizes, long, schedule });
            }
        }
        Self {
            seed,
            order,
            ranks,
            micro_batches,
            replicas,
            shards,
            sharded: replicas > 1 && draw.chance(500),
            sync,
            model,
            barrier,
            restarts,
            snapshots: NonZeroU32::new(draw.within(1, 3) as u32).expect("it is 1 at least"),
            deeds,
            weather: Weather::drawn(draw),
            faults,
        }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        self.order.schedule(self.ranks, self.micro_batches)
    }

    /// The largest norm of a gradient.
    pub(crate) fn clip(&self) -> Option<f64> {
        self.barrier.then_some(CLIP)
    }

    /// Of how many steps updates may be missing.
    pub(crate) fn staleness(&self) -> u32 {
        staleness(self.sync)
    }

    /// The numbers of replicas, ranks and shards: at the beginning, and later.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = [u32; 3]> {
        let later = self.deeds.iter().filter_map(|deed| match deed {
            Deed::Reshape { sizes, .. } => Some(*sizes),
            _ => None,
        });
        std::iter::once([self.replicas, self.ranks, self.shards]).chain(later)
    }

    /// The number of ranks of all replicas, with their shards.
    pub(crate) fn world(&self) -> usize {
        (self.ranks * self.replicas * self.shards) as usize
    }
}

/// Numbers of replicas, ranks and shards for this many ranks in all.
fn shapes(world: u32, model: &Model) -> Vec<[u32; 3]> {
    let shards: &[u32] = if model.divided { &[1, 2] } else { &[1] };
    let parts = (1..=4).flat_map(|replicas| shards.iter().map(move |shards| [replicas, *shards]));
    let shape = |[replicas, shards]: [u32; 2]| [replicas, world / (replicas * shards), shards];
    let possible = parts.filter(|[replicas, shards]| world.is_multiple_of(replicas * shards)).map(shape);
    possible.filter(|[_, ranks, _]| (1..=model.layers as u32).contains(ranks)).collect()
}

/// How several replicas come to the same weights.
fn sync(draw: &mut Draw) -> SyncMode {
    match draw.below(10) {
        0..5 => SyncMode::Reduce,
        5 => SyncMode::Server { max_staleness: 0 },
        _ => SyncMode::Server { max_staleness: draw.within(1, 3) as u32 },
    }
}

fn staleness(sync: SyncMode) -> u32 {
    match sync {
        SyncMode::Reduce => 0,
        SyncMode::Server { max_staleness } => max_staleness,
    }
}

fn deeds(draw: &mut Draw, ranks: u32, staleness: u32) -> Vec<Deed> {
    // The ranks of the first replica write.
    let mut deeds = Vec::new();
    for _ in 0..draw.within(2, 4) {
        deeds.push(Deed::Step);
        // All else brings the replicas together: only later steps may be stale.
        let more = draw.below(u64::from(2 * staleness) + 1);
        deeds.extend((0..more).map(|_| Deed::Step));
        match draw.below(13) {
            0 => deeds.push(Deed::Evaluate),
            1 => deeds.push(Deed::Save),
            2 => deeds.extend([Deed::Save, Deed::Step, Deed::Load]),
            3 => deeds
                .push(Deed::SaveInVain { rank: draw.below(ranks.into()) as usize, panics: draw.chance(200) }),
            4 => deeds.extend([Deed::SaveBeside, Deed::Step]),
            _ => {}
        }
    }
    if draw.chance(200) {
        // The last one: it would fail again and again.
        deeds.extend([Deed::SpoiltStep, Deed::Evaluate]);
    }
    deeds
}

fn fault(draw: &mut Draw, world: usize, layers: usize, steps: u64, micro_batches: u32) -> Fault {
    let rank = draw.below(world as u64) as usize;
    let other = (rank + 1 + draw.below(world as u64 - 1) as usize) % world;
    // Most of the time of a run.
    let at = draw.below(20_000);
    let micros = *draw.one_of(&[1_000, 10_000, 3_600_000_000]);
    let step = draw.within(1, steps) - 1;
    let micro_batch = draw.below(micro_batches.into()) as u32;
    match draw.below(20) {
        0..7 => Fault::Fails {
            rank,
            pass: draw.below(steps * u64::from(micro_batches) * 3),
            panics: draw.chance(500),
        },
        7 => Fault::AlwaysFails { layer: draw.below(layers as u64) as usize, step, micro_batch },
        8 => Fault::NotBuilt { rank, time: 1 },
        // The very first micro-batch is also read for the data's fingerprint.
        9 | 10 => Fault::NoData {
            step,
            micro_batch: if step == 0 { micro_batch.max(1) } else { micro_batch },
            times: draw.within(1, 2) as u32,
        },
        11 | 12 => Fault::Stops { rank, at, micros },
        13 | 14 => Fault::Slow { rank, times: *draw.one_of(&[10, 1_000]) },
        15 => Fault::ClockJumps { at, micros },
        16..19 => Fault::Down { ranks: [rank, other], at, micros },
        _ => Fault::Cut { ranks: [rank, other], at },
    }
}
