//! What a seed stands for: a pipeline of several processes, and when which of them dies.

use crate::*;

/// A run of several processes.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) seed: u64,
    pub(crate) order: Order,
    /// Of a replica.
    pub(crate) ranks: u32,
    pub(crate) replicas: u32,
    /// Of each rank.
    pub(crate) shards: u32,
    pub(crate) micro_batches: u32,
    pub(crate) sharded: bool,
    pub(crate) model: Model,
    pub(crate) steps: u64,
    /// The steps from one snapshot to the next.
    pub(crate) snapshots: NonZeroU32,
    pub(crate) deaths: Vec<Death>,
}

/// A process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Death {
    pub(crate) process: usize,
    /// When it has sent or waited so often, since all processes were there for the first time.
    pub(crate) moment: u64,
}

impl Story {
    /// The story of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let draw = &mut Draw::new(seed);
        let ranks = draw.within(1, 4) as u32;
        let replicas = match ranks {
            1 => draw.within(2, 3) as u32,
            2 => *draw.one_of(&[1, 1, 2]),
            _ => 1,
        };
        let order = match ranks {
            1 => Order::Named { name: "gpipe", chunks: 1 },
            _ => Order::drawn(draw, ranks),
        };
        let (tied, large) = (draw.chance(200), draw.chance(100));
        // Drawn apart, so that stories without shards stay as they were.
        let shards = if ranks <= 2 && Draw::new(seed ^ 0x5ea7).chance(300) { 2 } else { 1 };
        let is_whole = shards == 1;
        let (tied, large) = (tied && is_whole, large && is_whole);
        let stages = order.stages(ranks);
        let model = Model { layers: stages, stages, tied, large, divided: !is_whole };
        let processes = u64::from(ranks * replicas * shards);
        let within = *draw.one_of(&[20, 100, 400]);
        let deaths = (0..draw.below(4)).map(|_| Death {
            // The others cannot go on without process 0.
            process: match draw.chance(50) {
                true => 0,
                false => draw.within(1, processes - 1) as usize,
            },
            moment: draw.below(within),
        });
        let deaths = deaths.collect();
        Self {
            seed,
            order,
            ranks,
            replicas,
            shards,
            micro_batches: draw.within(1, 4) as u32,
            sharded: replicas > 1 && draw.chance(500),
            model,
            steps: draw.within(2, 6),
            snapshots: NonZeroU32::new(draw.within(1, 3) as u32).expect("it is 1 at least"),
            deaths,
        }
    }

    pub(crate) fn processes(&self) -> usize {
        (self.ranks * self.replicas * self.shards) as usize
    }

    pub(crate) fn schedule(&self) -> Schedule {
        self.order.schedule(self.ranks, self.micro_batches)
    }
}
