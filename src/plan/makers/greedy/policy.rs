//! By which rules ranks choose, and which rules are worth trying.

use crate::plan::StageCost;
use crate::schedule::Placement;

/// What the ranks keep to when they choose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// How many micro-batches each stage may have between forward and backward-input, at least 1.
    pub(crate) in_flight: Vec<u32>,
    /// Each rank's rule.
    pub(crate) rules: Vec<Rule>,
    /// Passes go in rounds of as many micro-batches as there are ranks: a rank begins no forward of the next round, or of a
    /// later chunk, while an earlier one is to come; backward-inputs the same from the last chunk on. This may not end, and
    /// then counts for nothing. Otherwise a rank with several chunks does what is ready.
    pub(crate) rounds: bool,
    /// What waits for its backward-weight counts with all that the forward left, whatever the backward-input frees: little is
    /// put off.
    pub(crate) thrifty: bool,
}

/// By which rule a free rank chooses its next pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rule {
    /// What goes first when both a forward and a backward-input are ready.
    pub(crate) first: First,
    /// A forward waits for a backward-input that comes within this share of the forward's time.
    pub(crate) patience: f64,
    /// A gap before the next pass is filled with a backward-weight when it is at least this share of its time.
    pub(crate) fill: f64,
    /// A smaller gap is filled too when it would make this rank the one that has idled most.
    pub(crate) even: bool,
}

/// What goes first when both a forward and a backward-input are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Backward,
    Forward,
    /// What the rank did not do last.
    InTurn,
}

/// How many micro-batches each stage may have in flight. A stage lives the longer the further it is from the last one;
/// those after the first of a rank get `share` of that, and the first gets the memory that they leave.
pub(crate) fn in_flight(placement: &Placement, stages: &[StageCost], memory: f64, share: f64) -> Vec<u32> {
    let count = placement.stages();
    let mut left = vec![memory; placement.ranks() as usize];
    let mut caps: Vec<_> = (0..count)
        .map(|stage| (share * f64::from(count - stage)).round().max(1.0) as u32)
        .collect();
    for (stage, rank) in placement.iter().enumerate().skip(placement.ranks() as usize) {
        left[rank.index()] -= f64::from(caps[stage]) * stages[stage].saved;
    }
    for (stage, rank) in placement.iter().enumerate().take(placement.ranks() as usize) {
        caps[stage] = (left[rank.index()] / stages[stage].saved + 1e-9).max(1.0) as u32;
    }
    caps
}

/// Policies worth trying, the most promising first: the same rule on all `ranks`, with each of these limits.
pub(crate) fn policies(ranks: u32, in_flight: Vec<Vec<u32>>) -> impl Iterator<Item = Policy> {
    rules().flat_map(move |rule| {
        let policy = |in_flight: &Vec<u32>| Policy {
            in_flight: in_flight.clone(),
            rules: vec![rule; ranks as usize],
            rounds: false,
            thrifty: false,
        };
        in_flight.iter().map(policy).collect::<Vec<_>>()
    })
}

/// The rules worth trying, the most promising first.
fn rules() -> impl Iterator<Item = Rule> {
    [0.3, 0.0, 0.7].into_iter().flat_map(|patience| {
        [0.0, 1.0, 0.5].into_iter().flat_map(move |fill| {
            [First::Backward, First::InTurn, First::Forward]
                .into_iter()
                .flat_map(move |first| {
                    [true, false].into_iter().map(move |even| Rule {
                        first,
                        patience,
                        fill,
                        even,
                    })
                })
        })
    })
}
