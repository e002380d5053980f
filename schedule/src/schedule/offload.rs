//! Offload: which cells' activations are on the host meanwhile, and when they go and come back.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Rank;
use crate::schedule::{Cell, Pass, Schedule};

/// What a rank does with what it keeps of a cell, before one of its passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The pass, by its place among the rank's passes.
    pub before: usize,
    /// What is done.
    pub step: MoveStep,
    /// The cell whose activations it is about.
    pub cell: Cell,
}

/// One of the three steps by which activations go to the host and come back. Steps of one moment come in this
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveStep {
    /// All is copied to the host. The device's memory is free from here on.
    Free,
    /// The copy to the host starts.
    Out,
    /// The device's memory is taken again, and the copy back starts. The cell's backward waits for it.
    Back,
}

/// When the activations of a cell are where. Moments are places among the rank's passes.
#[derive(Clone, Copy, Debug)]
struct Life {
    cell: Cell,
    forward: usize,
    backward: usize,
    /// What it holds.
    weight: f64,
    /// Before which pass its memory is free, and before which it is taken again.
    away: [usize; 2],
}

impl Schedule {
    /// The same schedule, with the activations of some cells on the host between forward and backward, so
    /// that ranks hold less on their devices. `weights` has for each stage how much of a cell can leave; 0:
    /// the stage keeps all. `most`: how much of it a rank may have on the host at once.
    ///
    /// A cell's activations go out beside the pass after its forward. They come back beside the backward
    /// before its own, and all that its rank does between these two. Cells for which that is too short stay.
    /// So do cells without which a rank's peak is as low.
    ///
    /// # Panics
    /// When there are not as many weights as stages.
    #[must_use]
    pub fn offloading(mut self, weights: &[f64], most: f64) -> Self {
        assert_eq!(weights.len(), self.stages() as usize, "a weight for each stage");
        self.offloaded.clear();
        for rank in (0..self.ranks()).map(Rank) {
            let lives = self.lives(rank, |cell| weights[cell.stage.index()]);
            self.offloaded.extend(chosen(lives, most));
        }
        self
    }

    /// The same schedule with these cells offloaded, but for those that have to stay.
    pub(super) fn with_offloaded(mut self, cells: &BTreeSet<Cell>) -> Self {
        let ranks = (0..self.ranks()).map(Rank);
        let lives = ranks.flat_map(|rank| self.lives(rank, |_| 0.0));
        let leave = lives.filter(|life| life.leaves() && cells.contains(&life.cell));
        self.offloaded = leave.map(|life| life.cell).collect();
        self
    }

    /// Whether the activations of this cell are on the host between its forward and its backward.
    pub fn is_offloaded(&self, cell: Cell) -> bool {
        self.offloaded.contains(&cell)
    }

    /// Whether any cell is offloaded.
    pub fn offloads(&self) -> bool {
        !self.offloaded.is_empty()
    }

    /// What this rank moves in one step, in order.
    pub fn moves(&self, rank: Rank) -> Vec<Move> {
        if !self.offloads() {
            return Vec::new();
        }
        let lives = self.lives(rank, |_| 0.0).into_iter();
        let mut moves: Vec<Move> = lives
            .filter(|life| self.is_offloaded(life.cell))
            .flat_map(|life| {
                let [free, back] = life.away;
                let at = |before, step| Move { before, step, cell: life.cell };
                [at(life.forward + 1, MoveStep::Out), at(free, MoveStep::Free), at(back, MoveStep::Back)]
            })
            .collect();
        moves.sort();
        moves
    }

    /// All cells of a rank that have a backward, in the order of their forwards.
    fn lives(&self, rank: Rank, weight: impl Fn(Cell) -> f64) -> Vec<Life> {
        let mut forwards = BTreeMap::new();
        let mut before = None;
        let mut lives = Vec::new();
        for (index, (pass, cell)) in self.passes(rank).enumerate() {
            match pass {
                Pass::Forward => {
                    forwards.insert(cell, index);
                }
                Pass::Backward | Pass::BackwardInput => {
                    let forward = forwards[&cell];
                    lives.push(Life {
                        cell,
                        forward,
                        backward: index,
                        weight: weight(cell),
                        away: [forward + 2, before.unwrap_or(index - 1)],
                    });
                    before = Some(index);
                }
                Pass::BackwardWeight => {}
            }
        }
        lives.sort_by_key(|life| life.forward);
        lives
    }
}

impl Life {
    /// Whether it is worth anything to leave: then its memory is free during a pass.
    fn leaves(&self) -> bool {
        self.away[0] < self.away[1]
    }
}

/// The cells of a rank that leave.
fn chosen(lives: Vec<Life>, most: f64) -> Vec<Cell> {
    let passes = lives.iter().map(|life| life.backward + 1).max().unwrap_or(0);
    let (mut device, mut host) = (vec![0.0; passes], vec![0.0; passes]);
    let add = |held: &mut [f64], [from, to]: [usize; 2], weight: f64| {
        held[from..to].iter_mut().for_each(|held| *held += weight);
    };
    let peak = |held: &[f64]| held.iter().copied().fold(0.0, f64::max);
    let mut leave = Vec::new();
    for life in lives {
        let on_host = [life.forward + 1, life.backward + 1];
        add(&mut device, [life.forward, life.backward + 1], life.weight);
        let fits = peak(&host[on_host[0]..on_host[1]]) + life.weight <= most;
        if life.leaves() && life.weight > 0.0 && fits {
            add(&mut device, life.away, -life.weight);
            add(&mut host, on_host, life.weight);
            leave.push(life);
        }
    }
    let least = peak(&device);
    leave.retain(|life| {
        let stays = peak(&device[life.away[0]..life.away[1]]) + life.weight <= least;
        if stays {
            add(&mut device, life.away, life.weight);
        }
        !stays
    });
    leave.into_iter().map(|life| life.cell).collect()
}
