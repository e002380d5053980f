//! A second check of schedules, as simple as possible and slow: it runs the lists, with sets of what exists.

use std::collections::BTreeSet;

use super::*;

/// Whether these lists are a whole step of training, with each action once and on the right rank, and run to
/// their end.
pub(crate) fn runs(rows: &[Vec<Action>], placement: &Placement, micro_batches: u32, links: LinkKind) -> bool {
    let mut rows = rows.to_vec();
    if !rows.iter().flatten().any(|action| matches!(action, Action::Step(_))) {
        for (rank, row) in (0..).zip(&mut rows) {
            row.extend(placement.stages_on(Rank(rank)).map(Action::Step));
        }
    }
    whole(&rows, placement, micro_batches, true) && Run::new(&rows, placement, links).ends()
}

/// The same for lists of passes, whose transfers happen at once.
pub(crate) fn passes_run(rows: &[Vec<Action>], placement: &Placement, micro_batches: u32) -> bool {
    if !whole(rows, placement, micro_batches, false) {
        return false;
    }
    let (mut next, mut done) = (vec![0; rows.len()], BTreeSet::new());
    loop {
        let mut moved = false;
        for (rank, row) in rows.iter().enumerate() {
            if let Some(&Action::Compute(pass, cell)) = row.get(next[rank])
                && needs(pass, cell, placement)
                    .iter()
                    .all(|options| options.iter().any(|need| done.contains(need)))
            {
                done.insert((pass, cell));
                next[rank] += 1;
                moved = true;
            }
        }
        if !moved {
            return rows.iter().zip(next).all(|(row, next)| next == row.len());
        }
    }
}

/// What a pass needs first: one pass of each list.
fn needs(pass: Pass, cell: Cell, placement: &Placement) -> Vec<Vec<(Pass, Cell)>> {
    let last = placement.stages() - 1;
    let at = |stage: u32| Cell { stage: StageId(stage), ..cell };
    let mut needs = Vec::new();
    match pass {
        Pass::Forward if cell.stage.0 > 0 => needs.push(vec![(Pass::Forward, at(cell.stage.0 - 1))]),
        Pass::Forward => {}
        Pass::Backward | Pass::BackwardInput => {
            needs.push(vec![(Pass::Forward, cell)]);
            if cell.stage.0 < last {
                let next = at(cell.stage.0 + 1);
                needs.push(vec![(Pass::Backward, next), (Pass::BackwardInput, next)]);
            }
        }
        Pass::BackwardWeight => needs.push(vec![(Pass::BackwardInput, cell)]),
    }
    needs
}

fn whole(rows: &[Vec<Action>], placement: &Placement, micro_batches: u32, transfers: bool) -> bool {
    let mut counts = BTreeMap::new();
    for (rank, row) in (0..).zip(rows) {
        for &action in row {
            if placement.rank(action.stage()) != Some(Rank(rank)) {
                return false;
            }
            *counts.entry(action).or_insert(0) += 1;
        }
    }
    let mut expected = BTreeMap::new();
    let reduces = counts.keys().any(|action| matches!(action, Action::Reduce(_)));
    for stage in (0..placement.stages()).map(StageId) {
        if transfers {
            expected.insert(Action::Step(stage), 1);
        }
        if reduces {
            expected.insert(Action::Reduce(stage), 1);
        }
        for m in 0..micro_batches {
            let cell = Cell::new(stage.0, m);
            expected.insert(Action::Compute(Pass::Forward, cell), 1);
            if counts.contains_key(&Action::Compute(Pass::BackwardInput, cell)) {
                expected.insert(Action::Compute(Pass::BackwardInput, cell), 1);
                expected.insert(Action::Compute(Pass::BackwardWeight, cell), 1);
            } else {
                expected.insert(Action::Compute(Pass::Backward, cell), 1);
            }
            let next = Cell::new(stage.0 + 1, m);
            if transfers
                && next.stage.0 < placement.stages()
                && placement.rank(stage) != placement.rank(next.stage)
            {
                expected.insert(Action::Send(Flow::Activation, cell), 1);
                expected.insert(Action::Recv(Flow::Activation, next), 1);
                expected.insert(Action::Send(Flow::Gradient, next), 1);
                expected.insert(Action::Recv(Flow::Gradient, cell), 1);
            }
        }
    }
    counts == expected
}

