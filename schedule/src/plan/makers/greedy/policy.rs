//! The rules by which ranks choose, and which rules are worth trying.

use crate::plan::StageCost;
use crate::schedule::Placement;

/// The limits and rules by which ranks choose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// How many micro-batches each stage may have between forward and backward-input, at least 1.
    pub(crate) in_flight: Vec<u32>,
    /// Each rank's rule.
    pub(crate) rules: Vec<Rule>,
    /// Whether passes go in rounds of as many micro-batches as there are ranks. A rank then starts no forward
    /// of a later round or a later chunk before the earlier ones are done. Backward-inputs do the same from
    /// the last chunk on. Such a listing may get stuck; it is then dropped. Without rounds, a rank with
    /// several chunks runs whatever is ready.
    pub(crate) rounds: bool,
    /// Whether a micro-batch that waits for its backward-weight counts with all that its forward saved, even
    /// if the backward-input freed some. Fewer backward-weights are then put off.
    pub(crate) thrifty: bool,
}

/// The rule by which a free rank chooses its next pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rule {
    /// Which pass goes first when a forward and a backward-input are both ready.
    pub(crate) first: First,
    /// A forward waits for a backward-input that becomes ready within this share of the forward's time.
    pub(crate) patience: f64,
    /// A gap before the next pass is filled with a backward-weight if it is at least this share of the weight
    /// pass's time.
    pub(crate) fill: f64,
    /// A smaller gap is filled too if this rank would otherwise become the one with the most idle time.
    pub(crate) even: bool,
}

/// Which pass goes first when a forward and a backward-input are both ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Backward,
    Forward,
    /// The kind that the rank did not run last.
    InTurn,
}

/// How many micro-batches each stage may have in flight. The further a stage is from the last one, the longer
/// its activations live. A rank's later stages get `share` of that length. Its first stage gets the memory
/// that they leave.
pub(crate) fn in_flight(placement: &Placement, stages: &[StageCost], memory: f64, share: f64) -> Vec<u32> {
    let count = placement.stages();
    let mut left = vec![memory; placement.ranks() as usize];
    let mut caps: Vec<_> =
        (0..count).map(|stage| (share * f64::from(count - stage)).round().max(1.0) as u32).collect();
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
            [First::Backward, First::InTurn, First::Forward].into_iter().flat_map(move |first| {
                [true, false].into_iter().map(move |even| Rule { first, patience, fill, even })
            })
        })
    })
}
