//! Lists of actions with an index: where each action is and what it needs.

use crate::Result;
use crate::error::schedule::{ActionPlace, ScheduleError};
use crate::id::{MicroBatch, Rank, StageId};
use crate::schedule::{Action, Cell, Flow, Pass};

/// The number of an action: its index when the lists of all ranks are laid end to end.
pub(crate) type Id = u32;

/// No such action.
pub(crate) const NONE: Id = u32::MAX;

/// The most cells (stages x micro-batches) that are indexed. With more, seven actions a cell would not fit
/// into an [`Id`].
pub(crate) const MAX_CELLS: u64 = 1 << 23;

/// The actions that a list may have once for each cell. `B` and `I` are of one kind: both make the
/// gradient of the input.
#[derive(Clone, Copy)]
pub(crate) enum ActionKind {
    Forward,
    Backward,
    Weight,
    SendActivation,
    RecvActivation,
    SendGradient,
    RecvGradient,
}

const KINDS: usize = 7;

impl ActionKind {
    pub(crate) fn of(action: Action) -> Option<Self> {
        Some(match action {
            Action::Compute(Pass::Forward, _) => Self::Forward,
            Action::Compute(Pass::Backward | Pass::BackwardInput, _) => Self::Backward,
            Action::Compute(Pass::BackwardWeight, _) => Self::Weight,
            Action::Send(Flow::Activation, _) => Self::SendActivation,
            Action::Recv(Flow::Activation, _) => Self::RecvActivation,
            Action::Send(Flow::Gradient, _) => Self::SendGradient,
            Action::Recv(Flow::Gradient, _) => Self::RecvGradient,
            Action::Reduce(_) | Action::Step(_) => return None,
        })
    }

    /// The pass whose output travels as `flow`.
    fn maker(flow: Flow) -> Self {
        match flow {
            Flow::Activation => Self::Forward,
            Flow::Gradient => Self::Backward,
        }
    }

    fn recv(flow: Flow) -> Self {
        match flow {
            Flow::Activation => Self::RecvActivation,
            Flow::Gradient => Self::RecvGradient,
        }
    }
}

/// An action and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: Rank,
    pub(crate) index: usize,
    pub(crate) action: Action,
}

impl Place {
    /// The place in the form that errors use.
    pub(crate) fn named(self) -> ActionPlace {
        ActionPlace { rank: self.rank, index: self.index, action: self.action.to_string() }
    }
}

/// Lists of actions with an index: a whole schedule or a fragment. The index leaves out actions beyond the
/// given stages and micro-batches. Of two actions of one kind for one cell, the index has the first.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    rows: &'a [Vec<Action>],
    /// The id of each rank's first action, and one past the last of all.
    starts: Vec<Id>,
    stages: usize,
    /// How many stages each direction has. The first stage of a direction takes no input from another stage.
    depth: u32,
    micro_batches: usize,
    /// `[stage][micro_batch][kind]`.
    of_cells: Vec<Id>,
    /// Each stage's last action that makes weight gradients.
    last_weights: Vec<Id>,
    reductions: Vec<Id>,
    steps: Vec<Id>,
    /// Pairs of actions of the same kind for the same cell.
    pub(crate) twice: Vec<(Id, Id)>,
}

impl<'a> Program<'a> {
    pub(crate) fn index(rows: &'a [Vec<Action>], stages: u32, micro_batches: u32) -> Result<Self> {
        let actions: u64 = rows.iter().map(|row| row.len() as u64).sum();
        if u64::from(stages) * u64::from(micro_batches.max(1)) > MAX_CELLS || actions >= u64::from(NONE) {
            return Err(ScheduleError::new(format!(
                "{stages} stages x {micro_batches} micro-batches are too many: their product may be \
                 8,388,608 (2^23) at most"
            ))
            .into());
        }
        let (stages, micro_batches) = (stages as usize, micro_batches as usize);
        let mut program = Self {
            rows,
            starts: vec![0],
            stages,
            depth: stages as u32,
            micro_batches,
            of_cells: vec![NONE; stages * micro_batches * KINDS],
            last_weights: vec![NONE; stages],
            reductions: vec![NONE; stages],
            steps: vec![NONE; stages],
            twice: Vec::new(),
        };
        let mut id = 0;
        for row in rows {
            for &action in row {
                program.insert(id, action);
                id += 1;
            }
            program.starts.push(id);
        }
        Ok(program)
    }

    /// The same lists with the stages divided among this many directions.
    pub(crate) fn in_directions(self, directions: u32) -> Self {
        Self { depth: self.stages as u32 / directions, ..self }
    }

    fn insert(&mut self, id: Id, action: Action) {
        let stage = action.stage().index();
        let place = match (action.cell(), ActionKind::of(action)) {
            (Some(cell), Some(kind)) => match self.index_of(kind, cell) {
                Some(index) => &mut self.of_cells[index],
                None => return,
            },
            _ if stage >= self.stages => return,
            _ if matches!(action, Action::Reduce(_)) => &mut self.reductions[stage],
            _ => &mut self.steps[stage],
        };
        if *place == NONE {
            *place = id;
        } else {
            self.twice.push((*place, id));
        }
        if matches!(action, Action::Compute(Pass::Backward | Pass::BackwardWeight, _)) {
            self.last_weights[stage] = id;
        }
    }