struct Run<'a> {
    rows: &'a [Vec<Action>],
    placement: &'a Placement,
    links: LinkKind,
    next: Vec<usize>,
    /// What each rank can use: its own outputs, and what it has received.
    there: Vec<BTreeSet<(Flow, StageId, Cell)>>,
    done: BTreeSet<(Pass, Cell)>,
    /// Announced transfers that have not happened.
    queues: Vec<Vec<Action>>,
}

impl<'a> Run<'a> {
    fn new(rows: &'a [Vec<Action>], placement: &'a Placement, links: LinkKind) -> Self {
        let (there, queues) = (vec![BTreeSet::new(); rows.len()], vec![Vec::new(); rows.len()]);
        Self { rows, placement, links, next: vec![0; rows.len()], there, done: BTreeSet::new(), queues }
    }

    fn ends(mut self) -> bool {
        loop {
            let mut moved = self.transfer();
            for rank in 0..self.rows.len() {
                if let Some(&action) = self.rows[rank].get(self.next[rank])
                    && self.perform(rank, action)
                {
                    self.next[rank] += 1;
                    moved = true;
                }
            }
            if !moved {
                let ended = self.rows.iter().zip(&self.next).all(|(row, &next)| next == row.len());
                return ended && self.queues.iter().all(Vec::is_empty);
            }
        }
    }

    fn perform(&mut self, rank: usize, action: Action) -> bool {
        let last = StageId(self.placement.stages() - 1);
        match action {
            Action::Compute(pass, cell) => {
                let has = |flow| self.there[rank].contains(&(flow, cell.stage, cell));
                let can = match pass {
                    Pass::Forward => cell.stage.0 == 0 || has(Flow::Activation),
                    Pass::Backward | Pass::BackwardInput => {
                        self.done.contains(&(Pass::Forward, cell))
                            && (cell.stage == last || has(Flow::Gradient))
                    }
                    Pass::BackwardWeight => self.done.contains(&(Pass::BackwardInput, cell)),
                };
                if !can {
                    return false;
                }
                self.done.insert((pass, cell));
                if let Some(flow) = pass.output()
                    && let Some(next) = flow.after(cell.stage)
                    && self.placement.rank(next) == Some(Rank(rank as u32))
                {
                    self.there[rank].insert((flow, next, Cell { stage: next, ..cell }));
                }
            }
            Action::Send(flow, cell) => {
                let made = |pass| self.done.contains(&(pass, cell));
                let made = match flow {
                    Flow::Activation => made(Pass::Forward),
                    Flow::Gradient => made(Pass::Backward) || made(Pass::BackwardInput),
                };
                if !made {
                    return false;
                }
                self.queues[rank].push(action);
            }
            Action::Recv(..) => self.queues[rank].push(action),
            Action::Reduce(stage) => {
                let is_weight = |later: &Action| {
                    let weight = matches!(later, Action::Compute(Pass::Backward | Pass::BackwardWeight, _));
                    weight && later.stage() == stage
                };
                if self.rows[rank][self.next[rank]..].iter().any(is_weight) {
                    return false;
                }
                self.queues[rank].push(action);
            }
            // All ranks meet here with all their gradients, so no other action may follow.
            Action::Step(_) => {
                return self.rows[rank][self.next[rank]..]
                    .iter()
                    .all(|action| matches!(action, Action::Step(_)));
            }
        }
        true
    }

    /// Makes one transfer or reduction happen.
    fn transfer(&mut self) -> bool {
        let reach = if self.links == LinkKind::Ordered { 1 } else { usize::MAX };
        for from in 0..self.queues.len() {
            for (at, &send) in self.queues[from].iter().enumerate().take(reach) {
                if matches!(send, Action::Reduce(_)) {
                    self.queues[from].remove(at);
                    return true;
                }
                let Action::Send(flow, cell) = send else { continue };
                let (Some(recv), Some(stage)) = (send.partner(), flow.after(cell.stage)) else {
                    continue;
                };
                let to = self.placement.rank(stage).unwrap().index();
                let Some(place) = self.queues[to].iter().take(reach).position(|&action| action == recv)
                else {
                    continue;
                };
                self.queues[from].remove(at);
                self.queues[to].remove(place);
                self.there[to].insert((flow, stage, Cell { stage, ..cell }));
                return true;
            }
        }
        false
    }
}
