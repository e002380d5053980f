//! Random schedules that are valid.

use pipewright::id::Rank;
use pipewright::schedule::{Cell, Pass, Placement};

/// Each rank's passes, in order.
pub(crate) type Rows = Vec<Vec<(Pass, Cell)>>;

/// A random order of all passes in which each comes after those that it needs. `picks` decides which pass
/// comes next, and which backwards are split.
pub(crate) fn random_rows(
    placement: &Placement,
    micro_batches: u32,
    mut pick: impl FnMut(usize) -> usize,
) -> Rows {
    let stages = placement.stages();
    let mut rows: Rows = vec![Vec::new(); placement.ranks() as usize];
    let cell = |index: usize| Cell::new(index as u32 / micro_batches, index as u32 % micro_batches);
    let cells = (stages * micro_batches) as usize;
    // The progress of each cell: 0 nothing, 1 forward, 2 backward-input, 3 everything.
    let mut state = vec![0_u8; cells];
    loop {
        let at = |state: &[u8], stage: u32, micro_batch: u32| {
            state[(stage * micro_batches + micro_batch) as usize]
        };
        let ready = |&index: &usize| {
            let Cell { stage, micro_batch } = cell(index);
            match state[index] {
                0 => stage.0 == 0 || at(&state, stage.0 - 1, micro_batch.0) >= 1,
                1 => stage.0 + 1 == stages || at(&state, stage.0 + 1, micro_batch.0) >= 2,
                2 => true,
                _ => false,
            }
        };
        let candidates: Vec<usize> = (0..cells).filter(ready).collect();
        let Some(&index) = candidates.get(pick(candidates.len().max(1))) else {
            return rows;
        };
        let (pass, next) = match state[index] {
            0 => (Pass::Forward, 1),
            1 if pick(2) == 0 => (Pass::Backward, 3),
            1 => (Pass::BackwardInput, 2),
            _ => (Pass::BackwardWeight, 3),
        };
        state[index] = next;
        let rank = placement.rank(cell(index).stage).expect("it has the stage");
        rows[rank.index()].push((pass, cell(index)));
    }
}

/// A placement of `stages` stages in which every rank has one.
pub(crate) fn random_placement(ranks: u32, stages: u32, mut pick: impl FnMut(usize) -> usize) -> Placement {
    let mut order: Vec<Rank> = (0..ranks).map(Rank).collect();
    order.extend((ranks..stages).map(|_| Rank(pick(ranks as usize) as u32)));
    for last in (1..order.len()).rev() {
        order.swap(last, pick(last + 1));
    }
    Placement::new(order).expect("every rank has a stage")
}
