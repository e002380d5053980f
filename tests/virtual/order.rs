//! Which schedule a seed has: one that has a name, or one with transfers that was changed by chance.

use pipewright::id::Rank;
use pipewright::plan::Costs;
use pipewright::schedule::{Action, Error, LinkKind};

use super::*;

#[derive(Clone, Debug)]
pub(crate) enum Order {
    Named {
        name: &'static str,
        /// The stages of a rank.
        chunks: u32,
    },
    /// A schedule of this name after changes that the checker has accepted.
    Changed { name: &'static str, seed: u64 },
}

impl Order {
    pub(crate) fn drawn(draw: &mut Draw, ranks: u32) -> Self {
        if ranks <= 4 && draw.chance(150) {
            let name = *draw.one_of(&["gpipe", "1f1b", "zb-h1"]);
            let seed = draw.below(1 << 32);
            return Self::Changed { name, seed };
        }
        let names: Vec<_> = Schedule::names().filter(|name| has_one_direction(name)).collect();
        let name = *draw.one_of(&names);
        let known = Schedule::chunks(name).expect("it has this name");
        let chunks = draw.within((*known.start()).into(), u64::from(*known.end()).min(3)) as u32;
        Self::Named { name, chunks }
    }

    /// How many stages `ranks` ranks have.
    pub(crate) fn stages(&self, ranks: u32) -> usize {
        match self {
            Self::Named { chunks, .. } => (ranks * chunks) as usize,
            Self::Changed { .. } => ranks as usize,
        }
    }

    pub(crate) fn schedule(&self, ranks: u32, micro_batches: u32) -> Schedule {
        match self {
            Self::Named { name, chunks } => {
                let costs = Costs::default();
                Schedule::make(name, ranks, Some(*chunks), micro_batches, &costs).expect("the sizes fit")
            }
            Self::Changed { name, seed } => changed(name, ranks, micro_batches, &mut Draw::new(*seed)),
        }
    }
}

/// The names of the schedules that the engine runs with this many stages on a rank.
pub(crate) fn with_stages(chunks: u32) -> impl Iterator<Item = &'static str> {
    let has = move |name: &&str| Schedule::chunks(name).expect("it has this name").contains(&chunks);
    Schedule::names().filter(|name| has_one_direction(name)).filter(has)
}

/// Whether the engine runs the schedules of this name.
fn has_one_direction(name: &str) -> bool {
    let schedule = Schedule::named(name, 2, 2).expect("the sizes fit");
    schedule.placement().directions() == 1
}

/// Changes a schedule again and again, where the checker accepts the change. Most it refuses.
fn changed(name: &str, ranks: u32, micro_batches: u32, draw: &mut Draw) -> Schedule {
    let mut schedule = Schedule::named(name, ranks, micro_batches).expect("the sizes fit");
    let placement = schedule.placement().clone();
    let links = *draw.one_of(&[LinkKind::Buffered, LinkKind::Ordered]);
    for _ in 0..20 {
        let row = |rank| schedule.actions(Rank(rank)).to_vec();
        let mut rows: Vec<Vec<Action>> = (0..ranks).map(row).collect();
        change(&mut rows, draw);
        match Schedule::from_actions("changed", placement.clone(), micro_batches, rows, links) {
            Ok(accepted) => schedule = accepted,
            Err(error) => assert!(matches!(error, Error::Schedule(_)), "{error}"),
        }
    }
    schedule
}

fn change(rows: &mut [Vec<Action>], draw: &mut Draw) {
    let rank = draw.below(rows.len() as u64) as usize;
    let [at, other] = [0, 0].map(|_| draw.below(rows[rank].len() as u64) as usize);
    match draw.below(8) {
        0 => drop(rows[rank].remove(at)),
        1 => {
            let action = rows[rank][at];
            rows[rank].push(action);
        }
        2 => {
            let action = rows[rank].remove(at);
            let to = draw.below(rows.len() as u64) as usize;
            rows[to].push(action);
        }
        _ => rows[rank].swap(at, other),
    }
}
