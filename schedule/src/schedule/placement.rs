//! Which rank each stage is on.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::Result;
use crate::error::ScheduleError;
use crate::id::{Rank, StageId};
use crate::schedule::{Action, Flow};

/// Which rank each stage is on. Every rank has at least one stage.
///
/// Its text form is the list of the stages' ranks: `0,1,1,0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    rank_of: Vec<Rank>,
    ranks: u32,
    directions: u32,
}

impl Placement {
    /// The stages in rounds over the ranks, with `chunks` stages on each: 0,1,2,3,0,1,2,3.
    ///
    /// # Errors
    /// [`ScheduleError`] when either is 0 or there would be more than 2^23 stages.
    pub fn looped(ranks: u32, chunks: u32) -> Result<Self> {
        let stages = stages(ranks, chunks)?;
        Self::new((0..stages).map(|stage| Rank(stage % ranks)).collect())
    }

    /// Two stages on each rank, out and back: 0,1,2,3,3,2,1,0. The first and the last stage share rank 0.
    ///
    /// # Errors
    /// [`ScheduleError`] when `ranks` is 0 or there would be more than 2^23 stages.
    pub fn vee(ranks: u32) -> Result<Self> {
        stages(ranks, 2)?;
        Self::new((0..ranks).chain((0..ranks).rev()).map(Rank).collect())
    }

    /// Two pipelines over the same ranks, one in each direction, as in DualPipe (DeepSeek-AI, arXiv
    /// 2412.19437). One goes from the first rank to the last, the other from the last to the first. Each has
    /// one stage a rank. The stages of the second are numbered after the stages of the first: stage
    /// `ranks + k` is stage `k` of the second. The text form is `0,1,2,3 and 3,2,1,0`.
    ///
    /// # Errors
    /// [`ScheduleError`] when `ranks` is 0 or there would be more than 2^23 stages.
    pub fn bidirectional(ranks: u32) -> Result<Self> {
        Ok(Self { directions: 2, ..Self::vee(ranks)? })
    }

    /// Stage `s` on rank `rank_of[s]`.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no stage, or a rank below the highest one has none.
    pub fn new(rank_of: Vec<Rank>) -> Result<Self> {
        let highest = rank_of.iter().max().ok_or_else(|| ScheduleError::new("a placement needs a stage"))?;
        let mut used = vec![false; rank_of.len()];
        for rank in rank_of.iter().filter(|rank| rank.index() < rank_of.len()) {
            used[rank.index()] = true;
        }
        let without = used.iter().position(|used| !used).unwrap_or(used.len());
        if without <= highest.index() {
            return Err(ScheduleError::new(format!(
                "rank {without} has no stage, though there is a rank {highest}; number the ranks from 0 and \
                 give each one a stage"
            ))
            .into());
        }
        Ok(Self { ranks: highest.0 + 1, rank_of, directions: 1 })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// How many stages there are.
    pub fn stages(&self) -> u32 {
        self.rank_of.len() as u32
    }

    /// How many directions there are in which micro-batches go through the ranks. Each has its own stages. 2
    /// for [`Placement::bidirectional`], else 1.
    pub fn directions(&self) -> u32 {
        self.directions
    }

    /// The rank of a stage; `None` when there is no such stage.
    pub fn rank(&self, stage: StageId) -> Option<Rank> {
        self.rank_of.get(stage.index()).copied()
    }

    /// The rank of each stage, in stage order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.rank_of.iter().copied()
    }

    /// The stages of a rank, in order.
    pub fn stages_on(&self, rank: Rank) -> impl Iterator<Item = StageId> + '_ {
        (0..self.stages()).map(StageId).filter(move |stage| self.rank_of[stage.index()] == rank)
    }

    /// How many stages each rank has.
    pub fn chunks(&self) -> Vec<u32> {
        let mut chunks = vec![0; self.ranks as usize];
        for rank in &self.rank_of {
            chunks[rank.index()] += 1;
        }
        chunks
    }

    /// Whether the output of this stage must be sent to another rank.
    pub(crate) fn crosses(&self, flow: Flow, stage: StageId) -> bool {
        self.ends(flow, stage).is_some_and(|(from, to)| from != to)
    }

    /// The ranks of the stage that sends this and of the stage that receives it. `None` unless both exist in
    /// one direction.
    pub(crate) fn ends(&self, flow: Flow, stage: StageId) -> Option<(Rank, Rank)> {
        let direction = |stage: StageId| stage.0 / (self.stages() / self.directions);
        let next = flow.after(stage).filter(|&next| direction(next) == direction(stage))?;
        Some((self.rank(stage)?, self.rank(next)?))
    }

    /// The placement that the actions imply: a stage is on the rank with most of its actions.
    pub(super) fn of(rows: &[Vec<Action>]) -> Result<Self> {
        let actions: usize = rows.iter().map(Vec::len).sum();
        let last = rows.iter().flatten().map(|action| action.stage().index()).max();
        let stages = last.map_or(0, |last| last + 1);
        if stages > actions {
            return Err(ScheduleError::new(format!(
                "there is a stage {}, but only {actions} actions in all",
                stages - 1
            ))
            .into());
        }
        let mut seen = vec![false; stages];
        rows.iter().flatten().for_each(|action| seen[action.stage().index()] = true);
        if let Some(missing) = seen.iter().position(|seen| !seen) {
            return Err(ScheduleError::new(format!(
                "stage {missing} has no action on any rank, though there is a stage {}; number the stages \
                 from 0",
                stages - 1
            ))
            .into());
        }
        let home = ranks_of_most(rows, stages);
        if let Some(error) = rank_of_others(rows, &home) {
            return Err(error.into());
        }
        let placement = Self::new(home)?;
        if placement.begins_in_the_middle(rows) {
            return Self::bidirectional(placement.ranks);
        }
        Ok(placement)
    }

    /// Whether the last rank begins with what looks like the second half of a vee. That half would need an
    /// input from this rank itself. So it is a second pipeline, which begins here.
    fn begins_in_the_middle(&self, rows: &[Vec<Action>]) -> bool {
        let vee = Self::vee(self.ranks).is_ok_and(|vee| &vee == self);
        let first = rows.get(self.ranks as usize - 1);
        let first = first.and_then(|row| row.iter().find_map(|action| action.compute()));
        vee && first.is_some_and(|(_, cell)| cell.stage.0 == self.ranks)
    }
}