    fn index_of(&self, kind: ActionKind, cell: Cell) -> Option<usize> {
        let (stage, micro_batch) = (cell.stage.index(), cell.micro_batch.index());
        let inside = stage < self.stages && micro_batch < self.micro_batches;
        inside.then(|| (stage * self.micro_batches + micro_batch) * KINDS + kind as usize)
    }

    pub(crate) fn rows(&self) -> &'a [Vec<Action>] {
        self.rows
    }

    pub(crate) fn micro_batches(&self) -> u32 {
        self.micro_batches as u32
    }

    /// How many actions there are.
    pub(crate) fn len(&self) -> usize {
        self.starts[self.rows.len()] as usize
    }

    /// The id of a rank's first action, or one past its last for the rank after it.
    pub(crate) fn start(&self, rank: usize) -> Id {
        self.starts[rank]
    }

    pub(crate) fn rank_of(&self, id: Id) -> usize {
        self.starts.partition_point(|&start| start <= id) - 1
    }

    pub(crate) fn place(&self, id: Id) -> Place {
        let rank = self.rank_of(id);
        let index = (id - self.starts[rank]) as usize;
        Place { rank: Rank(rank as u32), index, action: self.rows[rank][index] }
    }

    /// All actions, rank by rank.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + 'a {
        let rows = self.rows.iter().zip((0..).map(Rank));
        rows.flat_map(|(row, rank)| {
            row.iter().enumerate().map(move |(index, &action)| Place { rank, index, action })
        })
    }

    /// The id of the cell's action of this kind, or [`NONE`].
    pub(crate) fn find(&self, kind: ActionKind, cell: Cell) -> Id {
        self.index_of(kind, cell).map_or(NONE, |index| self.of_cells[index])
    }

    /// The id of this stage's reduction, or [`NONE`].
    pub(crate) fn reduction(&self, stage: StageId) -> Id {
        self.reductions.get(stage.index()).copied().unwrap_or(NONE)
    }

    /// Whether any stage has a reduction.
    pub(crate) fn reduces(&self) -> bool {
        self.reductions.iter().any(|&id| id != NONE)
    }

    /// The id of this stage's step, or [`NONE`].
    pub(crate) fn step(&self, stage: StageId) -> Id {
        self.steps.get(stage.index()).copied().unwrap_or(NONE)
    }

    /// The id of the other end of this transfer, or [`NONE`].
    pub(crate) fn partner(&self, transfer: Action) -> Id {
        let other = transfer.partner().and_then(|other| Some((ActionKind::of(other)?, other.cell()?)));
        other.map_or(NONE, |(kind, cell)| self.find(kind, cell))
    }

    /// The actions that have to be done before this one. Only actions of the lists themselves count.
    pub(crate) fn needs(&self, action: Action) -> [Id; 2] {
        match action {
            Action::Compute(Pass::Forward, cell) => [self.input(Flow::Activation, cell), NONE],
            Action::Compute(Pass::Backward | Pass::BackwardInput, cell) => {
                [self.find(ActionKind::Forward, cell), self.input(Flow::Gradient, cell)]
            }
            Action::Compute(Pass::BackwardWeight, cell) => [self.find(ActionKind::Backward, cell), NONE],
            Action::Send(flow, cell) => [self.find(ActionKind::maker(flow), cell), NONE],
            Action::Recv(..) => [NONE; 2],
            Action::Reduce(stage) => [self.last_weight(stage), NONE],
            Action::Step(stage) => [self.last_weight(stage), self.reduction(stage)],
        }
    }

    fn last_weight(&self, stage: StageId) -> Id {
        self.last_weights.get(stage.index()).copied().unwrap_or(NONE)
    }

    /// The receive that brings the cell its `flow`. If there is none, the pass that makes it.
    fn input(&self, flow: Flow, cell: Cell) -> Id {
        let direction = |stage: StageId| stage.0 / self.depth.max(1);
        let before = flow.before(cell.stage).filter(|&stage| direction(stage) == direction(cell.stage));
        match (self.find(ActionKind::recv(flow), cell), before) {
            (NONE, Some(stage)) => self.find(ActionKind::maker(flow), Cell { stage, ..cell }),
            (recv, _) => recv,
        }
    }
}

/// The cell of every stage and micro-batch, stage by stage.
pub(crate) fn cells(stages: u32, micro_batches: u32) -> impl Iterator<Item = Cell> {
    (0..stages).flat_map(move |stage| {
        (0..micro_batches)
            .map(move |micro_batch| Cell { stage: StageId(stage), micro_batch: MicroBatch(micro_batch) })
    })
}