/// By stage, the rank that has more of its actions than all others together, if there is one.
fn ranks_of_most(rows: &[Vec<Action>], stages: usize) -> Vec<Rank> {
    let mut votes: Vec<(Rank, usize)> = vec![(Rank(0), 0); stages];
    for (rank, row) in (0..).map(Rank).zip(rows) {
        for action in row {
            let (choice, lead) = &mut votes[action.stage().index()];
            match *lead {
                0 => (*choice, *lead) = (rank, 1),
                _ if *choice == rank => *lead += 1,
                _ => *lead -= 1,
            }
        }
    }
    votes.into_iter().map(|(rank, _)| rank).collect()
}

/// The error for a rank that has actions, but only of stages on other ranks.
fn rank_of_others(rows: &[Vec<Action>], home: &[Rank]) -> Option<ScheduleError> {
    let used: BTreeSet<Rank> = home.iter().copied().collect();
    let mut others = (0..).map(Rank).zip(rows).filter(|(rank, _)| !used.contains(rank));
    let (other, action) = others.find_map(|(rank, row)| Some((rank, *row.first()?)))?;
    let stage = action.stage();
    Some(ScheduleError::on_two_ranks(stage, home[stage.index()], (other, action)))
}

fn stages(ranks: u32, chunks: u32) -> std::result::Result<u32, ScheduleError> {
    match ranks.checked_mul(chunks) {
        Some(0) => Err(ScheduleError::new(format!(
            "a placement needs at least 1 rank and 1 chunk on each; it was given {ranks} ranks and {chunks} \
             chunks"
        ))),
        Some(stages) if stages <= 1 << 23 => Ok(stages),
        _ => Err(ScheduleError::new(format!("{ranks} ranks of {chunks} chunks are more than 2^23 stages"))),
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stage, rank) in self.rank_of.iter().enumerate() {
            let between = match stage {
                0 => "",
                _ if (stage as u32).is_multiple_of(self.stages() / self.directions) => " and ",
                _ => ",",
            };
            write!(f, "{between}{rank}")?;
        }
        Ok(())
    }
}

/// A placement as people write it, before the number of stages is known: `looped`, `vee` or `0,1,1,0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementSpec {
    /// As [`Placement::looped`].
    Looped,
    /// As [`Placement::vee`].
    Vee,
    /// As [`Placement::new`].
    List(Placement),
}

impl PlacementSpec {
    /// The placement of this many stages on this many ranks.
    ///
    /// # Errors
    /// [`ScheduleError`] when the numbers do not fit. Looped needs the same number of stages on every rank,
    /// vee needs two, and a list needs exactly the numbers that it names.
    pub fn place(&self, ranks: u32, stages: u32) -> Result<Placement> {
        let (fits, wants) = match self {
            Self::Looped => (
                ranks > 0 && stages.is_multiple_of(ranks),
                "placement looped wants the same number of stages on every rank".to_owned(),
            ),
            Self::Vee => (
                ranks.checked_mul(2) == Some(stages),
                "placement vee wants two stages on every rank".to_owned(),
            ),
            Self::List(list) => (
                list.ranks == ranks && list.stages() == stages,
                format!("placement {list} is for {} stages on {} ranks", list.stages(), list.ranks),
            ),
        };
        if !fits {
            let text = format!("{wants}, but there are {stages} stages on {ranks} ranks");
            return Err(ScheduleError::new(text).into());
        }
        match self {
            Self::Looped => Placement::looped(ranks, stages / ranks),
            Self::Vee => Placement::vee(ranks),
            Self::List(list) => Ok(list.clone()),
        }
    }
}

impl FromStr for PlacementSpec {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self> {
        let list = |text: &str| text.split(',').map(|rank| rank.trim().parse().ok().map(Rank)).collect();
        match (text, list(text)) {
            ("looped", _) => Ok(Self::Looped),
            ("vee", _) => Ok(Self::Vee),
            (_, Some(list)) => Ok(Self::List(Placement::new(list)?)),
            _ => Err(ScheduleError::new(format!(
                "{text:?} is not a placement; known are looped, vee and a list of the stages' ranks such as \
                 0,1,1,0"
            ))
            .into()),
        }
    }
}
